package driver

import (
	"context"
	"errors"
	"net/netip"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/replica"
)

// Look makes the watcher look soon: what this host can take may have changed.
func (d *Driver) Look() { d.poke() }

// seeReach passes on which networks of others Docker has, and fills in what this host
// cannot take.
func (d *Driver) seeReach(v *view) {
	if d.cfg.Networks != nil {
		d.cfg.Networks(v.others())
	}
	if d.cfg.Barred != nil {
		v.barred = d.cfg.Barred(subnetsOf(v.snap))
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

// partWith ends the part that the containers of a network have in another one, with which
// it was taken for one: they are not to be found there, nor to send there, any more.
func (d *Driver) partWith(ctx context.Context, id string) (err error) {
	endpoints := d.endpointsOf(id)
	for _, e := range endpoints {
		err = errors.Join(err, d.overlay.Detach(ctx, e))
	}
	if len(endpoints) == 0 {
		return err
	}
	_, wrote := d.replica.Update(func(tx *replica.Tx) error {
		for _, e := range endpoints {
			tx.Delete(cluster.Endpoint{ID: e}.Key())
		}
		return nil
	})
	return errors.Join(err, wrote)
}

// subnetsOf are the subnets of the cluster's networks.
func subnetsOf(snap *cluster.Snapshot) (list []netip.Prefix) {
	for s := range cluster.All[cluster.Subnet](snap) {
		list = append(list, s.Prefix)
	}
	return list
}
