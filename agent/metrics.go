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
		f.Flows, f.FlowsErr = a.plane.Flows(ctx)
	}
	return f
}

// metricsPort is where Prometheus may ask, if the settings say so.
type metricsPort struct {
	trouble atomic.Pointer[error]
	secret  *metrics.Secret // nil: nobody may
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
	_, _ = a.metricsPort.secret.Token() // makes it, if that is the agent's to do; problems tells what is wrong with it
	at := a.cfg.Metrics.String()
	if a.cfg.Metrics.Addr().IsUnspecified() {
		at = fmt.Sprintf(":%d", a.cfg.Metrics.Port())
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		return fmt.Errorf("listen for Prometheus: %w", err)
	}
	a.metricsPort.trouble.Store(nil)
	return metrics.Serve(ctx, listener, a.metricsPort.secret, a.exporter.Handler(), a.scraped)
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

// openMetrics prepares to be asked, if the settings say so.
func (a *Agent) openMetrics() {
	a.exporter = metrics.New(a.facts)
	if a.cfg.Metrics.IsValid() {
		file := a.cfg.MetricsTokenFile
		a.metricsPort.secret = metrics.NewSecret(file, file == filepath.Join(a.cfg.State, "metrics-token"))
	}
}

func (p *metricsPort) problems() (list []api.Problem) {
	add := func(code api.Code, do, format string, args ...any) {
		list = append(list, api.Problem{Code: code, What: fmt.Sprintf(format, args...), Do: do})
	}
	if p.secret == nil {
		return nil
	}
	if err := p.trouble.Load(); err != nil {
		add(api.MetricsPort, "the agent goes on trying; another GRAPEVINE_METRICS takes another port, an empty one none", "Prometheus cannot ask for metrics: %v", *err)
	}
	if _, err := p.secret.Token(); err != nil {
		add(api.MetricsToken, "the agent reads it again as soon as it has changed", "Prometheus cannot ask for metrics: %v", err)
	} else if err := p.secret.Exposed(); err != nil {
		add(api.MetricsToken, "chmod 600 it, or 640 with a group that may have it; if others may have read it, put another one there, and on the other hosts", "%v", err)
	}
	return list
}
