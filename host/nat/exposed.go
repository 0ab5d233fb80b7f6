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

const (
	// narrow is a gap in which ports may run out: what is sent from there leaves by the widest one.
	narrow = 64
	// maxGaps bounds the rules, however many ports are exposed. What is sent from further gaps leaves by the widest one.
	maxGaps = 8
	// privileged ports end before this one. Others' ports do not become privileged.
	privileged = 1024
)

// gaps returns the ranges of ports that are not exposed, the widest first, and none if the exposed ones leave none.
func gaps(exposed []uint16) (all []gap) {
	ends := slices.Sorted(slices.Values(exposed))
	next := 1
	until := func(end int) { // not in it
		if end-next >= narrow {
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
	return all[:min(len(all), maxGaps)]
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
	if all := gaps(cfg.Exposed); len(cfg.Exposed) > 0 && len(all) > 0 {
		for _, proto := range []string{"tcp", "udp"} {
			for _, s := range all {
				rules = append(rules, fmt.Sprintf("%s -p %s -m %[2]s --sport %d:%d -j %s", match, proto, s.from, s.to, within(s)))
			}
			rules = append(rules, fmt.Sprintf("%s -p %s -j %s", match, proto, within(all[0])))
		}
	}
	return append(rules, match+" -j "+plain)
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

// endClaims has what claims a port that was not exposed before begin anew.
func (cfg Config) endClaims(before []uint16) error {
	fresh := slices.DeleteFunc(slices.Clone(cfg.Exposed), func(p uint16) bool { return slices.Contains(before, p) })
	if len(fresh) == 0 {
		return nil
	}
	return endAll(cfg.CIDRs, claims{cfg.CIDRs, fresh})
}
