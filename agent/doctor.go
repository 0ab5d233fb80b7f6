package agent

import (
	"context"
	"net/netip"

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
	cfg := a.cfg
	for _, p := range a.member.CIDRs() {
		if p.Addr().Is6() {
			cfg.CIDR6 = p // made of the cluster's ID, if it is not set
		}
	}
	host := make(chan doctor.Host, 1)
	go func() { host <- doctor.Look(ctx, cfg, running, gateway.Port, gateway.Tables()) }()
	paths := a.probes.Paths(ctx, nodes)
	all := doctor.Cluster{Self: a.cfg.Name, GossipPort: a.cfg.Port, By: a.cfg.Encapsulation().By(a.cfg.TunnelPort()), Overhead: a.underlay.MTU - a.plane.InnerMTU()}
	reached := all.Paths(paths)
	if own := a.silence.CutOff(nodes); own != nil { // then nothing is to be said of the others
		reached = doctor.Problems("underlay", "", own)
	}

	add := func(checks ...api.Check) { d.Checks = append(d.Checks, checks...) }
	gone, _ := problems.Unlinked(ctx, a.driver, a.plane.OwnGone)
	add(a.checks(ctx, look{snap, nodes, gone})...)
	add((<-host).Judge()...)
	add(reached...)
	links, _ := link.List(link.Ours) // none to be had, none to complain of
	add(doctor.Interfaces(max(a.plane.InnerMTU(), cluster.MinMTU6), view.Networks(snap), links)...)
	add(doctor.Duplicates(nodes, view.Endpoints(snap))...)
	add(doctor.KeySetting(a.installed.ID != "" && len(a.cfg.Keys) > 0, a.member.KeyKept(), a.installed.PluginName(ctx))...)
	var firewalls []doctor.Firewall
	var packets [][]doctor.Packet
	for _, v6 := range a.firewall.Families() {
		firewalls, packets = append(firewalls, doctor.LookAtFirewall(ctx, v6)), append(packets, a.firewall.Packets(nodes, v6, len(nodes)))
	}
	add(doctor.JudgeAll(firewalls, packets, proven(reached))...)
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

// caller calls by the agent's gossip, which is made after what needs it.
type caller struct{ a *Agent }

// Call implements probe.Peers.
func (c caller) Call(ctx context.Context, node, method string, body []byte) ([]byte, error) {
	return c.a.gossip.Call(ctx, node, method, body)
}

// findHost tells the prober where a host is.
func findHost(snapshot func() *cluster.Snapshot) func(id string) (probe.Host, bool) {
	return func(id string) (probe.Host, bool) {
		n, found := cluster.Get[cluster.Node](snapshot(), id)
		return probe.Host{VTEP: n.Tunnel(), Address: n.Address(), Gossip: netip.AddrPortFrom(n.Gossip.Addr().Unmap(), n.Gossip.Port())}, found
	}
}
