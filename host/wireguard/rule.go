package wireguard

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// ahead is the priority of our rule: before those of all other programs, after the kernel's first one.
const ahead = 1

// rule has the main table asked first where packets to the hosts inside go. Else a rule of another program's that comes
// before the main one, as Tailscale's for an exit node, would lead them elsewhere, where they may not leave. Nobody but
// grapevine has these addresses, so it takes nothing from anybody.
func (d Device) rule() *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Table, r.Priority, r.Dst = netlink.FAMILY_V6, unix.RT_TABLE_MAIN, ahead, ipNet(d.Range)
	return r
}

// first makes the rule, if it is not there.
func (d Device) first() error {
	have, err := link.Dump(func() ([]netlink.Rule, error) {
		return netlink.RuleListFiltered(netlink.FAMILY_V6, d.rule(), netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PRIORITY|netlink.RT_FILTER_DST)
	})
	if err == nil && len(have) > 0 {
		return nil
	}
	if err == nil {
		err = netlink.RuleAdd(d.rule())
	}
	// A kernel without rules has none of others either.
	if err != nil && !errors.Is(err, unix.EEXIST) && !noRoute(err) {
		return fmt.Errorf("have packets to %v looked up before other programs' rules: %w", d.Range, err)
	}
	return nil
}

// unfirst removes the rule, and reports whether it was there.
func (d Device) unfirst() (was bool, err error) {
	err = netlink.RuleDel(d.rule())
	if err == nil || errors.Is(err, unix.ENOENT) || noRoute(err) {
		return err == nil, nil
	}
	return false, fmt.Errorf("remove the routing rule of %v: %w", d.Range, err)
}
