package nat

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/coreos/go-iptables/iptables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/conntrack"
)

// servedRules come before all others: what is served leaves by its address, whether this host has it now or not.
// Without it no answer comes back, and nothing leaves by another one.
func (cfg Config) servedRules(f iptables.Protocol) (rules []string) {
	for _, s := range Narrowest(cfg.served) {
		if is(f, s.Address) && is(f, s.Subnet.Addr()) {
			rules = append(rules, cfg.translate(fmt.Sprintf("-s %v ! -o %s", s.Subnet.Masked(), cfg.Interface), s.Address)...)
		}
	}
	return rules
}

// untranslated stops what conntrack makes nothing of, such as what comes late to a connection that has ended: no rule
// of the table nat sees it, so that it would leave with the container's own address.
func (cfg Config) untranslated(f iptables.Protocol) (rules []string) {
	for _, s := range cfg.served {
		if is(f, s.Address) && is(f, s.Subnet.Addr()) {
			rules = append(rules, fmt.Sprintf("-s %v -i %s ! -o %[2]s -m conntrack --ctstate INVALID -j DROP", s.Subnet.Masked(), cfg.Interface))
		}
	}
	return rules
}

// Narrowest are sources in the order in which they count: those of parts of a subnet before the whole.
func Narrowest(sources []Source) []Source {
	return slices.SortedStableFunc(slices.Values(sources), func(a, b Source) int { return cmp.Compare(b.Subnet.Bits(), a.Subnet.Bits()) })
}

// sourceOf is by which address a container leaves; invalid: by none of these.
func sourceOf(narrowest []Source, from netip.Addr) netip.Addr {
	if i := slices.IndexFunc(narrowest, func(s Source) bool { return s.Subnet.Contains(from) }); i >= 0 {
		return narrowest[i].Address
	}
	return netip.Addr{}
}

// Serve declares by which addresses subnets leave, whoever of the cluster has a container in them, and has what leaves
// by another address now begin anew. It is in force on return, or from the first Set on.
func (n *NAT) Serve(sources []Source) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.cfg.served
	if slices.Equal(old, sources) && (n.applied || !n.set) {
		return nil
	}
	n.cfg.served = slices.Clone(sources)
	if !n.set {
		return nil
	}
	if err := n.apply(); err != nil {
		return err
	}
	moved := servedBefore{now: Narrowest(sources)}
	for _, s := range slices.Concat(old, sources) {
		if slices.Contains(old, s) != slices.Contains(sources, s) {
			moved.subnets = append(moved.subnets, s.Subnet)
		}
	}
	return moved.forget()
}

// servedBefore are subnets that leave by another address from now on. It matches what conntrack knows of them, but for
// what leaves as it is to by a source of a part of the subnet.
type servedBefore struct {
	subnets []netip.Prefix
	now     []Source
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s servedBefore) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	from, translated := tuple(flow.Forward.SrcIP, 0).Addr(), tuple(flow.Reverse.DstIP, 0).Addr()
	return from != translated && translated != sourceOf(s.now, from) && slices.ContainsFunc(s.subnets, func(p netip.Prefix) bool { return p.Contains(from) })
}

func (s servedBefore) forget() error { return endAll(s.subnets, s) }

// strays are connections of what is served that leave by another address than it is to: they began while our rules
// were not there, or behind another program's. It matches what conntrack knows of them.
type strays struct {
	served []Source
	here   map[netip.Addr]bool // this host's addresses: who speaks to them leaves by none
	inside []netip.Prefix      // nor does who speaks to a container
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s strays) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	from, translated, to := tuple(flow.Forward.SrcIP, 0).Addr(), tuple(flow.Reverse.DstIP, 0).Addr(), tuple(flow.Reverse.SrcIP, 0).Addr()
	is := sourceOf(s.served, from)
	return is.IsValid() && is != translated &&
		!s.here[to] && !slices.ContainsFunc(s.inside, func(p netip.Prefix) bool { return p.Contains(to) })
}

// forgetStrays has them begin anew.
func (cfg Config) forgetStrays() error {
	if len(cfg.served) == 0 {
		return nil
	}
	here, err := localAddrs()
	if err != nil {
		return err
	}
	s := strays{Narrowest(cfg.served), here, slices.Concat(cfg.CIDRs, cfg.Hosts)}
	var subnets []netip.Prefix
	for _, o := range cfg.served {
		subnets = append(subnets, o.Subnet)
	}
	return endAll(subnets, s)
}

// endAll makes conntrack forget what of these subnets a filter matches: the address of a connection is chosen once.
// Without its netlink interface connections that are open end by their own timeouts: no error.
func endAll(subnets []netip.Prefix, which netlink.CustomConntrackFilter) error {
	var errs []error
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		if !slices.ContainsFunc(subnets, func(p netip.Prefix) bool { return p.Addr().Is4() == (family == unix.AF_INET) }) {
			continue
		}
		err := conntrack.Forget(family, which)
		if err != nil && !errors.Is(err, unix.EPROTONOSUPPORT) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, netlink.ErrDumpInterrupted) {
			errs = append(errs, fmt.Errorf("have connections that leave by another address end: %w", err))
		}
	}
	return errors.Join(errs...)
}
