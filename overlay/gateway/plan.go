package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
)

// via is how a route leads to gv0: from which source (invalid: the kernel's choice) and
// with which MTU (0: gv0's).
type via struct {
	src netip.Addr
	mtu int
}

// route is a prefix behind gv0.
type route struct {
	dst netip.Prefix
	via
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
	routes map[netip.Prefix]via
}

func newConfig() config {
	return config{make(map[netip.Addr]bool), make(map[netip.Prefix]via)}
}

// plan works out what Ensure is to make.
func plan(cfg Config) (config, error) {
	c := newConfig()
	for _, r := range cfg.Subnets {
		if err := check(r); err != nil {
			return config{}, err
		}
		c.routes[r.Masked()] = via{}
	}
	for _, a := range slices.Concat(cfg.Addrs, cfg.Host) {
		if err := check(a); err != nil {
			return config{}, err
		}
		c.addrs[a.Addr()] = true
		if !a.IsSingleIP() {
			c.routes[a.Masked()] = via{src: a.Addr()}
		}
	}
	for _, r := range cfg.Remote {
		for _, h := range cfg.Host {
			if h.Addr().Is4() == r.Addr().Is4() {
				c.routes[r] = via{src: h.Addr()}
			}
		}
	}
	for _, r := range cfg.Own {
		c.routes[r] = via{src: gatewayOf(cfg.Addrs, r)}
	}
	for p, v := range c.routes {
		v.mtu = cfg.mtuOf(p)
		c.routes[p] = v
	}
	return c, nil
}

func check(p netip.Prefix) error {
	if !p.IsValid() {
		return fmt.Errorf("invalid prefix")
	}
	if p.Bits() == 0 {
		return fmt.Errorf("route %v would take all of the host's traffic", p)
	}
	return nil
}

// gatewayOf is the gateway of the subnet that r is in; invalid: it has none.
func gatewayOf(gateways []netip.Prefix, r netip.Prefix) (gw netip.Addr) {
	bits := -1
	for _, g := range gateways {
		if g.Bits() > bits && g.Bits() <= r.Bits() && g.Contains(r.Addr()) {
			gw, bits = g.Addr(), g.Bits()
		}
	}
	return gw
}

// mtuOf is the MTU of the subnet that p is in, if that is not gv0's.
func (cfg Config) mtuOf(p netip.Prefix) int {
	for s, mtu := range cfg.MTUs {
		if s.Bits() <= p.Bits() && s.Contains(p.Addr()) {
			return mtu
		}
	}
	return 0
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
	maps.DeleteFunc(c.routes, func(p netip.Prefix, _ via) bool { return is6(p.Addr()) })
	return c
}

// loopback6 is local at gv0 as well, for answers to ::1 from published ports: the kernel
// takes them, once translated, by a route of the very interface they came in at only
// (rt6_need_strict in net/ipv6/route.c). IPv4 has a sysctl for that, route_localnet. What
// is sent to ::1 from elsewhere it drops before that (ip6_rcv_core).
var loopback6 = netip.PrefixFrom(netip.IPv6Loopback(), 128)

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

// difference leads from have to want. A route whose source or MTU changes is only added,
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
		if v, ok := have.routes[p]; !ok || v != want.routes[p] {
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
