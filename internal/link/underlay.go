package link

import (
	"fmt"
	"net/netip"
	"sort"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Underlay is where a host's VXLAN packets leave and arrive.
type Underlay struct {
	Interface string
	Addr      netip.Addr // the VTEP
	MTU       int        // bytes, IP packet
}

// FindUnderlay returns the interface that has the address advertise, or, if that
// is invalid, the interface and source address of the default route: IPv4's if
// there is one, else IPv6's, and of several that of the lowest metric.
func FindUnderlay(advertise netip.Addr) (Underlay, error) {
	if advertise.IsValid() {
		return withAddr(advertise.Unmap())
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		u, found, err := ofDefaultRoute(family)
		if err != nil || found {
			return u, err
		}
	}
	return Underlay{}, fmt.Errorf("find the underlay address: this host has no default route: set GRAPEVINE_ADVERTISE to the address that the other hosts reach it at")
}

func withAddr(want netip.Addr) (Underlay, error) {
	links, err := Dump(netlink.LinkList)
	if err != nil {
		return Underlay{}, fmt.Errorf("find the interface of %s: %w", want, err)
	}
	for _, l := range links {
		addrs, err := addrsOf(l, 0)
		if err != nil {
			return Underlay{}, err
		}
		for _, a := range addrs {
			if a.Addr() == want.WithZone("") {
				return Underlay{l.Attrs().Name, want.WithZone(""), l.Attrs().MTU}, nil
			}
		}
	}
	return Underlay{}, fmt.Errorf("no interface of this host has the advertised address %s: set GRAPEVINE_ADVERTISE to an address of this host", want)
}

func ofDefaultRoute(family int) (Underlay, bool, error) {
	// Table main, any destination of length 0: netlink's Dst nil or /0.
	routes, err := Dump(func() ([]netlink.Route, error) { return netlink.RouteList(nil, family) })
	if err != nil {
		return Underlay{}, false, fmt.Errorf("list routes: %w", err)
	}
	sort.SliceStable(routes, func(i, j int) bool { return routes[i].Priority < routes[j].Priority })
	for _, r := range routes {
		if !isDefault(r) {
			continue
		}
		index := r.LinkIndex
		if index == 0 && len(r.MultiPath) > 0 {
			index = r.MultiPath[0].LinkIndex
		}
		l, err := netlink.LinkByIndex(index)
		if err != nil {
			continue // gone meanwhile, or a route without an interface (blackhole)
		}
		src, _ := netip.AddrFromSlice(r.Src)
		addr, err := source(l, family, src.Unmap())
		if err != nil {
			return Underlay{}, false, err
		}
		if addr.IsValid() {
			return Underlay{l.Attrs().Name, addr, l.Attrs().MTU}, true, nil
		}
	}
	return Underlay{}, false, nil
}

func isDefault(r netlink.Route) bool {
	if r.Dst == nil {
		return r.Type == unix.RTN_UNICAST
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0 && r.Type == unix.RTN_UNICAST
}

// passing marks IPv6 addresses that are on their way out, by design (RFC 8981) or since
// their router says so, and those that another host has.
const passing = unix.IFA_F_TEMPORARY | unix.IFA_F_DEPRECATED | unix.IFA_F_DADFAILED

// source picks the address that packets out of l carry: the route's own, else the
// first global one that stays.
func source(l netlink.Link, family int, ofRoute netip.Addr) (netip.Addr, error) {
	if ofRoute.IsValid() {
		return ofRoute, nil
	}
	addrs, err := addrsOf(l, passing)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range addrs {
		if a.Addr().Is4() == (family == unix.AF_INET) && a.Addr().IsGlobalUnicast() {
			return a.Addr(), nil
		}
	}
	return netip.Addr{}, nil
}

// addrsOf returns the addresses of l with their prefix lengths, both families, but
// those of IPv6 with one of the flags.
func addrsOf(l netlink.Link, without int) ([]netip.Prefix, error) {
	list, err := Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, mapErr(err))
	}
	var out []netip.Prefix
	for _, a := range list {
		ip, ok := netip.AddrFromSlice(a.IP)
		if !ok || ip.Is6() && a.Flags&without != 0 { // IFA_F_TEMPORARY is IFA_F_SECONDARY of IPv4
			continue
		}
		ones, _ := a.Mask.Size()
		out = append(out, netip.PrefixFrom(ip.Unmap(), ones))
	}
	return out, nil
}
