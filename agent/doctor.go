package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/diagnose/doctor"
	"github.com/grapevine-net/grapevine/diagnose/probe"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/gateway"
)

const (
	// probesAtOnce is how many hosts are probed at a time.
	probesAtOnce = 8
	// pathPatience bounds the probes to one host.
	pathPatience = 20 * time.Second
	// dialPatience bounds a connection to a host that does not answer.
	dialPatience = 3 * time.Second
)

// Diagnose checks a host whose agent does not run, for the reason given: what can be
// checked without one.
func Diagnose(ctx context.Context, cfg config.Config, version, why, do string) api.Diagnosis {
	checks := doctor.Look(ctx, cfg, nil, gateway.Port, gateway.Table).Judge()
	doctor.Sort(checks)
	first := api.Check{Subject: "agent", Verdict: api.Wrong, What: why, Do: do}
	return api.Diagnosis{Version: version, Name: cfg.Name, Checks: append([]api.Check{first}, checks...)}
}

// doctor answers GET /v1/doctor.
func (a *Agent) doctor(ctx context.Context) (api.Diagnosis, error) {
	d := api.Diagnosis{Version: a.version, Name: a.cfg.Name, Agent: true}
	snap := a.replica.Snapshot()
	nodes := a.member.Nodes(snap)
	self, _ := a.selfPlugin(ctx) // that Docker does not answer is found below
	running := &doctor.Agent{
		Switch: a.plane.Bridge.Instance, Embedded: a.plane.Embedded != nil, Datapath: string(a.plane.Datapath()), Plugin: self,
	}
	cfg := a.cfg
	for _, p := range a.member.CIDRs() {
		if p.Addr().Is6() {
			cfg.CIDR6 = p // made of the cluster's ID, if it is not set
		}
	}
	host := make(chan doctor.Host, 1)
	go func() { host <- doctor.Look(ctx, cfg, running, gateway.Port, gateway.Table) }()
	paths := a.paths(ctx, nodes)
	all := doctor.Cluster{Self: a.cfg.Name, GossipPort: a.cfg.Port, VXLANPort: a.cfg.VXLANPort, Overhead: a.underlay.MTU - a.plane.InnerMTU()}
	reached := all.Paths(paths)
	if own := a.cutOff(nodes); own != nil { // then nothing is to be said of the others
		reached = doctor.Problems("underlay", "", own)
	}

	add := func(checks ...api.Check) { d.Checks = append(d.Checks, checks...) }
	gone, _ := a.unlinked(ctx)
	add(a.checks(ctx, look{snap, nodes, gone})...)
	add((<-host).Judge()...)
	add(reached...)
	links, _ := link.List("gv") // none to be had, none to complain of
	add(doctor.Interfaces(a.plane.InnerMTU(), view.Networks(snap), links)...)
	add(doctor.Duplicates(nodes, view.Endpoints(snap))...)
	add(doctor.KeySetting(a.managed != "" && len(a.cfg.Keys) > 0, a.member.KeyKept(), pluginName(ctx, a))...)
	for _, v6 := range a.firewallFamilies() {
		add(doctor.LookAtFirewall(ctx, v6).Judge(a.packets(nodes, v6, len(nodes)), proven(reached))...)
	}
	doctor.Sort(d.Checks)
	return d, nil
}

// proven says whether probes have passed on all paths, of which there is one.
func proven(reached []api.Check) bool {
	for _, c := range reached {
		if c.Verdict != api.OK {
			return false
		}
	}
	return len(reached) > 1
}

// paths probes the ways to and from all other hosts.
func (a *Agent) paths(ctx context.Context, nodes []api.Node) []doctor.Path {
	var list []*doctor.Path
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(probesAtOnce)
	for _, n := range nodes {
		if n.Self {
			continue
		}
		p := &doctor.Path{Peer: n.Name, Limits: a.limits(n)}
		list = append(list, p)
		tasks.Go(func() error {
			a.path(ctx, n, p)
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

func (a *Agent) path(ctx context.Context, n api.Node, p *doctor.Path) {
	ctx, cancel := context.WithTimeout(ctx, pathPatience)
	defer cancel()
	p.Report, p.Err = a.prober.Path(ctx, n.ID, p.Limits)
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

// limits are the sizes that packets to and from a host may have.
func (a *Agent) limits(n api.Node) probe.Limits {
	theirs := n.MTU
	if theirs == 0 {
		theirs = a.underlay.MTU
	}
	overhead := a.underlay.MTU - a.plane.InnerMTU()
	return probe.Limits{
		Gossip: probe.Way{Out: a.underlay.MTU, In: theirs},
		Tunnel: probe.Way{Out: a.plane.InnerMTU(), In: theirs - overhead},
	}
}

// caller calls by the agent's gossip, which is made after what needs it.
type caller struct{ a *Agent }

// Call implements probe.Peers.
func (c caller) Call(ctx context.Context, node, method string, body []byte) ([]byte, error) {
	return c.a.gossip.Call(ctx, node, method, body)
}

// findHost tells the prober where a host is.
func (a *Agent) findHost(id string) (probe.Host, bool) {
	n, found := cluster.Get[cluster.Node](a.replica.Snapshot(), id)
	return probe.Host{VTEP: n.VTEP, Gossip: netip.AddrPortFrom(n.Gossip.Addr().Unmap(), n.Gossip.Port())}, found
}
