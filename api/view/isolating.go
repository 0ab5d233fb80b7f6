package view

import (
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/worlds"
)

// Isolating says which policies isolate an endpoint of the host self in a direction (ingress or egress): what none of
// their rules lets through is denied there.
func Isolating(s *cluster.Snapshot, self cluster.NodeID) func(endpoint, direction string) []string {
	w := worlds.Of(s, self)
	here := policy.World{Networks: w.Networks}
	on := map[string]bool{}
	for _, e := range w.Endpoints {
		if e.Local {
			here.Endpoints = append(here.Endpoints, e)
			on[e.Network] = true
		}
	}
	type at struct{ endpoint, direction string }
	by := map[at][]string{}
	for i := range w.Policies {
		p := &w.Policies[i]
		if p.Kind != policy.NetworkPolicy || p.Subject.Network != "" && !on[p.Subject.Network] {
			continue
		}
		certain, possible := here.Selected(p.Subject)
		for _, e := range slices.Concat(certain, possible) {
			if p.IsolatesIngress {
				by[at{e.ID, "ingress"}] = append(by[at{e.ID, "ingress"}], p.Key.String())
			}
			if p.IsolatesEgress {
				by[at{e.ID, "egress"}] = append(by[at{e.ID, "egress"}], p.Key.String())
			}
		}
	}
	return func(endpoint, direction string) []string { return by[at{endpoint, direction}] }
}
