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

// Want says which underlay a host is to have; of several fields that are set, the first
// counts. The zero value is that of the default route.
type Want struct {
	Addr      netip.Addr // an address of this host or, with Bind, the one that NAT gives it
	Interface string
	Bind      netip.Addr // an address of this host
}

// FindUnderlay returns the underlay that a host is to have. Without a wish it is the
// interface and source address of the default route: IPv4's if there is one, else IPv6's,
// and of several that of the lowest metric.
func FindUnderlay(want Want) (Underlay, error) {
	if want.Bind.IsUnspecified() {
		want.Bind = netip.Addr{}
	}
	switch addr := want.Addr.Unmap().WithZone(""); {
	case addr.IsValid():
		u, found, err := withAddr(addr)
		if err == nil && !found && want.Bind.IsValid() {
			if u, found, err = withAddr(want.Bind.Unmap()); found {
				u.Addr = addr
			}
		}
		if err == nil && !found {
			err = fmt.Errorf("no interface of this host has the advertised address %s: set GRAPEVINE_ADVERTISE to an address of this host or, "+
				"if others reach it by NAT, GRAPEVINE_BIND as well, to the address that NAT leads to", addr)
		}
		return u, err
	case want.Interface != "":
		return ofInterface(want.Interface)
	case want.Bind.IsValid():
		u, found, err := withAddr(want.Bind.Unmap())
		if err == nil && !found {
			err = fmt.Errorf("no interface of this host has the address %s: set GRAPEVINE_BIND to an address of this host", want.Bind)
		}
		return u, err
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		u, found, err := ofDefaultRoute(family)
		if err != nil || found {
			return u, err
		}
	}
	return Underlay{}, fmt.Errorf("find the underlay address: this host has no default route: set GRAPEVINE_ADVERTISE to the address that the other hosts reach it at, or to its interface")
}

// withAddr finds the interface that has an address.
func withAddr(want netip.Addr) (u Underlay, found bool, err error) {
	list, err := Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return u, false, fmt.Errorf("find the interface of %s: %w", want, err)
	}
	for _, a := range list {
		if ip, _ := netip.AddrFromSlice(a.IP); ip.Unmap() != want {
			continue
		}
		l, err := netlink.LinkByIndex(a.LinkIndex)
		if err != nil {
			return u, false, fmt.Errorf("find the interface of %s: %w", want, mapErr(err))
		}
		return Underlay{l.Attrs().Name, want, l.Attrs().MTU}, true, nil
	}
	return u, false, nil
}

// ofInterface is an interface with its first global address, IPv4 before IPv6.
func ofInterface(name string) (Underlay, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return Underlay{}, fmt.Errorf("find the underlay address: interface %s: %w; set GRAPEVINE_ADVERTISE to one of this host's interfaces or addresses", name, mapErr(err))
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		addr, err := source(l, family, netip.Addr{})
		if err != nil {
			return Underlay{}, err
		}
		if addr.IsValid() {
			return Underlay{name, addr, l.Attrs().MTU}, nil
		}
	}
	return Underlay{}, fmt.Errorf("find the underlay address: interface %s has none", name)
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
