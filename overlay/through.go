package overlay

import (
	"net/netip"

	"github.com/grapevine-net/grapevine/cluster"
)

// SecureRange is a range of addresses of which all goes inside WireGuard, and whose it is.
type SecureRange struct {
	Prefix netip.Prefix
	VNID   uint32
	Owner  cluster.NodeID
}

// SecureRanges are those of encrypted networks, or of all, of which each host says the same by the same records: what routes are made of. What
// reaches all networks is none, nor is what could be taken for a host inside, or is on each link.
func SecureRanges(snap *cluster.Snapshot, all bool) (list []SecureRange) {
	t := &topology{nets: newNets(snap, nil)}
	t.share(snap, nil)
	seen := map[netip.Prefix]bool{}
	for _, s := range t.subnet {
		network := t.network[s.Network]
		for _, part := range t.shares[s.Prefix] {
			if seen[part.prefix] {
				continue
			}
			seen[part.prefix] = true
			p := part.prefix
			if !all && !network.Encrypted() || network.VNID == 0 || p.Bits() == 0 || p.Overlaps(cluster.SecureRange) || p.Addr().IsLinkLocalUnicast() || p.Addr().IsMulticast() {
				continue
			}
			list = append(list, SecureRange{p, network.VNID, part.owner})
		}
	}
	return list
}
