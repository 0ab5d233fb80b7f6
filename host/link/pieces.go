package link

import (
	"github.com/vishvananda/netlink"
)

// Linux's own.
const gsoMaxSize = 65536

// pieces sets how much the container's TCP hands to its interface at once. What is larger than the bucket is cut up and all but the first
// of it dropped, of which the kernel tells TCP nothing: at 10 Mbit/s it sent thousands of segments again each second. Connections that there are keep what they began with.
func pieces(h *netlink.Handle, l netlink.Link, limits Limits) error {
	a := l.Attrs()
	size := uint32(gsoMaxSize)
	if limits.Egress != 0 {
		size = uint32(min(gsoMaxSize, burst(limits.Egress/8, a.MTU)))
	}
	if a.GSOMaxSize == size || size == gsoMaxSize && a.GSOMaxSize > size {
		return nil
	}
	return h.LinkSetGSOMaxSize(l, int(size))
}
