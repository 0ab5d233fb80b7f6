package pipeline

import (
	"net/netip"
	"slices"
)

// kind is one list of an input's objects, as [Compiler] goes by it.
type kind interface {
	clear(in *objects)
	count(in *objects) int
	// differ puts those of a into gone, and those of b into come, whose flows may differ.
	differ(a, b, gone, come *objects, moved moved)
}

// moved are the VTEPs that have another index, or are known only now: what is behind them has other flows.
type moved map[netip.Addr]bool

// kinds are the lists of objects of which each asks for its own flows. Of an input that differs in anything else all is compiled anew.
// VTEPs come first, since others are behind them.
var kinds = []kind{
	list[VTEP, netip.Addr]{func(in *objects) *[]VTEP { return &in.VTEPs }, func(v VTEP) netip.Addr { return v.Addr }, VTEP.equal, nil},
	list[Subnet, Subnet]{func(in *objects) *[]Subnet { return &in.Subnets }, itself[Subnet], same[Subnet], nil},
	list[Port, string]{func(in *objects) *[]Port { return &in.Ports }, func(p Port) string { return p.Endpoint }, Port.equal, nil},
	list[Route, Route]{func(in *objects) *[]Route { return &in.Routes }, itself[Route], same[Route], func(r Route, m moved) bool { return m[r.VTEP] || m[r.Secure] }},
	list[Neighbour, Neighbour]{func(in *objects) *[]Neighbour { return &in.Neighbours }, itself[Neighbour], same[Neighbour], func(n Neighbour, m moved) bool { return m[n.VTEP] }},
	list[Group, GroupKey]{func(in *objects) *[]Group { return &in.Groups }, Group.Key, Group.equal, func(g Group, m moved) bool {
		return slices.ContainsFunc(g.VTEPs, func(v netip.Addr) bool { return m[v] })
	}},
	list[Unheard, netip.Addr]{func(in *objects) *[]Unheard { return &in.Unheard }, func(u Unheard) netip.Addr { return u.Addr }, Unheard.equal, nil},
	list[Guard, string]{func(in *objects) *[]Guard { return &in.Policy.Guards }, func(g Guard) string { return g.Endpoint }, Guard.equal, nil},
	list[PolicyRule, uint32]{func(in *objects) *[]PolicyRule { return &in.Policy.Rules }, func(r PolicyRule) uint32 { return r.ID }, PolicyRule.equal, nil},
	list[Opening, openingKey]{func(in *objects) *[]Opening { return &in.Policy.Openings }, Opening.key, Opening.equal, nil},
	list[Crowd, Crowd]{func(in *objects) *[]Crowd { return &in.Policy.Crowds }, itself[Crowd], same[Crowd], nil},
	list[member, member]{func(in *objects) *[]member { return &in.members }, itself[member], same[member], nil},
}

// list is a kind.
type list[T any, K comparable] struct {
	of     func(*objects) *[]T
	id     func(T) K
	equal  func(T, T) bool
	behind func(T, moved) bool // nil: it is behind no VTEP
}

func (l list[T, K]) clear(in *objects)     { *l.of(in) = nil }
func (l list[T, K]) count(in *objects) int { return len(*l.of(in)) }

func (l list[T, K]) differ(a, b, gone, come *objects, moved moved) {
	equal := l.equal
	if l.behind != nil && len(moved) > 0 {
		equal = func(v, o T) bool { return l.equal(v, o) && !l.behind(v, moved) }
	}
	*l.of(gone), *l.of(come) = unlike(*l.of(a), *l.of(b), l.id, equal)
}
