package driver

import (
	"net/netip"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
)

// Look is Driver.Look.
func (d *mirror) Look() { d.core.poke() }

// seeReach passes on which networks of others Docker has, and fills in what this host
// cannot take.
func (d *mirror) seeReach(v *view) {
	if d.core.cfg.Networks != nil {
		d.core.cfg.Networks(v.others())
	}
	if d.core.cfg.Barred != nil {
		v.barred = d.core.cfg.Barred(subnetsOf(v.snap))
	}
}

// others are Docker's networks that are not the cluster's: of other drivers, and rivals of ours.
// The draft of a network (--config-only) is nobody's: what it has is for the network made from it.
func (v view) others() (others, rivals []docker.Network) {
	for _, n := range v.networks {
		known, ours := v.local[n.ID]
		switch {
		case n.ConfigOnly:
		case ours && known.Conflict != "":
			rivals = append(rivals, n)
		case !ours && n.Driver != v.driver:
			others = append(others, n)
		}
	}
	return others, rivals
}

// subnetsOf are the subnets of the cluster's networks.
func subnetsOf(snap *cluster.Snapshot) (list []netip.Prefix) {
	for s := range cluster.All[cluster.Subnet](snap) {
		list = append(list, s.Prefix)
	}
	return list
}
