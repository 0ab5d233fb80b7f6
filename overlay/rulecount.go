package overlay

import (
	"context"
	"net/netip"

	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// RuleCounts are what the switch counted for the rules that it enforces.
type RuleCounts struct {
	Rules []RuleCount
	// Unmatched is what no rule let endpoints send or be sent, of all their addresses.
	Unmatched []UnmatchedCount
}

// RuleCount is one rule's.
type RuleCount struct {
	Label  string   // which policy's it is: shop/db ingress[0]
	Also   []string // equal ones of other policies that it stands for
	Denies bool     // else it accepts
	pipeline.RuleCount
}

// UnmatchedCount is one endpoint's.
type UnmatchedCount struct {
	Endpoint string
	Egress   bool // what it was not let send; else what it was not let be sent
	pipeline.Count
}

// CountRules reads what the switch counted for rules, and the fast path of connections that they had let through. Counters of a
// rule begin with its flows: when the rule changes, or the switch begins anew.
func (o *Overlay) CountRules(ctx context.Context) (out RuleCounts, err error) {
	flows, counts, err := ruleFlows(ctx, o.cfg.Bridge)
	if err != nil {
		return out, err
	}
	rules, rest := pipeline.CountRules(flows, counts)
	if o.cfg.Fast != nil {
		carried, err := o.cfg.Fast.Tally()
		if err != nil {
			return out, err
		}
		for id, n := range carried.Rules {
			r := rules[id]
			r.Passed.Packets, r.Passed.Bytes = r.Passed.Packets+n.Packets, r.Passed.Bytes+n.Bytes
			r.Connections += carried.Begun[id].Packets
			rules[id] = r
		}
	}
	o.mu.Lock()
	p := o.last.input.Policy
	o.mu.Unlock()
	for _, r := range p.Rules {
		if r.Action != pipeline.Pass { // which lets nothing through itself
			out.Rules = append(out.Rules, RuleCount{r.Label, r.Also, r.Action != pipeline.Accept, rules[r.ID]})
		} else if n, is := rules[pipeline.InPlaceOf(r.ID)]; is { // but may deny SCTP
			out.Rules = append(out.Rules, RuleCount{r.Label, r.Also, true, n})
		}
	}
	add := func(g pipeline.Guard, d pipeline.Direction, addrs []netip.Addr) {
		u := UnmatchedCount{Endpoint: g.Endpoint, Egress: d == pipeline.Egress}
		for _, a := range addrs {
			n := rest[pipeline.Unmatched{Addr: a, Direction: d}]
			u.Packets, u.Bytes = u.Packets+n.Packets, u.Bytes+n.Bytes
		}
		out.Unmatched = append(out.Unmatched, u)
	}
	for _, g := range p.Guards {
		if g.Ingress {
			add(g, pipeline.Ingress, g.Addrs)
		}
		if g.Egress {
			add(g, pipeline.Egress, g.Addrs)
		}
	}
	return out, nil
}

// ruleFlows reads the flows that count for rules, and these alone.
func ruleFlows(ctx context.Context, b *ovs.Bridge) (flows []pipeline.Flow, counts []pipeline.Count, err error) {
	for _, filter := range pipeline.CountFilters() {
		dump, err := b.DumpFlows(ctx, filter)
		if err != nil {
			return nil, nil, err
		}
		for _, f := range dump {
			flows = append(flows, pipelineFlow(f))
			counts = append(counts, pipeline.Count{Packets: f.Packets, Bytes: f.Bytes})
		}
	}
	return flows, counts, nil
}
