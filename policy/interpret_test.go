package policy

import (
	"net/netip"
	"slices"
)

// interpreted is what a switch does that is given the compiled rules: the 30 lines that say what
// they mean.
func interpreted(c Compiled, answers []Answer, subject string, peer netip.Addr, d Direction, proto uint8, port uint16) (allowed bool) {
	i := slices.IndexFunc(c.Guards, func(g Guard) bool { return g.Endpoint == subject })
	if i < 0 || d == Ingress && !c.Guards[i].Ingress || d == Egress && !c.Guards[i].Egress {
		return true
	}
	own, other := classOf(c, c.Guards[i].Addrs[0]), classOf(c, peer)
	ceiling := priorityEnd
	rules := slices.Clone(c.Rules)
	for _, o := range c.Openings(answers) {
		if o.Endpoint == subject && !o.Past {
			rules = append(rules, CompiledRule{
				Direction: Egress, Priority: o.Priority, Action: o.Action, Subjects: []uint32{own},
				Blocks: []netip.Prefix{netip.PrefixFrom(o.To, o.To.BitLen())}, AnyPort: o.AnyPort, Ports: o.Ports,
			})
		}
	}
next:
	var best *CompiledRule
	for i := range rules {
		r := &rules[i]
		if r.Direction == d && r.Priority <= ceiling && (best == nil || r.Priority > best.Priority) && slices.Contains(r.Subjects, own) &&
			(r.AnyPeer || slices.Contains(r.Peers, other) || slices.ContainsFunc(r.Blocks, func(b netip.Prefix) bool { return b.Contains(peer) })) &&
			(r.AnyPort || slices.ContainsFunc(r.Ports, func(p PortRange) bool { return p.contains(proto, port) })) {
			best = r
		}
	}
	if best != nil && best.Action == Pass {
		ceiling = PriorityNetworkPolicy
		goto next
	}
	return best != nil && best.Action == Accept
}

func classOf(c Compiled, a netip.Addr) uint32 {
	for _, cl := range c.Classes {
		if slices.Contains(cl.Addrs, a) {
			return cl.ID
		}
	}
	for _, cl := range c.Classes {
		if slices.ContainsFunc(cl.Ranges, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return cl.ID
		}
	}
	return 0
}
