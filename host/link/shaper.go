package link

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Shaper names what passes a program by that redirects to and from an interface: the qdisc that somebody
// has given it in place of the kernel's own, for what it sends, or XDP in its driver; empty: there is
// neither. A qdisc that the kernel made has no handle.
func Shaper(ifname string) (string, error) {
	l, err := netlink.LinkByName(ifname)
	if err != nil {
		return "", fmt.Errorf("qdiscs of %s: %w", ifname, mapErr(err))
	}
	// A driver's XDP program sees nothing of what is redirected to its device.
	if x := l.Attrs().Xdp; x != nil && x.Attached && x.AttachMode != nl.XDP_ATTACHED_SKB {
		return "XDP", nil
	}
	given, err := shapers(l)
	if err != nil {
		return "", fmt.Errorf("qdiscs of %s: %w", ifname, err)
	}
	return given[l.Attrs().Index], nil
}

// Shapers are the qdiscs that somebody has given to interfaces in place of the kernel's own, by
// the interface's index.
func Shapers() (map[int]string, error) {
	given, err := shapers(nil)
	if err != nil {
		return nil, fmt.Errorf("qdiscs: %w", err)
	}
	return given, nil
}

// shapers are those of an interface; nil: of all.
func shapers(of netlink.Link) (map[int]string, error) {
	list, err := Dump(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(of) })
	if errors.Is(err, unix.ENODEV) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, mapErr(err)
	}
	given := map[int]string{}
	for _, q := range list {
		if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.Handle != 0 {
			given[a.LinkIndex] = q.Type()
		}
	}
	return given, nil
}
