package overlay

import (
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/policy"
)

// inside is what no name opens by what the cluster knows: who has a name may give it any address, and so that of a
// container or a host. It follows one snapshot after the other, and is made anew only when hosts or subnets are others.
type inside struct {
	snap    *cluster.Snapshot
	hosts   map[netip.Addr]string   // what they are
	subnets map[netip.Prefix]string // by network
	bits    map[length]bool         // of subnets
}

// length is that of a prefix of one family.
type length struct {
	six  bool
	bits int
}

// follow reports whether a snapshot may have more inside than the one before.
func (i *inside) follow(snap *cluster.Snapshot) (changed bool) {
	if i.snap == snap {
		return false
	}
	keys, known := snap.Since(i.snap)
	i.snap = snap
	if known && !slices.ContainsFunc(keys, func(k cluster.Key) bool {
		return k.Kind == cluster.KindNode || k.Kind == cluster.KindAddresses || k.Kind == cluster.KindSubnet
	}) {
		return false
	}
	i.hosts, i.subnets, i.bits = map[netip.Addr]string{}, map[netip.Prefix]string{}, map[length]bool{}
	for n := range cluster.All[cluster.Node](snap) {
		told, _ := cluster.Get[cluster.Addresses](snap, string(n.ID))
		for _, own := range append([]netip.Addr{n.VTEP, n.Bind, n.Gossip.Addr(), n.WireGuardAt.Addr()}, told.List...) {
			if own.IsValid() {
				i.hosts[own.Unmap().WithZone("")] = "host " + n.Name
			}
		}
	}
	for s := range cluster.All[cluster.Subnet](snap) {
		i.subnets[s.Prefix] = "in the subnet of network " + s.Network
		i.bits[length{s.Prefix.Addr().Is6(), s.Prefix.Bits()}] = true
	}
	return true
}

// is says what an address is that no name opens, or nothing.
func (i *inside) is(a netip.Addr) string {
	if why := policy.NeverByName(a); why != "" {
		return why
	}
	for _, r := range pipeline.HostRanges {
		if r.Contains(a) {
			return "an address of hosts"
		}
	}
	if cluster.SecureRange.Contains(a) {
		return "an address of hosts"
	}
	if host, there := i.hosts[a]; there {
		return host
	}
	for l := range i.bits {
		if l.six != a.Is6() {
			continue
		}
		if p, err := a.Prefix(l.bits); err == nil && i.subnets[p] != "" {
			return i.subnets[p]
		}
	}
	return ""
}
