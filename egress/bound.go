package egress

import (
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
)

// Binding says of a container, or of a subnet of them, with which addresses it leaves; none: it does not.
type Binding struct {
	Prefix netip.Prefix
	Addrs  []netip.Addr
}

// Bound are the addresses of containers, by subnet or one by one, that leave by an egress or not at all: a host that does
// not hold it sends nothing of theirs to the outside, but for answers to who came in by it.
func Bound(snap *cluster.Snapshot, self cluster.NodeID) (list []Binding) {
	all := All(snap)
	if len(all) == 0 {
		return nil
	}
	choice := NewChoice(snap, all)
	bound := func(network string) bool {
		n, ok := cluster.Get[cluster.Network](snap, network)
		return ok && n.VNID != 0
	}
	named, whole := map[string]cluster.Egress{}, map[string]cluster.Egress{}
	for _, e := range all {
		named[e.Name] = e.Egress
		for _, n := range e.Networks {
			if len(e.Labels) == 0 && !slices.Contains(e.Taken, n) && !choice.Asks(n) && bound(n) {
				whole[n] = e.Egress
			}
		}
	}
	for s := range cluster.All[cluster.Subnet](snap) {
		if e, ok := whole[s.Network]; ok {
			list = append(list, Binding{s.Prefix, e.Addrs})
		}
	}
	for _, l := range choice.Leaving(self) {
		if bound(l.Network) && (l.By != "" || !l.Known) {
			list = append(list, Binding{netip.PrefixFrom(l.Addr, l.Addr.BitLen()), named[l.By].Addrs})
		}
	}
	return list
}
