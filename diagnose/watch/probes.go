package watch

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/diagnose/doctor"
	"github.com/grapevine-net/grapevine/diagnose/probe"
	"github.com/grapevine-net/grapevine/gossip"
)

const (
	// probesAtOnce is how many hosts are probed at a time.
	probesAtOnce = 8
	// pathPatience bounds the probes to one host.
	pathPatience = 20 * time.Second
	// dialPatience bounds a connection to a host that does not answer.
	dialPatience = 3 * time.Second
)

// Probes are those that doctor has made on all ways.
type Probes struct {
	Host
	Prober   *probe.Prober
	InnerMTU func() int // of containers' packets
}

// Paths probes the ways to and from all other hosts.
func (w Probes) Paths(ctx context.Context, nodes []api.Node) []doctor.Path {
	var list []*doctor.Path
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(probesAtOnce)
	for _, n := range nodes {
		if n.Self {
			continue
		}
		p := &doctor.Path{Peer: n.Name, Limits: w.limits(n), Astray: w.astray(n)}
		list = append(list, p)
		tasks.Go(func() error {
			w.path(ctx, n, p)
			return nil
		})
	}
	_ = tasks.Wait() // none fails
	paths := make([]doctor.Path, len(list))
	for i, p := range list {
		paths[i] = *p
	}
	return paths
}

func (w Probes) path(ctx context.Context, n api.Node, p *doctor.Path) {
	ctx, cancel := context.WithTimeout(ctx, pathPatience)
	defer cancel()
	p.Report, p.Err = w.Prober.Path(ctx, n.ID, p.Limits)
	if p.Err == nil {
		return
	}
	var remote *gossip.RemoteError
	if p.Old = errors.As(p.Err, &remote) && strings.Contains(remote.Text, "unknown method"); p.Old {
		return
	}
	dialer := net.Dialer{Timeout: dialPatience}
	c, err := dialer.DialContext(ctx, "tcp", n.Gossip.String())
	if p.Dial = err; err == nil {
		c.Close()
	}
}

// limits are the sizes that packets to and from a host may have: each end knows the other's MTU, and sends nothing larger there.
func (w Probes) limits(n api.Node) probe.Limits {
	most := w.Underlay.MTU
	if n.MTU != 0 {
		most = min(most, n.MTU)
	}
	inner := min(w.InnerMTU(), most-w.Settings.Encapsulation().Overhead(n.VTEP))
	return probe.Limits{Gossip: probe.Way{Out: most, In: most}, Tunnel: probe.Way{Out: inner, In: inner}}
}
