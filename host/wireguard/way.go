package wireguard

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/netns"
)

// Way is how what a client sends leaves a sandbox, and how what is for it comes in: by an interface of its own.
type Way struct {
	Port  string       // the interface, in the sandbox
	Addrs []netip.Addr // the client's
}

// In a sandbox the source of what comes out of gvwgc says by which interface it goes on; what is for a client comes in
// there and goes to gvwgc. No packet of one client is led to another one: what else comes out of gvwgc leads nowhere.
const (
	byClient  = 100  // the priority of a client's rule
	byNobody  = 101  // and of the rule for all else
	noTable   = 9999 // leads nowhere
	tableBase = 10000
)

// nextHops stand for the switch, which answers to one MAC address: nobody asks for theirs.
var nextHops = []netip.Addr{netip.MustParseAddr("169.254.0.1"), netip.MustParseAddr("fe80::1")}

func nextHop(of netip.Addr) netip.Addr {
	if of.Is4() {
		return nextHops[0]
	}
	return nextHops[1]
}

// Has reports whether an interface is in the sandbox, and up.
func (r *Room) Has(name string) (up bool) {
	_ = netns.Do(r.File, func() error {
		l, err := link.Get(name)
		up = err == nil && l.Up
		return err
	})
	return up
}

// Take moves an interface from the namespace of the calling thread into the sandbox, and sets it up.
func (r *Room) Take(name string) error {
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetNsFd(l, int(r.File.Fd()))
	}
	if err == nil {
		err = netns.Do(r.File, func() error { return errors.Join(link.NoIPv6Address(name), link.Up(name)) })
	}
	if err != nil {
		return fmt.Errorf("put %s into the sandbox of %s: %w", name, link.Clients, err)
	}
	return nil
}

// Led is what came of Lead: what is wrong with the ways of some addresses, and with all.
type Led struct {
	addrs map[netip.Addr]error
	all   error
}

// Of says what is wrong with the ways of these addresses, nil if nothing.
func (l Led) Of(addrs []netip.Addr) error {
	errs := []error{l.all}
	for _, a := range addrs {
		errs = append(errs, l.addrs[a])
	}
	return errors.Join(errs...)
}

// All says all that is wrong, nil if nothing is.
func (l Led) All() error { return l.Of(slices.SortedFunc(maps.Keys(l.addrs), netip.Addr.Compare)) }

// Lead has clients' packets go these ways, and no others; the switch is at that MAC address. One that cannot be set
// keeps no other from it, nor those from their ends that are no more.
func (r *Room) Lead(ways []Way, sw net.HardwareAddr) (led Led) {
	led.addrs = map[netip.Addr]error{}
	err := netns.Do(r.File, func() error {
		own, err := netlink.LinkByName(link.Clients)
		if err != nil {
			return err
		}
		if err := nowhereElse(); err != nil {
			return err
		}
		back := map[netip.Addr]bool{}
		from := map[netip.Addr]int{}
		there := families()
		for _, w := range ways {
			l, gone := netlink.LinkByName(w.Port)
			for _, a := range w.Addrs {
				err := gone
				switch {
				case !slices.Contains(there, familyOf(a)):
					continue // the kernel was started without IPv6
				case err == nil:
					table := tableBase + l.Attrs().Index
					back[a], from[a] = true, table
					err = way(l, own, a, table, sw)
				}
				if err != nil {
					led.addrs[a] = fmt.Errorf("lead %v by %s in the sandbox of %s: %w", a, w.Port, link.Clients, err)
				}
			}
		}
		return errors.Join(dropRules(from), dropRoutes(own, back))
	})
	if err != nil {
		led.all = fmt.Errorf("set clients' ways in the sandbox of %s: %w", link.Clients, err)
	}
	return led
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// families are those that the kernel has.
func families() []int {
	if _, err := netlink.RuleList(netlink.FAMILY_V6); err != nil {
		return []int{netlink.FAMILY_V4}
	}
	return []int{netlink.FAMILY_V4, netlink.FAMILY_V6}
}

// nowhereElse leads all that comes out of gvwgc nowhere, but for what is of clients.
func nowhereElse() error {
	for _, f := range families() {
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if f == netlink.FAMILY_V6 {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		err := netlink.RouteReplace(&netlink.Route{Dst: ipNet(all), Table: noTable, Type: unix.RTN_BLACKHOLE})
		if err == nil {
			err = addRule(f, netip.Prefix{}, byNobody, noTable)
		}
		if err != nil {
			return fmt.Errorf("lead what is of no client nowhere: %w", err)
		}
	}
	return nil
}

// addRule leads what comes out of gvwgc from addresses (invalid: from all) by a table.
func addRule(family int, from netip.Prefix, priority, table int) error {
	rule := netlink.NewRule()
	rule.Family, rule.Priority, rule.IifName, rule.Table = family, priority, link.Clients, table
	if from.IsValid() {
		rule.Src = ipNet(from)
	}
	have, err := netlink.RuleList(family)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(have, func(r netlink.Rule) bool {
		return r.Priority == priority && r.Table == table && (!from.IsValid() || r.Src != nil && r.Src.String() == from.String())
	}) {
		return nil
	}
	if err := netlink.RuleAdd(rule); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// way leads what is of a by port, and what is for it to gvwgc.
func way(port, own netlink.Link, a netip.Addr, table int, sw net.HardwareAddr) error {
	next := nextHop(a)
	err := netlink.NeighSet(&netlink.Neigh{LinkIndex: port.Attrs().Index, Family: familyOf(a), State: netlink.NUD_PERMANENT, IP: next.AsSlice(), HardwareAddr: sw})
	if err != nil {
		return err
	}
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if a.Is6() {
		all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	if err := netlink.RouteReplace(&netlink.Route{LinkIndex: port.Attrs().Index, Dst: ipNet(all), Gw: next.AsSlice(), Table: table, Flags: int(netlink.FLAG_ONLINK)}); err != nil {
		return err
	}
	whole := netip.PrefixFrom(a, a.BitLen())
	if err := netlink.RouteReplace(&netlink.Route{LinkIndex: own.Attrs().Index, Dst: ipNet(whole), Scope: netlink.SCOPE_LINK}); err != nil {
		return err
	}
	return addRule(familyOf(a), whole, byClient, table)
}

// dropRules ends the ways of those that are no clients any more, or have another one.
func dropRules(from map[netip.Addr]int) error {
	for _, f := range families() {
		have, err := netlink.RuleList(f)
		if err != nil {
			return err
		}
		for _, r := range have {
			if r.Priority != byClient || r.Src == nil {
				continue
			}
			a, _ := netip.AddrFromSlice(r.Src.IP)
			if table, is := from[a.Unmap()]; is && table == r.Table {
				continue
			}
			if err := netlink.RuleDel(&r); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
	return nil
}

func dropRoutes(own netlink.Link, back map[netip.Addr]bool) error {
	for _, f := range families() {
		have, err := link.Dump(func() ([]netlink.Route, error) { return netlink.RouteList(own, f) })
		if err != nil {
			return err
		}
		for _, r := range have {
			if r.Dst == nil {
				continue
			}
			a, _ := netip.AddrFromSlice(r.Dst.IP)
			if ones, bits := r.Dst.Mask.Size(); ones != bits || back[a.Unmap()] {
				continue
			}
			if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return nil
}
