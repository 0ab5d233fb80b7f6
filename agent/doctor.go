package agent

import (
	"context"
	"net/netip"

	"github.com/grapevine-net/grapevine/agent/task"
	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/diagnose/doctor"
	"github.com/grapevine-net/grapevine/diagnose/probe"
	"github.com/grapevine-net/grapevine/driver/problems"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/gateway"
)

// doctor answers GET /v1/doctor.
func (a *Agent) doctor(ctx context.Context) (api.Diagnosis, error) {
	d := api.Diagnosis{Version: a.version, Name: a.cfg.Name, Agent: true}
	snap := a.replica.Snapshot()
	nodes := a.member.Nodes(snap)
	self, _ := a.installed.Plugin(ctx) // that Docker does not answer is found below
	running := &doctor.Agent{
		Switch: a.plane.Bridge.Instance, Embedded: a.plane.Embedded != nil, Datapath: string(a.plane.Datapath()), Plugin: self,
	}
	cfg := a.cfg.With(a.member.CIDRs())
	host := make(chan doctor.Host, 1)
	go func() { host <- doctor.Look(ctx, cfg, running, gateway.Port, gateway.Tables()) }()
	paths := a.probes.Paths(ctx, nodes)
	all := doctor.Cluster{Self: a.cfg.Name, GossipPort: a.cfg.Port, By: a.cfg.Encapsulation().By(a.cfg.TunnelPort()), Overhead: a.underlay.MTU - a.plane.InnerMTU()}
	here := <-host
	all.Hung = here.Switch.Hangs()
	reached := all.Paths(paths)
	if own := a.silence.CutOff(nodes); own != nil { // then nothing is to be said of the others
		reached = doctor.Problems("underlay", "", own)
	}

	add := func(checks ...api.Check) { d.Checks = append(d.Checks, checks...) }
	gone, _ := problems.Unlinked(ctx, a.driver, a.plane.OwnGone)
	add(a.tasks().Checks(ctx, task.Look{Snapshot: snap, Nodes: nodes, Gone: gone})...)
	add(here.Judge()...)
	add(reached...)
	links, _ := link.List(link.Ours) // none to be had, none to complain of
	add(doctor.Interfaces(max(a.plane.InnerMTU(), cluster.MinMTU6), view.Networks(snap), links)...)
	add(doctor.Duplicates(nodes, view.Endpoints(snap))...)
	add(doctor.KeySetting(a.installed.ID != "" && len(a.cfg.Keys) > 0, a.member.KeyKept(), a.installed.PluginName(ctx))...)
	add(a.firewall.Checks(ctx, nodes, doctor.Proven(reached))...)
	doctor.Sort(d.Checks)
	return d, nil
}

// findHost tells the prober where a host is.
func findHost(snapshot func() *cluster.Snapshot) func(id string) (probe.Host, bool) {
	return func(id string) (probe.Host, bool) {
		n, found := cluster.Get[cluster.Node](snapshot(), id)
		return probe.Host{VTEP: n.Tunnel(), Address: n.Address(), Gossip: netip.AddrPortFrom(n.Gossip.Addr().Unmap(), n.Gossip.Port())}, found
	}
}
