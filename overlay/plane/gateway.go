package plane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/bgp"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/guard"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// natGateway is the gateway port together with the masquerading of what leaves
// through it, and the way to the resolver.
type natGateway struct {
	*gateway.Gateway
	guard  *guard.Guard
	nat    *nat.NAT
	names  Names
	source Source
	open   func(*cluster.Snapshot) []netip.Prefix // the outside is let in there
}

// Ensure implements overlay.Gateway. The rules of what may pass come before anything can:
// without them gv0 stays down.
func (g natGateway) Ensure(ctx context.Context, cfg gateway.Config) error {
	g.guard.Expose(cfg.Exposed, cfg.CIDRs, cfg.Addrs)
	if err := g.guard.Set(); err != nil && !g.guard.InPlace() {
		return errors.Join(err, g.Shut())
	}
	snap := g.source.Snapshot()
	err := g.nat.Set(ctx, nat.Config{
		Interface: gateway.Port, CIDRs: cfg.CIDRs, Gateways: cfg.Addrs, Hosts: pipeline.HostRanges, Internal: slices.Concat(snap.InternalSubnets(), cfg.Closed), Sources: sources(snap), Exposed: cfg.Exposed, Open: g.open(snap), Rules: g.names.Rules,
	})
	g.names.Hear(ctx) // before anybody can ask there
	return errors.Join(g.Gateway.Ensure(ctx, cfg), err)
}

// sources are the addresses from which networks are to reach the outside.
func sources(snap *cluster.Snapshot) (list []nat.Source) {
	for s := range cluster.All[cluster.Subnet](snap) {
		if n, ok := cluster.Get[cluster.Network](snap, s.Network); ok {
			if a := n.HostAddress(s.Prefix.Addr().Is6()); a.IsValid() {
				list = append(list, nat.Source{Subnet: s.Prefix, Address: a})
			}
		}
	}
	slices.SortFunc(list, func(a, b nat.Source) int { return a.Subnet.Compare(b.Subnet) })
	return list
}

// opened is what this host has of networks that routers are told of.
func (c Config) opened(snap *cluster.Snapshot) []netip.Prefix {
	if len(c.Settings.BGPNetworks) == 0 {
		return nil
	}
	return bgp.Open(snap, c.Self, c.Settings.BGPNetworks)
}

// serve has nothing of these subnets leave with another address before it has them leave with theirs.
func serve(g *guard.Guard, n *nat.NAT, sources []nat.Source) error {
	if err := g.Serve(sources); err != nil {
		return err
	}
	return n.Serve(sources)
}

// AbsentSources are networks with containers here that are to reach the outside from an address that this host
// does not have.
func (p *Plane) AbsentSources(snap *cluster.Snapshot) (list []api.Problem) {
	absent := p.nat.Absent()
	if len(absent) == 0 {
		return nil
	}
	used := map[string]bool{}
	for e := range cluster.All[cluster.Endpoint](snap) {
		used[e.Network] = used[e.Network] || e.Host == p.cfg.Self
	}
	for n := range cluster.All[cluster.Network](snap) {
		if !used[n.Name] {
			continue
		}
		for _, v6 := range []bool{false, true} {
			if a := n.HostAddress(v6); a.IsValid() && slices.Contains(absent, a) {
				list = append(list, api.Problem{
					Code: api.SourceAbsent,
					What: fmt.Sprintf("containers of network %s are to reach the outside from %v, which this host does not have: they do from its own address", n.Name, a),
					Do:   fmt.Sprintf("`ip addr add %v/%d dev NIC`, or run its containers on hosts that have it", a, a.BitLen()),
				})
			}
		}
	}
	return list
}
