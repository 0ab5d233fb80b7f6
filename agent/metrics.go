package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync/atomic"
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
	f.Nodes, f.Networks, f.Pools = a.member.Nodes(snap), view.Networks(snap), view.Pools(snap, a.member.CIDRs()...)
	f.Endpoints, f.FlowsErr = a.endpoints(ctx)
	if f.FlowsErr == nil {
		f.Flows, f.FlowsErr = a.vswitch.flows(ctx)
	}
	return f
}

// metricsPort is where Prometheus may ask, if the settings say so.
type metricsPort struct {
	trouble atomic.Pointer[error]
}

// metricsRetry is how often it is tried to listen.
const metricsRetry = 3 * time.Second

// serveMetrics goes on trying: a port that is not free is no reason to be no network.
func (a *Agent) serveMetrics(ctx context.Context) error {
	if !a.cfg.Metrics.IsValid() {
		return nil
	}
	for {
		err := a.listenMetrics(ctx)
		if ctx.Err() != nil {
			return nil
		}
		a.metricsPort.trouble.Store(&err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(metricsRetry):
		}
	}
}

func (a *Agent) listenMetrics(ctx context.Context) error {
	token, err := metrics.Token(a.cfg.MetricsTokenFile, a.cfg.MetricsTokenFile == filepath.Join(a.cfg.State, "metrics-token"))
	if err != nil {
		return err
	}
	at := a.cfg.Metrics.String()
	if a.cfg.Metrics.Addr().IsUnspecified() {
		at = fmt.Sprintf(":%d", a.cfg.Metrics.Port())
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		return fmt.Errorf("listen for Prometheus: %w", err)
	}
	a.metricsPort.trouble.Store(nil)
	return metrics.Serve(ctx, listener, token, a.exporter.Handler(), a.scraped)
}

// scraped are the addresses of the hosts that are alive, with this host's port.
func (a *Agent) scraped() (list []netip.AddrPort) {
	for _, n := range a.member.Nodes(a.replica.Snapshot()) {
		if n.Alive {
			list = append(list, netip.AddrPortFrom(n.Gossip.Addr(), a.cfg.Metrics.Port()))
		}
	}
	return list
}

func (p *metricsPort) problems() []api.Problem {
	err := p.trouble.Load()
	if err == nil {
		return nil
	}
	return []api.Problem{{
		What: "Prometheus cannot ask for metrics: " + (*err).Error(),
		Do:   "the agent goes on trying; another GRAPEVINE_METRICS takes another port, an empty one none",
	}}
}
