package link

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is a destination of the host's main routing table and where it leads.
type Route struct {
	Prefix    netip.Prefix
	Interface string // empty for a route that drops
}

// Routes returns the routes of this namespace's main table, both families, but those
// through the interface except, default routes, which overlap everything, and
// link-local and multicast ones, which every interface has.
func Routes(except string) ([]Route, error) {
	links, err := Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	names := make(map[int]string, len(links))
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	var out []Route
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := Dump(func() ([]netlink.Route, error) { return netlink.RouteList(nil, family) })
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range list {
			dst, ok := destination(r)
			if name := names[r.LinkIndex]; ok && (name == "" || name != except) {
				out = append(out, Route{dst, name})
			}
		}
	}
	return out, nil
}

// destination returns where a route leads to, if that is a prefix of its own.
func destination(r netlink.Route) (netip.Prefix, bool) {
	if r.Dst == nil {
		return netip.Prefix{}, false
	}
	ip, ok := netip.AddrFromSlice(r.Dst.IP)
	ones, _ := r.Dst.Mask.Size()
	ip = ip.Unmap()
	return netip.PrefixFrom(ip, ones), ok && ones > 0 && !ip.IsLinkLocalUnicast() && !ip.IsMulticast()
}
