package wireguard

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// ahead is the priority of our first rule: before those of all other programs, after the kernel's first one. The second one
// comes right behind it.
const ahead = 1

// rules have the main table asked first where packets to the hosts inside go. Else a rule of another program's that comes
// before the main one, as Tailscale's for an exit node, would lead them elsewhere, where they may not leave. Nobody but
// grapevine has these addresses, so it takes nothing from anybody. Of the main table counts what is about these addresses and no others, and
// behind that they lead nowhere: also where somebody has removed all routes to them, and nothing but a default route is left.
func (d Device) rules() []*netlink.Rule {
	main, nowhere := netlink.NewRule(), netlink.NewRule()
	main.Family, main.Table, main.Priority, main.Dst, main.SuppressPrefixlen = netlink.FAMILY_V6, unix.RT_TABLE_MAIN, ahead, ipNet(d.Range), d.Range.Bits()-1
	nowhere.Family, nowhere.Type, nowhere.Priority, nowhere.Dst = netlink.FAMILY_V6, unix.RTN_UNREACHABLE, ahead+1, ipNet(d.Range)
	return []*netlink.Rule{nowhere, main}
}

// first makes the rules, if they are not there.
func (d Device) first() error {
	have, err := link.Dump(func() ([]netlink.Rule, error) {
		return netlink.RuleListFiltered(netlink.FAMILY_V6, &netlink.Rule{Dst: ipNet(d.Range)}, netlink.RT_FILTER_DST)
	})
	for _, want := range d.rules() {
		if err == nil && !slices.ContainsFunc(have, func(r netlink.Rule) bool { return alike(r, *want) }) {
			err = netlink.RuleAdd(want)
		}
		// A kernel without rules has none of others either.
		if err != nil && !errors.Is(err, unix.EEXIST) && !noRoute(err) {
			return fmt.Errorf("have packets to %v looked up before other programs' rules: %w", d.Range, err)
		}
		err = nil
	}
	return d.unled(have)
}

func alike(r, want netlink.Rule) bool {
	return r.Priority == want.Priority && r.Table == max(want.Table, 0) && r.SuppressPrefixlen == want.SuppressPrefixlen && (want.Type == 0 || r.Type == want.Type)
}

// unled removes those of an older agent, which leads by the default route where there is no other.
func (d Device) unled(have []netlink.Rule) error {
	for _, r := range have {
		if r.Priority != ahead || r.Table != unix.RT_TABLE_MAIN || r.SuppressPrefixlen >= 0 {
			continue
		}
		r.Family = netlink.FAMILY_V6
		if err := netlink.RuleDel(&r); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove an older agent's routing rule of %v: %w", d.Range, err)
		}
	}
	return nil
}

// unfirst removes the rules, and reports whether one was there.
func (d Device) unfirst() (was bool, err error) {
	for _, r := range d.rules() {
		r.SuppressPrefixlen = -1 // an older agent's as well
		switch err := netlink.RuleDel(r); {
		case err == nil:
			was = true
		case !errors.Is(err, unix.ENOENT) && !noRoute(err):
			return was, fmt.Errorf("remove the routing rules of %v: %w", d.Range, err)
		}
	}
	return was, nil
}
