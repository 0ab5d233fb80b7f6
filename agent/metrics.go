package agent

import (
	"context"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/observe/metrics"
)

// scrapePatience bounds the looks of one scrape.
const scrapePatience = 10 * time.Second

// facts is what a scrape finds.
func (a *Agent) facts() (f metrics.Facts) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	f.Status, _ = a.status(ctx) // never an error
	snap := a.replica.Snapshot()
	f.Nodes, f.Networks, f.Pools = a.hellos.Paths(a.member.Nodes(snap)), view.Networks(snap), view.Pools(snap, a.member.CIDRs()...)
	f.Endpoints = a.desks.listed().Endpoints()
	f.BGP, _ = a.announcer.Show(ctx) // never an error
	f.Flows, f.FlowsErr = a.plane.Flows(ctx)
	if f.Policies = view.PolicyNames(snap); len(f.Policies) > 0 {
		var counts api.RuleCounts
		counts, f.RulesErr = a.desks.ruleCounts.Counts(ctx, false)
		f.Rules = counts.Rules
	}
	f.Connections = metrics.Connections(a.desks.traffic.Totals())
	return f
}
