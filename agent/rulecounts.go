package agent

import (
	"cmp"
	"context"
	"fmt"
	"strings"

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
		one := api.RuleCount{Rule: r.Label, Also: r.Also, Action: "Accept", Connections: r.Connections, Packets: r.Passed.Packets, Bytes: r.Passed.Bytes}
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
	tried, _ := p.tried(snap) // why it is not known list says
	return append(list, tried...), nil
}

// tried is what policies that are only tried would have denied here.
func (p policing) tried(snap *cluster.Snapshot) ([]api.RuleCount, error) {
	versions := view.TriedVersions(snap)
	if len(versions) == 0 {
		return nil, nil
	}
	return p.agent.audit.Tried(func(rule, version string) bool {
		name, _, _ := strings.Cut(rule, " ")
		return versions[name] == version
	})
}

// list lists the policies, with what their rules counted here.
func (p policing) list(ctx context.Context) (api.Policies, error) {
	all, err := p.desk().List(ctx)
	if err != nil || len(all.Policies) == 0 {
		return all, err
	}
	counts, err := p.agent.ruleCounts.Counts(ctx, false)
	if err != nil {
		all.Notes = append(all.Notes, fmt.Sprintf("what they let through and denied here is not known: %v", err))
	}
	if _, err := p.tried(p.agent.replica.Snapshot()); err != nil {
		all.Notes = append(all.Notes, fmt.Sprintf("what policies that are only tried would deny is not counted here: %v", err))
	}
	by := counts.ByPolicy()
	for i, one := range all.Policies {
		n, there := by[one.String()]
		if one.Mode == api.ModeTry { // one that is in force may have its name
			n, there = api.PolicyCount{WouldDeny: n.WouldDeny}, true
		} else {
			n.WouldDeny = 0
		}
		if there && one.Mode != api.ModeIgnored {
			all.Policies[i].Counted = &n
		}
	}
	return all, nil
}

// explain says whether policies let a connection through, and what the rules that say so have counted where they are in
// force: at the container that they are about.
func (p policing) explain(ctx context.Context, r api.ExplainRequest) (api.Explanation, error) {
	e, err := p.desk().Explain(ctx, r)
	if err != nil {
		return e, err
	}
	snap := p.agent.replica.Snapshot()
	count := func(d *api.Decision, at api.Peer, direction string) {
		for n := range cluster.All[cluster.Node](snap) {
			if len(d.Rules) == 0 || at.Host == "" || n.Name != at.Host {
				continue
			}
			rows, err := p.agent.ruleCounts.On(ctx, n.ID)
			if err != nil {
				e.Notes = append(e.Notes, fmt.Sprintf("what rules counted on host %s is not known: %v", n.Name, err))
				return
			}
			for _, row := range rows {
				if row.Decides(*d, at, direction) {
					row.Hosts = 1
					d.Counted = append(d.Counted, row)
				}
			}
			return
		}
	}
	count(&e.Egress, e.From, "egress")
	count(&e.Ingress, e.To, "ingress")
	return e, nil
}
