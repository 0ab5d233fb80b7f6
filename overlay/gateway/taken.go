package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// Taken is a routing rule of somebody else's that comes before ours and leads packets
// elsewhere that are gv0's.
type Taken struct {
	Rule    string         // for people
	At      int            // its priority
	V6      bool           // it is one of IPv6
	Leads   string         // where to, for people
	Table   int            // whose route it is; 0: the rule drops
	Of      []Way          // which packets
	Subnets []netip.Prefix // in order
}

// Way is where a packet to a container comes from.
type Way int

// The ways, which are asked for one by one: rules may tell them apart.
const (
	FromHost      Way = iota // what the host itself sends, from the address that the route says
	FromAddress              // what it sends from its underlay address
	FromInterface            // what comes in at the underlay's interface: published ports
	ToOutside                // what containers send to the outside, by gv0
)

// outside are addresses to which nobody has a route of their own: they stand for all of the outside. Nothing is sent there.
var outside = map[int]netip.Addr{unix.AF_INET: netip.MustParseAddr("1.1.1.1"), unix.AF_INET6: netip.MustParseAddr("2606:4700:4700::1111")}

// maxAsked bounds how many subnets the kernel is asked for.
const maxAsked = 512

// TakenBefore asks the kernel where packets to the subnets go, which Ensure leads to gv0, and
// returns what leads them elsewhere, by priority. dev is the underlay's interface. That our own
// rule or route is not there, Missing says.
func TakenBefore(subnets []netip.Prefix, dev string) (list []Taken) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rules := rulesBefore(family, Table, priority)
		if len(rules) == 0 {
			continue
		}
		asker := asker{rules, family, dev, addrOf(dev, family), Table, Port}
		asked := 0
		for _, s := range subnets {
			if s.Addr().Is4() != (family == unix.AF_INET) {
				continue
			}
			if asked++; asked > maxAsked {
				break
			}
			for _, way := range []Way{FromHost, FromAddress, FromInterface} {
				if t, taken := asker.ask(s, way); taken {
					list = add(list, t, s, way)
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Taken) int { return cmp.Compare(a.At, b.At) })
	return list
}

// TakenToOutside asks the kernel where what containers of the subnets send to the outside goes on from gv0, and returns the rules that drop
// it. One that leads it to another router is what an administrator has such rules for.
func TakenToOutside(subnets []netip.Prefix) (list []Taken) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		all, err := link.Dump(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
		if err != nil {
			continue
		}
		rules := slices.DeleteFunc(all, func(r netlink.Rule) bool {
			return r.Priority >= priorityOfMain || r.Table == unix.RT_TABLE_LOCAL || slices.Contains(Tables(), r.Table)
		})
		if len(rules) == 0 {
			continue
		}
		asker, asked := asker{rules: rules, family: family}, 0
		for _, s := range subnets {
			if s.Addr().Is4() != (family == unix.AF_INET) {
				continue
			}
			if asked++; asked > maxAsked {
				break
			}
			if t, taken := asker.ask(s, ToOutside); taken && t.Table == 0 {
				list = add(list, t, s, ToOutside)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Taken) int { return cmp.Compare(a.At, b.At) })
	return list
}

// WayOut reports whether this host has a route to the outside of a family. A rule that drops is no lack of one.
func WayOut(v6 bool) bool {
	family := unix.AF_INET
	if v6 {
		family = unix.AF_INET6
	}
	_, err := netlink.RouteGet(outside[family].AsSlice())
	return !errors.Is(err, unix.ENETUNREACH)
}

// priorityOfMain is that of the rule by which the kernel looks up the main table.
const priorityOfMain = 32766

// lastOfOurs is the last priority of rules about VTEPs inside what encrypts.
const lastOfOurs = 2

// TakenFromMain is TakenBefore of what the host itself sends to an IPv6 prefix that the main table leads to an interface. The first
// rules, if they are about that prefix and no other, are ours (package wireguard): while the interface is gone they lead nowhere.
func TakenFromMain(to netip.Prefix, dev string) []Taken {
	rules := slices.DeleteFunc(rulesBefore(unix.AF_INET6, unix.RT_TABLE_MAIN, priorityOfMain), func(r netlink.Rule) bool {
		return r.Priority <= lastOfOurs && r.Dst != nil && r.Dst.String() == to.String()
	})
	asker := asker{rules: rules, family: unix.AF_INET6, table: unix.RT_TABLE_MAIN, leads: dev}
	if t, taken := asker.ask(to, FromHost); taken && len(rules) > 0 {
		return add(nil, t, to, FromHost)
	}
	return nil
}

func add(list []Taken, t Taken, s netip.Prefix, way Way) []Taken {
	i := slices.IndexFunc(list, func(o Taken) bool { return o.Rule == t.Rule && o.At == t.At && o.V6 == t.V6 })
	if i < 0 {
		list, i = append(list, t), len(list)
	}
	if !slices.Contains(list[i].Subnets, s) {
		list[i].Subnets = append(list[i].Subnets, s)
	}
	if !slices.Contains(list[i].Of, way) {
		list[i].Of = append(list[i].Of, way)
	}
	return list
}

