package overlay

import (
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// exitsOf are the ways to the outside of networks that have an egress: by its holder, wherever that is, or none.
// ready says for which subnets this host is, of those that it holds; track, whether the switch tracks connections.
func exitsOf(snap *cluster.Snapshot, self cluster.NodeID, g *ground, ready func(name string, subnet netip.Prefix) bool, track bool) (list []pipeline.Exit) {
	for _, e := range egress.All(snap) {
		h, _ := cluster.Get[cluster.EgressHolder](snap, e.Name)
		exit := pipeline.Exit{Track: track, V4: e.Addr(false).IsValid(), V6: e.Addr(true).IsValid()}
		n, _ := cluster.Get[cluster.Node](snap, string(h.Host))
		exit.V6 = exit.V6 && egress.Able(n, e.Egress) // or it would leave with an address that nobody holds
		switch vtep := g.vtep[h.Host]; {
		case e.Twice: // the address is another one's
		case h.Host == self: // here, as far as it is ready for a network
		case vtep.IsValid():
			i := slices.IndexFunc(g.vteps, func(v pipeline.VTEP) bool { return v.Addr == vtep })
			exit.VTEP, exit.Index, exit.Hosts = vtep, g.vteps[i].Index, g.vteps[i].Host
		}
		for _, name := range e.Networks {
			if n, ok := g.network[name]; ok && n.VNID != 0 && !slices.Contains(e.Taken, name) {
				way := exit
				way.Here = !e.Twice && h.Host == self && ready != nil && leads(g, e.Egress, name, ready)
				if way.VNID = n.VNID; n.Encrypted() { // the way to the gateway would be in the clear
					way.VTEP, way.Index = netip.Addr{}, 0
				}
				way.Routers = g.routers(n.VNID)
				list = append(list, way)
			}
		}
	}
	return list
}

// routers are the gateway addresses of a network.
func (g *ground) routers(vnid uint32) (list []netip.Prefix) {
	for _, s := range g.subnets {
		if s.VNID == vnid && s.Gateway.IsValid() {
			list = append(list, netip.PrefixFrom(s.Gateway, s.Prefix.Bits()))
		}
	}
	return list
}

// leads reports whether this host is ready to be the way out for all subnets of a network. One that came later, as with
// a network that the egress has from now on, would leave by this host's own address before NAT has it.
func leads(g *ground, e cluster.Egress, network string, ready func(name string, subnet netip.Prefix) bool) bool {
	for _, s := range g.subnet {
		if s.Network == network && e.Addr(s.Prefix.Addr().Is6()).IsValid() && !ready(e.Name, s.Prefix) {
			return false
		}
	}
	return true
}
