package nat

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A container could send from the number of an exposed port, by UDP to a client's known port, and NAT would keep the
// number: what that client then sends to the exposed port is, for conntrack, the answer, and goes to the container. So
// nothing leaves by an exposed port. NAT takes a free one too where two containers send from one port to the same place;
// each gap between the exposed ones stays within itself, then.

// gap is a range of ports between exposed ones, both ends in it.
type gap struct{ from, to uint16 }

func (s gap) String() string { return fmt.Sprintf("%d-%d", s.from, s.to) }

func (s gap) len() int { return int(s.to) - int(s.from) + 1 }

var transports = []string{"tcp", "udp"}

const (
	// narrow is a gap in which ports may run out: what is sent from there leaves by the widest one, if any is wider.
	narrow = 64
	// maxGaps bounds the rules, however many ports are exposed. What is sent from further gaps leaves by the widest one.
	maxGaps = 8
	// privileged ports end before this one. Others' ports do not become privileged.
	privileged = 1024
)

// gaps returns the ranges of ports that are not exposed and stay within themselves, the widest first, and by which one
// all else leaves: unprivileged ports, if any is left. Both are empty only if every port is exposed.
func gaps(exposed []uint16) (own []gap, rest gap) {
	all := free(exposed)
	if len(all) == 0 {
		return nil, gap{}
	}
	rest = all[max(0, slices.IndexFunc(all, func(s gap) bool { return s.from >= privileged }))]
	wide := slices.IndexFunc(all, func(s gap) bool { return s.len() < narrow })
	if wide <= 0 { // all are wide, or none is
		wide = len(all)
	}
	return all[:min(wide, maxGaps)], rest
}

// free returns all ranges of ports that are not exposed, the widest first.
func free(exposed []uint16) (all []gap) {
	ends := slices.Sorted(slices.Values(exposed))
	next := 1
	until := func(end int) { // not in it
		if end > next {
			all = append(all, gap{uint16(next), uint16(end - 1)})
		}
	}
	cut := false
	for _, p := range append(slices.Clone(ends), 0) {
		end := int(p)
		if p == 0 {
			end = 1 << 16
		}
		if !cut && end >= privileged {
			until(privileged)
			next, cut = max(next, privileged), true
		}
		until(end)
		next = end + 1
	}
	slices.SortStableFunc(all, func(a, b gap) int { return cmp.Compare(b.len(), a.len()) })
	return all
}

// masquerade are the rules that have what matches leave by this host's address, and by no exposed port.
func (cfg Config) masquerade(match string) []string {
	return cfg.leave(match, "MASQUERADE", func(s gap) string { return "MASQUERADE --to-ports " + s.String() })
}

// translate are the rules that have what matches leave by an address, and by no exposed port.
func (cfg Config) translate(match string, to netip.Addr) []string {
	return cfg.leave(match, "SNAT --to-source "+to.String(), func(s gap) string {
		if to.Is6() {
			return fmt.Sprintf("SNAT --to-source [%v]:%v", to, s)
		}
		return fmt.Sprintf("SNAT --to-source %v:%v", to, s)
	})
}

func (cfg Config) leave(match, plain string, within func(gap) string) (rules []string) {
	if len(cfg.Exposed) > 0 {
		own, rest := gaps(cfg.Exposed)
		target := "ACCEPT" // as it is, so that no answer comes, if shut did not drop it
		if rest != (gap{}) {
			target = within(rest)
		}
		for _, proto := range transports {
			for _, s := range own {
				rules = append(rules, fmt.Sprintf("%s -p %s -m %[2]s --sport %d:%d -j %s", match, proto, s.from, s.to, within(s)))
			}
			rules = append(rules, fmt.Sprintf("%s -p %s -j %s", match, proto, target))
		}
	}
	return append(rules, match+" -j "+plain)
}

// shut are the rules of filtering for a host of which every port is exposed: what begins has none to leave by. The table
// nat takes no rule that drops.
func (cfg Config) shut(sources []netip.Prefix) (rules []string) {
	if len(cfg.Exposed) == 0 {
		return nil
	}
	if _, rest := gaps(cfg.Exposed); rest != (gap{}) {
		return nil
	}
	for _, p := range sources {
		for _, proto := range transports {
			rules = append(rules, fmt.Sprintf("-s %v -i %s ! -o %[2]s -p %s -m conntrack --ctstate NEW -j DROP", p, cfg.Interface, proto))
		}
	}
	return rules
}

// claims are datagrams of containers that leave by a port that has been exposed since. It matches what conntrack knows
// of them: they leave by another one from then on.
type claims struct {
	inside []netip.Prefix
	ports  []uint16
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (c claims) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	from, translated := tuple(flow.Forward.SrcIP, 0).Addr(), tuple(flow.Reverse.DstIP, flow.Reverse.DstPort)
	return flow.Forward.Protocol == unix.IPPROTO_UDP && from != translated.Addr() && slices.Contains(c.ports, translated.Port()) &&
		slices.ContainsFunc(c.inside, func(p netip.Prefix) bool { return p.Contains(from) })
}

// endClaims has what claims a port that was not exposed before begin anew, once the rules are in place.
func (n *NAT) endClaims() error {
	fresh := slices.DeleteFunc(slices.Clone(n.cfg.Exposed), func(p uint16) bool { return slices.Contains(n.claimed, p) })
	if len(fresh) > 0 {
		if err := endAll(n.cfg.CIDRs, claims{n.cfg.CIDRs, fresh}); err != nil {
			return err
		}
	}
	n.claimed = n.cfg.Exposed
	return nil
}