// rulesBefore are those of a family that are looked at before the one of a table, in their order, but for
// the kernel's first one (local) and ones that lead to the table.
func rulesBefore(family, table, priority int) (list []netlink.Rule) {
	all, err := link.Dump(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
	if err != nil {
		return nil
	}
	for _, r := range all {
		if r.Table == table && r.Src == nil && r.Dst == nil && r.IifName == "" && r.Mark == 0 {
			break // ours, or one that the administrator has put before the others
		}
		if r.Priority < priority && r.Table != unix.RT_TABLE_LOCAL {
			list = append(list, r)
		}
	}
	return list
}

// addrOf is an address of the interface, invalid: it has none.
func addrOf(dev string, family int) netip.Addr {
	l, err := netlink.LinkByName(dev)
	if err != nil {
		return netip.Addr{}
	}
	list, _ := link.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(l, family) })
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.Unmap().IsGlobalUnicast() {
			return ip.Unmap()
		}
	}
	return netip.Addr{}
}

// asker asks for the routes of one family.
type asker struct {
	rules  []netlink.Rule
	family int
	dev    string
	addr   netip.Addr
	table  int    // where the route is that is wanted
	leads  string // the interface that it leads to
}

func (a asker) ask(subnet netip.Prefix, way Way) (t Taken, taken bool) {
	to := subnet.Addr()
	for range 3 { // the gateway's is the first one, and the host's own
		if next := to.Next(); subnet.Contains(next) {
			to = next
		}
	}
	var opts *netlink.RouteGetOptions
	from, iif := netip.Addr{}, "lo"
	switch {
	case way == ToOutside:
		from, to, iif = to, outside[a.family], Port
		opts = &netlink.RouteGetOptions{SrcAddr: from.AsSlice(), Iif: iif}
	case way != FromHost && !a.addr.IsValid():
		return t, false
	case way == FromAddress:
		from = a.addr
		opts = &netlink.RouteGetOptions{SrcAddr: from.AsSlice()}
	case way == FromInterface:
		from, iif = neighbour(a.addr), a.dev
		opts = &netlink.RouteGetOptions{SrcAddr: from.AsSlice(), Iif: iif}
	}
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), opts)
	table, leads := 0, ""
	if err == nil && len(routes) > 0 {
		r := routes[0]
		if r.Table == a.table || r.Type == unix.RTN_LOCAL || link.Name(r.LinkIndex) == a.leads {
			return t, false
		}
		table, leads = r.Table, leadsTo(r)
	} else if err != nil && !drops(err) {
		return t, false
	}
	for _, r := range a.rules {
		if !matches(r, from, to, iif) || !a.decides(r, table, to) {
			continue
		}
		return Taken{Rule: describe(r, err), At: r.Priority, V6: a.family == unix.AF_INET6, Leads: cmp.Or(leads, "nowhere"), Table: table}, true
	}
	return t, false
}

// neighbour is an address beside a, that is most likely on the same link.
func neighbour(a netip.Addr) netip.Addr {
	b := a.AsSlice()
	b[len(b)-1] ^= 3
	n, _ := netip.AddrFromSlice(b)
	return n
}

// drops reports whether the error is what the kernel says of routes and rules that drop.
func drops(err error) bool {
	for _, e := range []error{unix.EACCES, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EINVAL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func leadsTo(r netlink.Route) string {
	out := "to " + link.Name(r.LinkIndex)
	if gw, ok := netip.AddrFromSlice(r.Gw); ok {
		out += " via " + gw.Unmap().String()
	}
	return out
}

func matches(r netlink.Rule, from, to netip.Addr, iif string) bool {
	is := r.Mark == 0 && r.IPProto <= 0 && r.OifName == "" && r.UIDRange == nil && r.Sport == nil && r.Dport == nil &&
		(r.IifName == "" || r.IifName == iif) && in(r.Src, from) && in(r.Dst, to)
	return is != r.Invert
}

func in(n *net.IPNet, a netip.Addr) bool {
	if n == nil {
		return true
	}
	ones, _ := n.Mask.Size()
	return ones == 0 || a.IsValid() && n.Contains(a.AsSlice())
}

// decides reports whether the rule is the one that led to a table, or that dropped (0).
func (a asker) decides(r netlink.Rule, table int, to netip.Addr) bool {
	switch {
	case table != 0:
		return r.Table == table
	case r.Table <= 0:
		return r.Goto <= 0 && r.Priority != ofVRFs
	}
	routes, _ := link.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(a.family, &netlink.Route{Table: r.Table}, netlink.RT_FILTER_TABLE)
	})
	return slices.ContainsFunc(routes, func(x netlink.Route) bool { return isDrop(x.Type) && in(x.Dst, to) })
}

// ofVRFs is the priority of the rule that the kernel makes for VRFs, which names no table either.
const ofVRFs = 1000

func isDrop(kind int) bool {
	return slices.Contains([]int{unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT}, kind)
}

// describe is the rule as ip(8) has it; err is what the kernel said of what it decided.
func describe(r netlink.Rule, err error) string {
	out := ""
	if r.Invert {
		out += "not "
	}
	if r.Src != nil {
		out += fmt.Sprintf("from %s ", r.Src)
	}
	if r.Dst != nil {
		out += fmt.Sprintf("to %s ", r.Dst)
	}
	if r.Mark != 0 {
		out += fmt.Sprintf("fwmark %#x ", r.Mark)
	}
	if r.IifName != "" {
		out += "iif " + r.IifName + " "
	}
	switch {
	case r.Table > 0:
	case errors.Is(err, unix.EACCES):
		return out + "prohibit"
	case errors.Is(err, unix.EINVAL):
		return out + "blackhole"
	default:
		return out + "unreachable"
	}
	if r.Table == unix.RT_TABLE_MAIN {
		return out + "lookup main"
	}
	return out + fmt.Sprintf("lookup %d", r.Table)
}
