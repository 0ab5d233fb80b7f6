package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// behind is the metric of routes that lead nowhere: behind all that lead to gv0.
const behind = 1<<31 - 1

// nowhereTable has these routes once more, and nothing else, behind a rule of its own: who takes away our rule, or empties our table, leaves it.
const (
	nowhereTable    = Table + 1
	nowherePriority = priority + 1
)

// pair is a table of ours, and the rule that leads to it.
type pair struct{ table, priority int }

var pairs = []pair{{Table, priority}, {nowhereTable, nowherePriority}}

// Tables are those of our routes.
func Tables() []int { return []int{Table, nowhereTable} }

// Nowhere is what Shut is to have lead nowhere, and what came of that. Others may take it away: a Gateway that has it names
// what of it is gone, and puts it back.
type Nowhere struct {
	mu     sync.Mutex
	want   []netip.Prefix
	failed error
}

// Set is Shut.
func (n *Nowhere) Set(prefixes []netip.Prefix) error {
	if n == nil {
		return Shut(prefixes)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.want = slices.Clone(prefixes)
	n.failed = Shut(n.want)
	return n.failed
}

// Failed is what came of the last Set, or of putting back what was gone.
func (n *Nowhere) Failed() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

func (n *Nowhere) mend() error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.want) == 0 {
		return nil
	}
	n.failed = Shut(n.want)
	return n.failed
}

// missing says what of it is gone, for people.
func (n *Nowhere) missing() (list []string) {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for family, name := range map[int]string{unix.AF_INET: "ip rule", unix.AF_INET6: "ip -6 rule"} {
		want := ofFamily(n.want, family)
		if len(want) == 0 || family == unix.AF_INET6 && !hostHasIPv6() {
			continue
		}
		for _, p := range pairs {
			list = append(list, missingRule(family, name, p)...)
			have, err := shutNow(family, p.table)
			if err != nil {
				continue
			}
			gone := slices.DeleteFunc(slices.Clone(want), func(w netip.Prefix) bool { return slices.Contains(have, w) })
			list = append(list, several(fmt.Sprintf("the routing table %d, which keeps what is for encrypted networks from leaving without %%s, has no unreachable route to %%v", p.table), gone)...)
		}
	}
	return list
}

func ofFamily(prefixes []netip.Prefix, family int) (list []netip.Prefix) {
	for _, p := range prefixes {
		if p.Addr().Is4() == (family == unix.AF_INET) {
			list = append(list, p.Masked())
		}
	}
	return list
}

// Shut has these prefixes, and no others, lead nowhere where no route leads them to gv0: what is for encrypted networks' containers does not
// take the host's default route while gv0, its rule or its routes are gone, whatever becomes of the rules that drop it there. The routes stay
// when gv0 goes.
func Shut(prefixes []netip.Prefix) error {
	var errs []error
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if err := shut(family, ofFamily(prefixes, family)); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) { // without IPv6 nothing of it leaves
			errs = append(errs, fmt.Errorf("have what is for encrypted networks lead nowhere without %s: %w", Port, err))
		}
	}
	return errors.Join(errs...)
}

func shut(family int, want []netip.Prefix) error {
	for _, at := range pairs {
		if err := shutBy(family, at.table, at.priority, want); err != nil {
			return err
		}
	}
	if len(want) > 0 {
		return nil
	}
	return removeRule(family, nowhereTable, nowherePriority)
}

// shutBy does so in one table, to which a rule leads.
func shutBy(family, table, priority int, want []netip.Prefix) error {
	have, err := shutNow(family, table)
	if err != nil {
		return err
	}
	if len(want) > 0 {
		if family == unix.AF_INET6 && !hostHasIPv6() {
			return nil
		}
		if err := ensureRule(family, table, priority); err != nil {
			return err
		}
	}
	for _, p := range want {
		if slices.Contains(have, p) {
			continue
		}
		if err := netlink.RouteReplace(nowhere(p, table)); err != nil {
			return fmt.Errorf("%v: %w", p, err)
		}
	}
	for _, p := range have {
		if slices.Contains(want, p) {
			continue
		}
		if err := netlink.RouteDel(nowhere(p, table)); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("%v no more: %w", p, err)
		}
	}
	return nil
}

func nowhere(p netip.Prefix, table int) *netlink.Route {
	return &netlink.Route{Dst: ipNet(p), Table: table, Type: unix.RTN_UNREACHABLE, Priority: behind}
}

// shutNow are the prefixes that lead nowhere now.
func shutNow(family, table int) (list []netip.Prefix, err error) {
	routes, err := link.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Table: table, Type: unix.RTN_UNREACHABLE}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	})
	for _, r := range routes {
		if r.Dst == nil || r.Priority != behind {
			continue
		}
		dst, _ := netip.AddrFromSlice(r.Dst.IP)
		ones, _ := r.Dst.Mask.Size()
		list = append(list, netip.PrefixFrom(dst.Unmap(), ones))
	}
	return list, err
}
