package metrics

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/api"
)

// Port is where Prometheus may ask, if the settings say so.
type Port struct {
	at       netip.AddrPort // invalid: nobody may
	secret   *Secret
	exporter *Exporter
	alive    func() []netip.Addr // the hosts to ask
	trouble  atomic.Pointer[error]
}

// NewPort listens nowhere yet.
func NewPort(at netip.AddrPort, secret *Secret, e *Exporter, alive func() []netip.Addr) *Port {
	return &Port{at: at, secret: secret, exporter: e, alive: alive}
}

// retry is how often it is tried to listen.
const retry = 3 * time.Second

// Run goes on trying: a port that is not free is no reason to be no network.
func (p *Port) Run(ctx context.Context) error {
	if !p.at.IsValid() {
		return nil
	}
	for {
		err := p.listen(ctx)
		if ctx.Err() != nil {
			return nil
		}
		p.trouble.Store(&err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry):
		}
	}
}

func (p *Port) listen(ctx context.Context) error {
	_, _ = p.secret.Token() // makes it, if that is the agent's to do; problems tells what is wrong with it
	at := p.at.String()
	if p.at.Addr().IsUnspecified() {
		at = fmt.Sprintf(":%d", p.at.Port())
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		return fmt.Errorf("listen for Prometheus: %w", err)
	}
	p.trouble.Store(nil)
	return Serve(ctx, listener, p.secret, p.exporter.Handler(), p.targets)
}

// targets are the hosts that are alive, with this host's port.
func (p *Port) targets() (list []netip.AddrPort) {
	for _, addr := range p.alive() {
		list = append(list, netip.AddrPortFrom(addr, p.at.Port()))
	}
	return list
}

// Problems are for status.
func (p *Port) Problems() (list []api.Problem) {
	add := func(code api.Code, do, format string, args ...any) {
		list = append(list, api.Problem{Code: code, What: fmt.Sprintf(format, args...), Do: do})
	}
	if p == nil || !p.at.IsValid() {
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
