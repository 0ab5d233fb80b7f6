package agent

import (
	"cmp"
	"context"
	"fmt"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/observe/rulecount"
)

// openCounts makes the desk where is asked what the rules of policies have counted.
func (p policing) openCounts() {
	a := p.agent
	a.ruleCounts = rulecount.New(rulecount.Config{
		Self:     a.self(),
		Snapshot: func() *cluster.Snapshot { return a.replica.Snapshot() },
		Alive:    func() []string { return a.gossip.Alive() },
		Call: func(ctx context.Context, node, method string, body []byte) ([]byte, error) {
			return a.gossip.Call(ctx, node, method, body)
		},
		Count: p.counts,
	})
}

// counts is what this host's switch has counted.
func (p policing) counts(ctx context.Context) (list []api.RuleCount, err error) {
	counted, err := p.agent.plane.Overlay().CountRules(ctx)
	if err != nil {
		return nil, err
	}
	snap := p.agent.replica.Snapshot()
	for _, r := range counted.Rules {
		one := api.RuleCount{Rule: r.Label, Action: "Accept", Connections: r.Connections, Packets: r.Passed.Packets, Bytes: r.Passed.Bytes}
		if r.Denies {
			one.Action, one.Packets, one.Bytes = "Deny", r.Denied.Packets, r.Denied.Bytes
		}
		list = append(list, one)
	}
	isolating := view.Isolating(snap, p.agent.self())
	for _, u := range counted.Unmatched {
		e, _ := cluster.Get[cluster.Endpoint](snap, u.Endpoint)
		d := "ingress"
		if u.Egress {
			d = "egress"
		}
		policies := isolating(u.Endpoint, d)
		if len(policies) == 0 { // what no rule matches passes there
			continue
		}
		name := cmp.Or(e.Name, fmt.Sprintf("%.12s", u.Endpoint))
		list = append(list, api.RuleCount{
			Action: "Deny", Direction: d, Network: e.Network, Container: name, Policies: policies, Packets: u.Packets, Bytes: u.Bytes,
		})
	}
	return list, nil
}
