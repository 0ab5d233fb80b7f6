package link

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is a destination that the host reaches through an interface.
type Route struct {
	Prefix    netip.Prefix
	Interface string
}

// Routes returns the unicast routes of the main table, both families, without
// default and link-local ones and without those through the interface except.
func Routes(except string) ([]Route, error) {
	list, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var routes []Route
	for _, r := range list {
		if r.Dst == nil || isDefault(r) || r.Type != unix.RTN_UNICAST {
			continue
		}
		addr, ok := netip.AddrFromSlice(r.Dst.IP)
		l, err := netlink.LinkByIndex(r.LinkIndex)
		if !ok || err != nil || l.Attrs().Name == except || addr.IsLinkLocalUnicast() || addr.IsMulticast() {
			continue // err: the interface went away meanwhile
		}
		bits, _ := r.Dst.Mask.Size()
		routes = append(routes, Route{netip.PrefixFrom(addr.Unmap(), bits), l.Attrs().Name})
	}
	return routes, nil
}
