package link

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// Linux's own.
const gsoMaxSize, gsoMaxSegs = 65536, 65535

// pieces sets how much the container's TCP hands to its interface at once. What is larger than the bucket is cut up and all but the first
// of it dropped, of which the kernel tells TCP nothing: at 10 Mbit/s it sent thousands of segments again each second. And netem would lose all of
// it at once. Connections that there are keep what they began with.
func pieces(h *netlink.Handle, l netlink.Link, limits Limits) error {
	a := l.Attrs()
	size, segs := uint32(gsoMaxSize), uint32(gsoMaxSegs)
	if limits.Egress != 0 {
		size = uint32(min(gsoMaxSize, burst(limits.Egress/8, a.MTU)))
	}
	if limits.Lag.Loss != 0 {
		segs = 1
	}
	var errs []error
	if a.GSOMaxSize < size || a.GSOMaxSize > size && size < gsoMaxSize {
		errs = append(errs, h.LinkSetGSOMaxSize(l, int(size)))
	}
	if a.GSOMaxSegs != segs {
		errs = append(errs, h.LinkSetGSOMaxSegs(l, int(segs)))
	}
	return errors.Join(errs...)
}
