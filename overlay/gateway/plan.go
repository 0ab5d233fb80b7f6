package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
)

// route is a prefix behind gv0 and the source that the host speaks to it with; an
// invalid one leaves that to the kernel.
type route struct {
	dst netip.Prefix
	src netip.Addr
}

func (r route) String() string {
	if r.src.IsValid() {
		return fmt.Sprintf("%v src %v", r.dst, r.src)
	}
	return r.dst.String()
}

// config is what gv0 has or is to have; routes by destination.
type config struct {
	addrs  map[netip.Addr]bool
	routes map[netip.Prefix]netip.Addr
}

func newConfig() config {
	return config{make(map[netip.Addr]bool), make(map[netip.Prefix]netip.Addr)}
}

// plan works out what Ensure is to make.
func plan(addrs, routes []netip.Prefix) (config, error) {
	c := newConfig()
	for _, r := range routes {
		if !r.IsValid() {
			return config{}, fmt.Errorf("route to an invalid prefix")
		}
		if r.Bits() == 0 {
			return config{}, fmt.Errorf("route %v would take all of the host's traffic", r)
		}
		c.routes[r.Masked()] = netip.Addr{}
	}
	for _, a := range addrs {
		if !a.IsValid() {
			return config{}, fmt.Errorf("invalid gateway address")
		}
		c.addrs[a.Addr()] = true
		if !a.IsSingleIP() {
			c.routes[a.Masked()] = a.Addr()
		}
	}
	return c, nil
}

func (c config) hasV6() bool {
	for a := range c.addrs {
		if a.Is6() {
			return true
		}
	}
	for p := range c.routes {
		if p.Addr().Is6() {
			return true
		}
	}
	return false
}

// onlyV4 is c without what is IPv6's.
func (c config) onlyV4() config {
	is6 := func(a netip.Addr) bool { return a.Is6() }
	maps.DeleteFunc(c.addrs, func(a netip.Addr, _ bool) bool { return is6(a) })
	maps.DeleteFunc(c.routes, func(p netip.Prefix, _ netip.Addr) bool { return is6(p.Addr()) })
	return c
}

// linkLocal is the link-local address of gv0 (RFC 4291, appendix A), which the kernel
// asks for containers' MACs with when it forwards packets of others to them.
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

// changes lead from one config to another, each list in order.
type changes struct {
	addAddrs, removeAddrs   []netip.Addr
	addRoutes, removeRoutes []route
}

// difference leads from have to want. A route whose source changes is only added,
// since adding replaces it.
func difference(have, want config) changes {
	var d changes
	for _, a := range slices.SortedFunc(maps.Keys(want.addrs), netip.Addr.Compare) {
		if !have.addrs[a] {
			d.addAddrs = append(d.addAddrs, a)
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(have.addrs), netip.Addr.Compare) {
		if !want.addrs[a] {
			d.removeAddrs = append(d.removeAddrs, a)
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(want.routes), comparePrefix) {
		if src, ok := have.routes[p]; !ok || src != want.routes[p] {
			d.addRoutes = append(d.addRoutes, route{p, want.routes[p]})
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(have.routes), comparePrefix) {
		if _, ok := want.routes[p]; !ok {
			d.removeRoutes = append(d.removeRoutes, route{p, have.routes[p]})
		}
	}
	return d
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
