package link

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Shaper names the qdisc that somebody has given an interface in place of the kernel's own, for
// what it sends; empty: nobody has. One that the kernel made has no handle.
func Shaper(ifname string) (string, error) {
	l, err := netlink.LinkByName(ifname)
	if err != nil {
		return "", fmt.Errorf("qdiscs of %s: %w", ifname, mapErr(err))
	}
	list, err := Dump(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(l) })
	if err != nil {
		if errors.Is(err, unix.ENODEV) {
			return "", ErrNotFound
		}
		return "", fmt.Errorf("qdiscs of %s: %w", ifname, mapErr(err))
	}
	for _, q := range list {
		if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.Handle != 0 {
			return q.Type(), nil
		}
	}
	return "", nil
}
