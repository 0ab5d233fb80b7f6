// Package view shows a snapshot of the cluster as the bodies of package api. It
// is pure: no sockets, no clock, no goroutines.
package view

import (
	"cmp"
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
)

// Nodes lists the hosts by name. answers says who does, and who of them is in doubt; self
// answers anyway.
func Nodes(s *cluster.Snapshot, self cluster.NodeID, answers func(cluster.NodeID) (alive, doubtful bool)) []api.Node {
	nodes := []api.Node{}
	for n := range cluster.All[cluster.Node](s) {
		alive, doubtful := answers(n.ID)
		node := api.Node{
			ID: string(n.ID), Name: n.Name, VTEP: n.Tunnel(), Encrypts: n.Encrypts(), EncryptsNetworks: n.SecureKey() != nil, Gossip: n.Gossip,
			Alive: n.ID == self || alive, Doubtful: n.ID != self && doubtful, Self: n.ID == self,
			Version: n.Agent, Datapath: n.Datapath, MTU: n.MTU, VXLANPort: n.VXLANPort, Encap: n.Encap, CIDR4: n.CIDR4, CIDR6: n.CIDR6, Edge: n.Edge,
		}
		if n.Encrypts() {
			node.Address = n.Address()
		}
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(a, b api.Node) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return nodes
}

// Alive counts the hosts that are alive, this one included, and of the others those to and from which packets were just tried, and pass.
func Alive(nodes []api.Node) (alive, tried api.Count) {
	alive.All = len(nodes)
	for _, n := range nodes {
		if !n.Alive {
			continue
		}
		alive.Part++
		if n.Self {
			continue
		}
		tried.All++
		if n.Path == "ok" {
			tried.Part++
		}
	}
	return alive, tried
}

// Networks lists the networks by name.
func Networks(s *cluster.Snapshot) []api.Network {
	subnets := map[string][]api.Subnet{}
	for n := range cluster.All[cluster.Subnet](s) {
		subnets[n.Network] = append(subnets[n.Network], api.Subnet{Prefix: n.Prefix, Gateway: n.Gateway})
	}
	hosts := map[string][]string{}
	for u := range cluster.All[cluster.Use](s) {
		hosts[u.Network] = append(hosts[u.Network], s.HostName(u.Host))
	}
	endpoints := map[string]int{}
	for e := range cluster.All[cluster.Endpoint](s) {
		endpoints[e.Network]++
	}
	networks, realms := []api.Network{}, s.Realms()
	for n := range cluster.All[cluster.Network](s) {
		slices.Sort(hosts[n.Name])
		slices.SortFunc(subnets[n.Name], func(a, b api.Subnet) int { return comparePrefix(a.Prefix, b.Prefix) })
		networks = append(networks, api.Network{
			Name: n.Name, VNID: n.VNID, Subnets: append([]api.Subnet{}, subnets[n.Name]...), Hosts: append([]string{}, hosts[n.Name]...),
			Endpoints: endpoints[n.Name], Internal: n.Internal, Encrypted: n.Encrypted(), MTU: n.MTU, Removed: n.Removed,
			With: realms.With(n.Name), Global: realms[n.Name].Global,
		})
	}
	return networks
}

// Endpoints lists the endpoints by network, container and ID.
func Endpoints(s *cluster.Snapshot) []api.Endpoint {
	endpoints := []api.Endpoint{}
	shared := map[[2]string]bool{}
	for _, n := range Shared(s) {
		shared[[2]string{n.Network, n.Name}] = true
	}
	for e := range cluster.All[cluster.Endpoint](s) {
		out := api.Endpoint{
			ID: e.ID, Network: e.Network, Name: e.Name, Container: e.Container,
			Addrs: e.Addrs, LinkLocal: e.LinkLocal, MAC: e.MAC, Host: s.HostName(e.Host),
			Aliases: e.AllAliases(), Paused: e.Paused,
		}
		l := s.Limits(e)
		out.Egress, out.Ingress, out.Delay, out.Jitter, out.Loss = l.Egress.String(), l.Ingress.String(), l.Delay.String(), l.Jitter.String(), l.Loss.String()
		for i, n := range append([]string{e.Name}, e.AllAliases()...) {
			if shared[[2]string{e.Network, n}] && (i == 0 || n != e.Name) {
				out.Shared = append(out.Shared, n)
			}
		}
		endpoints = append(endpoints, out)
	}
	slices.SortStableFunc(endpoints, func(a, b api.Endpoint) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), cmp.Compare(a.Name, b.Name))
	})
	return endpoints
}

// Pools shows who owns the cluster's prefixes and those of the networks, in this
// order.
func Pools(s *cluster.Snapshot, cidrs ...netip.Prefix) []api.Pool {
	pools := []api.Pool{}
	for _, p := range cidrs {
		pools = append(pools, pool(s, "", p))
	}
	var subnets []cluster.Subnet
	for n := range cluster.All[cluster.Subnet](s) {
		subnets = append(subnets, n)
	}
	slices.SortFunc(subnets, func(a, b cluster.Subnet) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), comparePrefix(a.Prefix, b.Prefix))
	})
	for _, n := range subnets {
		pools = append(pools, pool(s, n.Network, n.Prefix))
	}
	return pools
}

func pool(s *cluster.Snapshot, network string, prefix netip.Prefix) api.Pool {
	ring := s.Ring()
	parts, total := map[cluster.NodeID]float64{}, 0.0
	for owner := range ring.Counts(prefix) {
		parts[owner] = size(ring.Owned(owner, prefix), prefix)
		total += parts[owner]
	}
	p := api.Pool{Network: network, Prefix: prefix, Shares: []api.Share{}}
	for owner := range maps.Keys(parts) {
		p.Shares = append(p.Shares, api.Share{
			Host: s.HostName(owner), Node: string(owner),
			Blocks: ring.Owned(owner, prefix), Part: parts[owner] / total,
		})
	}
	slices.SortFunc(p.Shares, func(a, b api.Share) int { return comparePrefix(a.Blocks[0], b.Blocks[0]) })
	return p
}

// size is how much of a prefix blocks are. It goes by their lengths: of IPv6 there are more
// numbers than a count holds.
func size(blocks []netip.Prefix, of netip.Prefix) (sum float64) {
	for _, b := range blocks {
		sum += math.Ldexp(1, of.Bits()-b.Bits())
	}
	return sum
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
