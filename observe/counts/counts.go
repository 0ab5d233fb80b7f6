// Package counts joins what rules of policies have counted to the policies that people list and explain.
package counts

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/observe/rulecount"
	"github.com/grapevine-net/grapevine/overlay"
	"github.com/grapevine-net/grapevine/policy/edit"
)

// Config of a Desk.
type Config struct {
	Self     cluster.NodeID
	Snapshot func() *cluster.Snapshot
	// Switch is what this host's switch has counted (overlay.Overlay.CountRules).
	Switch func(context.Context) (overlay.RuleCounts, error)
	// Tried is what rules that are only tried would have denied here, of those that are there (audit.Log.Tried).
	Tried func(there func(rule, version string) bool) ([]api.RuleCount, error)
	// Desk is what people do with policies.
	Desk func() edit.Desk
	// Rules is what the rules of all hosts have counted.
	Rules *rulecount.Desk
}

// Desk is where people look at policies, with what their rules have counted.
type Desk struct{ Config }

// Here is what this host's switch has counted.
func (d Desk) Here(ctx context.Context) (list []api.RuleCount, err error) {
	counted, err := d.Switch(ctx)
	if err != nil {
		return nil, err
	}
	snap := d.Snapshot()
	for _, r := range counted.Rules {
		one := api.RuleCount{Rule: r.Label, Also: r.Also, Action: "Accept", Connections: r.Connections, Packets: r.Passed.Packets, Bytes: r.Passed.Bytes}
		if r.Denies {
			one.Action, one.Packets, one.Bytes = "Deny", r.Denied.Packets, r.Denied.Bytes
		}
		list = append(list, one)
	}
	isolating := view.Isolating(snap, d.Self)
	for _, u := range counted.Unmatched {
		e, _ := cluster.Get[cluster.Endpoint](snap, u.Endpoint)
		direction := "ingress"
		if u.Egress {
			direction = "egress"
		}
		policies := isolating(u.Endpoint, direction)
		if len(policies) == 0 { // what no rule matches passes there
			continue
		}
		name := cmp.Or(e.Name, fmt.Sprintf("%.12s", u.Endpoint))
		list = append(list, api.RuleCount{
			Action: "Deny", Direction: direction, Network: e.Network, Container: name, Policies: policies, Packets: u.Packets, Bytes: u.Bytes,
		})
	}
	tried, _ := d.tried(snap) // why it is not known List says
	return append(list, tried...), nil
}

// tried is what policies that are only tried would have denied here.
func (d Desk) tried(snap *cluster.Snapshot) ([]api.RuleCount, error) {
	versions := view.TriedVersions(snap)
	if len(versions) == 0 {
		return nil, nil
	}
	return d.Config.Tried(func(rule, version string) bool {
		name, _, _ := strings.Cut(rule, " ")
		return versions[name] == version
	})
}

// List lists the policies, with what their rules counted here.
func (d Desk) List(ctx context.Context) (api.Policies, error) {
	all, err := d.Config.Desk().List(ctx)
	if err != nil || len(all.Policies) == 0 {
		return all, err
	}
	counts, err := d.Rules.Counts(ctx, false)
	if err != nil {
		all.Notes = append(all.Notes, fmt.Sprintf("what they let through and denied here is not known: %v", err))
	}
	if _, err := d.tried(d.Snapshot()); err != nil {
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

// Explain says whether policies let a connection through, and what the rules that say so have counted where they are in
// force: at the container that they are about.
func (d Desk) Explain(ctx context.Context, r api.ExplainRequest) (api.Explanation, error) {
	e, err := d.Config.Desk().Explain(ctx, r)
	if err != nil {
		return e, err
	}
	snap := d.Snapshot()
	count := func(by *api.Decision, at api.Peer, direction string) {
		for n := range cluster.All[cluster.Node](snap) {
			if len(by.Rules) == 0 || at.Host == "" || n.Name != at.Host {
				continue
			}
			rows, err := d.Rules.On(ctx, n.ID)
			if err != nil {
				e.Notes = append(e.Notes, fmt.Sprintf("what rules counted on host %s is not known: %v", n.Name, err))
				return
			}
			for _, row := range rows {
				if row.Decides(*by, at, direction) {
					row.Hosts = 1
					by.Counted = append(by.Counted, row)
				}
			}
			return
		}
	}
	count(&e.Egress, e.From, "egress")
	count(&e.Ingress, e.To, "ingress")
	return e, nil
}
