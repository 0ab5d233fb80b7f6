package agent

import (
	"context"
	"net/netip"
	"path/filepath"
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
	f.Endpoints, f.FlowsErr = a.endpoints(ctx)
	f.BGP, _ = a.announcer.Show(ctx) // never an error
	if f.FlowsErr == nil {
		f.Flows, f.FlowsErr = a.plane.Flows(ctx)
	}
	if f.Policies = view.PolicyNames(snap); len(f.Policies) > 0 {
		var counts api.RuleCounts
		counts, f.RulesErr = a.ruleCounts.Counts(ctx, false)
		f.Rules = counts.Rules
	}
	f.Connections = metrics.Connections(a.traffic.Totals())
	return f
}

// openMetrics prepares to be asked, if the settings say so.
func (a *Agent) openMetrics() {
	a.exporter = metrics.New(a.facts)
	file := a.cfg.MetricsTokenFile
	a.metricsPort = metrics.NewPort(a.cfg.Metrics, metrics.NewSecret(file, file == filepath.Join(a.cfg.State, "metrics-token")), a.exporter, func() (alive []netip.Addr) {
		for _, n := range a.member.Nodes(a.replica.Snapshot()) {
			if n.Alive {
				alive = append(alive, n.Gossip.Addr())
			}
		}
		return alive
	})
}
