package driver

import (
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/internal/docker"
)

// Look makes the watcher look soon: what this host can take may have changed.
func (d *Driver) Look() { d.poke() }

// seeReach passes on which networks of others Docker has, and fills in what this host
// cannot take.
func (d *Driver) seeReach(v *view) {
	if d.cfg.Networks != nil {
		d.cfg.Networks(slices.DeleteFunc(slices.Clone(v.networks), func(n docker.Network) bool {
			_, ours := v.local[n.ID]
			return ours || n.Driver == v.driver
		}))
	}
	if d.cfg.Barred != nil {
		v.barred = d.cfg.Barred(subnetsOf(v.snap))
	}
}

// subnetsOf are the subnets of the cluster's networks.
func subnetsOf(snap *cluster.Snapshot) (list []netip.Prefix) {
	for s := range cluster.All[cluster.Subnet](snap) {
		list = append(list, s.Prefix)
	}
	return list
}
