// Package bgp says which addresses routers are to be told that this host has. It is pure: package bgp/speaker tells them.
package bgp

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress"
)

// Route is one that leads to this host.
type Route struct {
	Prefix netip.Prefix
	// Rank is the MED (RFC 4271, 5.1.4): of two hosts of one AS that tell of the same prefix the lower one gets the packets.
	// 0: all are equal.
	Rank uint32
	For  string // what it leads to, for people
}

// Wrong is something that is not told as the settings want it, why, and what to do.
type Wrong struct{ What, Do string }

// Case is what a plan depends on.
type Case struct {
	Self cluster.NodeID
	Snap *cluster.Snapshot
	// Serves reports whether this host is ready to be the way to the outside of an egress.
	Serves func(egress string) bool
	// Networks and Addresses are the settings'; Has reports whether this host has an address.
	Networks  []string
	Addresses []netip.Addr
	Has       func(netip.Addr) bool
}

// Plan returns what routers are to be told, in order, each prefix once, and what of the settings is not.
func (c Case) Plan() (routes []Route, wrong []Wrong) {
	routes = c.egresses()
	for _, name := range c.Networks {
		some, w := c.network(name)
		routes = append(routes, some...)
		wrong = append(wrong, w...)
	}
	for _, a := range c.Addresses {
		if !c.Has(a) {
			wrong = append(wrong, Wrong{
				What: fmt.Sprintf("routers are to be told that %v is here, and this host does not have it", a),
				Do:   fmt.Sprintf("`ip addr add %v/%d dev lo`, or take it out of GRAPEVINE_BGP_ADDRESSES", a, a.BitLen()),
			})
			continue
		}
		routes = append(routes, Route{Prefix: alone(a), For: "this host's address"})
	}
	slices.SortStableFunc(routes, func(a, b Route) int { return a.Prefix.Compare(b.Prefix) })
	return slices.CompactFunc(routes, func(a, b Route) bool { return a.Prefix == b.Prefix }), wrong
}

func alone(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// egresses are the addresses of egresses that this host holds. Who took one over has the better rank, for all routers alike,
// while another host still tells of it: one that is dead, or cut off from the others.
func (c Case) egresses() (routes []Route) {
	for _, e := range egress.All(c.Snap) {
		h, _ := cluster.Get[cluster.EgressHolder](c.Snap, e.Name)
		if e.Twice || h.Host != c.Self || !c.Serves(e.Name) {
			continue
		}
		rank := uint32(1)
		if r, ok := c.Snap.Record(h.Key()); ok {
			rank = rankOf(r.Version.Counter)
		}
		for _, a := range e.Addrs {
			routes = append(routes, Route{Prefix: alone(a), Rank: rank, For: "egress " + e.Name})
		}
	}
	return routes
}

// rankOf makes a rank of a record's version: the later one is the lower.
func rankOf(version uint64) uint32 { return max(1, math.MaxUint32-uint32(version%math.MaxUint32)) }

// network is what this host has of a network: its ranges, and where a container has an address out of another host's, that.
func (c Case) network(name string) (routes []Route, wrong []Wrong) {
	n, there := cluster.Get[cluster.Network](c.Snap, name)
	if why := closed(n, there); why != "" {
		return nil, []Wrong{{What: fmt.Sprintf("routers are to be told of network %s, and are not: %s", name, why), Do: "take it out of GRAPEVINE_BGP_NETWORKS on this host, or make the network anew"}}
	}
	for _, s := range subnets(c.Snap, name) {
		for _, p := range c.Snap.Ring().Owned(c.Self, s) {
			routes = append(routes, Route{Prefix: p, For: "network " + name})
		}
	}
	for e := range cluster.Written[cluster.Endpoint](c.Snap, c.Self) {
		for _, a := range e.Addrs {
			within := func(r Route) bool { return r.Prefix.Contains(a) }
			if e.Network == name && !e.IsClient() && !slices.ContainsFunc(routes, within) {
				routes = append(routes, Route{Prefix: alone(a), For: "network " + name})
			}
		}
	}
	return routes, nil
}

// Open is what a host has of named networks, which the outside is let into there, in order. Other hosts' containers are
// theirs to open.
func Open(snap *cluster.Snapshot, self cluster.NodeID, networks []string) (list []netip.Prefix) {
	for _, name := range networks {
		routes, _ := Case{Self: self, Snap: snap}.network(name)
		for _, r := range routes {
			list = append(list, r.Prefix)
		}
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return slices.Compact(list)
}

// closed is why the outside is not let into a network; "": it may be.
func closed(n cluster.Network, there bool) string {
	switch {
	case !there || n.Removed:
		return "there is none"
	case n.Internal:
		return "it is internal, and has no outside"
	case n.Isolated():
		return "its members are apart from each other (-o isolate=true), which would not keep the outside from them"
	}
	return ""
}

// subnets are those of a network that the outside may be let into, in order.
func subnets(snap *cluster.Snapshot, network string) (list []netip.Prefix) {
	for s := range cluster.All[cluster.Subnet](snap) {
		n, there := cluster.Get[cluster.Network](snap, s.Network)
		if s.Network == network && closed(n, there) == "" {
			list = append(list, s.Prefix)
		}
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return list
}
