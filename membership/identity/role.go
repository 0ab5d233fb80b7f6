package identity

import (
	"net/netip"
	"slices"
)

// Role is what a host does about the cluster at its start.
type Role int

const (
	// Member is part of a cluster: its state says which cluster it is part of.
	Member Role = iota
	// Joiner waits for a ring to reach it.
	Joiner
	// Seed begins a cluster, unless one of the other hosts in join has a ring.
	Seed
)

func (r Role) String() string { return [...]string{"member", "joiner", "seed"}[r] }

// Decide finds a host's role from its state, the addresses of its own, and the
// list it is to join: the host whose own address stands first seeds, or one with
// no list at all. The list is the same everywhere, so that of all the hosts of a
// new cluster exactly one seeds.
func Decide(id Identity, own []netip.Addr, join []netip.AddrPort) Role {
	switch {
	case id.Cluster != "":
		return Member
	case len(join) == 0 || slices.Contains(own, join[0].Addr()):
		return Seed
	default:
		return Joiner
	}
}
