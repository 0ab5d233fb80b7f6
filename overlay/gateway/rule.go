package gateway

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// Table is that of our routes, which are in one of their own, which a rule looks up before the main
// one. In the main table the cluster's CIDR would overlap every prefix that a
// network without --subnet is offered, and Docker Engine up to 27 asks for another
// one for ever, whatever the address space (libnetwork/network.go,
// requestPoolHelper).
const (
	Table    = 0x6776 // "gv"
	priority = 32000  // before main (32766)
)

func rule(family, table, priority int) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Table, r.Priority = family, table, priority
	return r
}

// ensureRules makes the rules of the families in use.
func ensureRules(v6 bool) error {
	if err := ensureRule(unix.AF_INET, Table, priority); err != nil {
		return err
	}
	if v6 {
		return ensureRule(unix.AF_INET6, Table, priority)
	}
	if list, err := shutNow(unix.AF_INET6, Table); err == nil && len(list) > 0 {
		return nil // these need it
	}
	return removeRule(unix.AF_INET6, Table, priority)
}

// ensureRule makes a rule of a family, unless it is there.
func ensureRule(family, table, priority int) error {
	have, err := rulesOf(family, pair{table, priority})
	if err != nil {
		return fmt.Errorf("list routing rules: %w", err)
	}
	if len(have) > 0 {
		return nil
	}
	if err := netlink.RuleAdd(rule(family, table, priority)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add the routing rule for table %d: %w", table, err)
	}
	return nil
}

// Remove removes the routing rules and the routes of Shut; others, and addresses, go with gv0. What is not
// there is no error.
func (g *Gateway) Remove() error {
	errs := []error{g.Nowhere.Set(nil)}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		errs = append(errs, removeRule(family, Table, priority))
	}
	return errors.Join(errs...)
}

func removeRule(family, table, priority int) error {
	// The kernel would take one that is about some packets only for it.
	if have, err := rulesOf(family, pair{table, priority}); err == nil && len(have) == 0 {
		return nil
	}
	err := netlink.RuleDel(rule(family, table, priority))
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("remove the routing rule for table %d: %w", table, err)
	}
	return nil
}

// rulesOf are those of a pair that are ours by their form: all packets are led to the table. A rule of the same priority and table that
// is about some packets only is an administrator's.
func rulesOf(family int, p pair) ([]netlink.Rule, error) {
	list, err := link.Dump(func() ([]netlink.Rule, error) {
		return netlink.RuleListFiltered(family, rule(family, p.table, p.priority), netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PRIORITY)
	})
	return slices.DeleteFunc(list, func(r netlink.Rule) bool { return !ofAll(r) }), err
}

// ofAll reports whether the rule is about all packets.
func ofAll(r netlink.Rule) bool {
	return !r.Invert && r.Src == nil && r.Dst == nil && r.IifName == "" && r.OifName == "" && r.Mark == 0 && r.Tos == 0 &&
		r.IPProto <= 0 && r.Sport == nil && r.Dport == nil && r.UIDRange == nil
}
