// Package reach is the model of the host: what it reaches by itself (its LANs, the routes
// of all its tables, Docker's networks of all drivers, the other hosts), and what of the
// cluster's subnets it therefore cannot take. A cluster's record never takes away what a
// host reaches already.
//
// Judging is pure. The edge is Watcher, which keeps the facts by the kernel's and Docker's
// own words.
package reach

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
)

// Kind says how a host reaches a prefix, which decides what gives way. The numbers are wire
// format (cluster.Reach): append only.
type Kind uint8

// The kinds of thing that a host has.
const (
	OnLink Kind = 1 // on a link of the host: its neighbours, or the host itself
	Routed Kind = 2 // through a router or a tunnel
	Drop   Kind = 3 // a route that drops, such as blackhole
	Docker Kind = 4 // a network of the host's Docker, of any driver but ours
	Pool   Kind = 5 // where the host's Docker takes prefixes of new networks from
	Host   Kind = 6 // the address of a host of the cluster
	Rival  Kind = 7 // a network of ours in the host's Docker, with a subnet that is another one's
)

// Thing is something that a host reaches by itself.
type Thing struct {
	Prefix netip.Prefix
	Kind   Kind
	Name   string // an interface, "via 192.0.2.1 (eth0)", a network's or host's name
}

// String names the thing for people.
func (t Thing) String() string {
	switch t.Kind {
	case OnLink:
		return fmt.Sprintf("%s on %s", t.Prefix, t.Name)
	case Drop:
		return fmt.Sprintf("the route %s, which drops", t.Prefix)
	case Docker:
		return fmt.Sprintf("Docker's network %s (%s)", t.Name, t.Prefix)
	case Pool:
		return fmt.Sprintf("Docker's address pool %s", t.Prefix)
	case Host:
		return fmt.Sprintf("the address %s of host %s", t.Prefix.Addr(), t.Name)
	case Rival:
		return fmt.Sprintf("the network %s with the subnet %s", t.Name, t.Prefix)
	}
	return fmt.Sprintf("the route %s %s", t.Prefix, t.Name)
}

// Remedy says what somebody can do who wants the subnet instead.
func (t Thing) Remedy() string {
	switch t.Kind {
	case Docker:
		return "another --subnet, or remove the other one (docker network rm " + t.Name + ")"
	case Host:
		return "another --subnet"
	case OnLink:
		return "another --subnet, or take " + t.Prefix.String() + " off " + t.Name
	}
	return "another --subnet, or remove the route " + t.Prefix.String()
}

// Bars reports whether a host that has the thing cannot take the subnet p. cidrs are the
// cluster's ranges, which its administrator has set aside for it. One thing gives way inside
// such a range: a route through a router that is wider than the range, as it would to any
// better route. A route that drops leads nowhere: it bars only what it is as good as.
func (t Thing) Bars(p netip.Prefix, cidrs []netip.Prefix) bool {
	if !t.Prefix.Overlaps(p) {
		return false
	}
	switch t.Kind {
	case Pool, Rival:
		return false
	case Drop:
		return t.Prefix.Bits() >= p.Bits()
	case Routed:
		return !t.around(p, cidrs)
	}
	return true
}

// Unwise reports whether p is not to be chosen for a network that did not ask for it.
func (t Thing) Unwise(p netip.Prefix, cidrs []netip.Prefix) bool {
	switch t.Kind {
	case Pool, Drop:
		return t.Prefix.Overlaps(p) && !t.around(p, cidrs)
	}
	return t.Bars(p, cidrs)
}

// around reports whether the thing is wider than a range of the cluster that p lies in.
func (t Thing) around(p netip.Prefix, cidrs []netip.Prefix) bool {
	return slices.ContainsFunc(cidrs, func(c netip.Prefix) bool {
		return within(p, c) && t.Prefix.Bits() < c.Bits() && t.Prefix.Contains(c.Addr())
	})
}

// within reports whether p is a part of q, or q.
func within(p, q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) }

// Clash is why a host cannot take a subnet.
type Clash struct {
	Subnet netip.Prefix
	By     Thing
}

// Judge returns for each of the subnets that a host with these things cannot take the thing
// that bars it, the narrowest of several: in the order of the subnets.
func Judge(things []Thing, subnets, cidrs []netip.Prefix) []Clash {
	return newIndex(subnets).judge(things, cidrs)
}

// index finds subnets by what they overlap: hosts have many things, and clusters many subnets.
type index struct {
	order   []netip.Prefix
	lengths map[bool][]int // of the prefixes, IPv4's and not
}

func newIndex(subnets []netip.Prefix) index {
	x := index{slices.Compact(slices.SortedFunc(slices.Values(subnets), comparePrefix)), map[bool][]int{}}
	for _, p := range x.order {
		if is4 := p.Addr().Is4(); !slices.Contains(x.lengths[is4], p.Bits()) {
			x.lengths[is4] = append(x.lengths[is4], p.Bits())
		}
	}
	return x
}

// overlapping yields the subnets that p overlaps: those that begin inside it, and those around it.
func (x index) overlapping(p netip.Prefix) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		from, _ := slices.BinarySearchFunc(x.order, p.Addr(), func(q netip.Prefix, a netip.Addr) int { return q.Addr().Compare(a) })
		for _, q := range x.order[from:] {
			if !p.Contains(q.Addr()) {
				break
			}
			if !yield(q) {
				return
			}
		}
		for _, bits := range x.lengths[p.Addr().Is4()] {
			if bits >= p.Bits() {
				continue
			}
			around := netip.PrefixFrom(p.Addr(), bits).Masked()
			if _, ok := slices.BinarySearchFunc(x.order, around, comparePrefix); ok && around.Addr() != p.Addr() && !yield(around) {
				return
			}
		}
	}
}

func (x index) judge(things []Thing, cidrs []netip.Prefix) (list []Clash) {
	found := map[netip.Prefix]Thing{}
	for _, t := range things {
		for p := range x.overlapping(t.Prefix) {
			note(found, t, p, cidrs)
		}
	}
	for _, p := range x.order {
		if t, ok := found[p]; ok {
			list = append(list, Clash{p, t})
		}
	}
	return list
}

func note(found map[netip.Prefix]Thing, t Thing, p netip.Prefix, cidrs []netip.Prefix) {
	if old, have := found[p]; t.Bars(p, cidrs) && (!have || better(t, old)) {
		found[p] = t
	}
}

// better reports whether t says more than u of why a subnet is barred.
func better(t, u Thing) bool {
	return cmp.Or(cmp.Compare(u.Prefix.Bits(), t.Prefix.Bits()), cmp.Compare(rank(t.Kind), rank(u.Kind)), cmp.Compare(t.Name, u.Name)) < 0
}

// rank orders kinds of one prefix: Docker's word for its bridge says more than the route.
func rank(k Kind) int {
	return slices.Index([]Kind{Host, Docker, OnLink, Routed, Drop, Pool, Rival}, k)
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// Hosts are the addresses of the cluster's hosts: where VXLAN packets and gossip go, inside WireGuard and outside.
func Hosts(snap *cluster.Snapshot) (list []Thing) {
	for n := range cluster.All[cluster.Node](snap) {
		name := cmp.Or(n.Name, string(n.ID))
		var all []netip.Addr
		for _, a := range []netip.Addr{n.Address(), n.Gossip.Addr(), n.Tunnel()} {
			if a = a.Unmap().WithZone(""); a.IsValid() && !slices.Contains(all, a) {
				all = append(all, a)
				list = append(list, Thing{netip.PrefixFrom(a, a.BitLen()), Host, name})
			}
		}
	}
	return list
}
