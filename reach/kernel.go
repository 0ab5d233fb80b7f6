package reach

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
)

// kernel reads one network namespace, whichever thread calls.
type kernel struct {
	handle *netlink.Handle
	ours   string // the interface that is the cluster's own, as are the tables of its routes
	tables []int  // these
}

// read returns the kernel's part of the facts.
func (k kernel) read() (f Facts, err error) {
	links, err := link.Dump(k.handle.LinkList)
	if err != nil {
		return f, fmt.Errorf("list interfaces: %w", err)
	}
	devs := make(map[int]*netlink.LinkAttrs, len(links))
	for _, l := range links {
		devs[l.Attrs().Index] = l.Attrs()
	}
	if f.Addrs, err = k.addrs(devs); err != nil {
		return f, err
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := k.routes(family, devs)
		if err != nil {
			return f, err
		}
		f.Routes = append(f.Routes, list...)
	}
	return f, nil
}

func (k kernel) addrs(devs map[int]*netlink.LinkAttrs) (out []Addr, err error) {
	list, err := link.Dump(func() ([]netlink.Addr, error) { return k.handle.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range list {
		dev, known := devs[a.LinkIndex]
		ip, ok := netip.AddrFromSlice(a.IP)
		if !known || !ok || dev.Name == k.ours || dev.Name == link.WireGuard || dev.Name == link.WireGuard2 {
			continue
		}
		ip = ip.Unmap()
		bits, _ := a.Mask.Size()
		if a.Flags&unix.IFA_F_NOPREFIXROUTE != 0 { // what is on the link then, a route says
			bits = ip.BitLen()
		}
		out = append(out, Addr{netip.PrefixFrom(ip, bits), dev.Name})
	}
	return out, nil
}

// routes are those of all tables that a rule names, but for the kernel's own (local).
func (k kernel) routes(family int, devs map[int]*netlink.LinkAttrs) (out []Route, err error) {
	rules, err := link.Dump(func() ([]netlink.Rule, error) { return k.handle.RuleList(family) })
	if err != nil {
		return nil, fmt.Errorf("list routing rules: %w", err)
	}
	tables := map[int]bool{}
	for _, r := range rules {
		tables[r.Table] = true
	}
	delete(tables, unix.RT_TABLE_LOCAL)
	for _, t := range k.tables {
		delete(tables, t)
	}
	all := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
	list, err := link.Dump(func() ([]netlink.Route, error) {
		return k.handle.RouteListFiltered(family, all, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range list {
		if !tables[r.Table] || r.Dst == nil {
			continue
		}
		if route, ok := routeOf(r, devs); ok && (route.Dev == "" || route.Dev != k.ours) && route.Prefix != cluster.SecureRange {
			out = append(out, route)
		}
	}
	return out, nil
}

func routeOf(r netlink.Route, devs map[int]*netlink.LinkAttrs) (out Route, ok bool) {
	dst, ok := netip.AddrFromSlice(r.Dst.IP)
	bits, _ := r.Dst.Mask.Size()
	out.Prefix = netip.PrefixFrom(dst.Unmap(), bits)
	switch r.Type {
	case unix.RTN_UNICAST:
	case unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT:
		out.Drops = true
		return out, ok
	default: // throw goes on to the next table; the others are the kernel's own
		return out, false
	}
	index, gw := r.LinkIndex, r.Gw
	if len(r.MultiPath) > 0 {
		index, gw = r.MultiPath[0].LinkIndex, r.MultiPath[0].Gw
	}
	if a, there := netip.AddrFromSlice(gw); there {
		out.Via = a.Unmap()
	} else if v, isVia := r.Via.(*netlink.Via); isVia { // of the other family
		a, _ := netip.AddrFromSlice(v.Addr)
		out.Via = a
	}
	if dev, known := devs[index]; known {
		out.Dev = dev.Name
		out.OnLink = !out.Via.IsValid() && dev.RawFlags&unix.IFF_NOARP == 0 && dev.Flags&net.FlagPointToPoint == 0
	}
	return out, ok
}
