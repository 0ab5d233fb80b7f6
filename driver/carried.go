package driver

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/store"
)

// When a host that was forgotten boots, Docker starts the containers that have a restart policy, each
// once, and answers nobody until it is done with that: their networks have to go on before it could
// be asked what they are. So the new host takes along what the one before had noted of them.

// Carried are the networks that a host had in Docker.
type Carried struct{ networks map[string]localNetwork }

// CarriedNetworks reads what a host's state file has of its networks, or, if it had taken up none
// yet, what the one before had.
func CarriedNetworks(db store.File) (f Carried, err error) {
	f.networks = map[string]localNetwork{}
	err = db.View(func(tx *store.Tx) error {
		for _, bucket := range []interface {
			ForEach(*store.Tx, func(string, localNetwork) error) error
		}{carriedBucket, networkBucket} {
			if err := bucket.ForEach(tx, func(id string, n localNetwork) error {
				if n.Learnt && n.Conflict == "" && len(n.Gateways) == len(n.Prefixes) && len(n.Prefixes) > 0 {
					f.networks[id] = n
				}
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return f, fmt.Errorf("read the networks that this host had: %w", err)
	}
	return f, nil
}

// Save puts them into the state file of the new host.
func (f Carried) Save(db store.File) error {
	if len(f.networks) == 0 {
		return nil
	}
	err := db.Update(func(tx *store.Tx) error {
		for _, id := range sortedKeys(f.networks) {
			if err := carriedBucket.Put(tx, id, f.networks[id]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("take the networks that this host had along: %w", err)
	}
	return nil
}

// takeUp makes a network of the host that this one was its own, if id is one: a container is
// about to be on it, so whatever the cluster has of it. It is no error if it is none.
func (d *networks) takeUp(ctx context.Context, id string) error {
	d.taking.Lock()
	defer d.taking.Unlock()
	d.core.mu.Lock()
	n, carried := d.core.local.carried[id]
	_, known := d.core.local.networks[id]
	d.core.mu.Unlock()
	if known || !carried {
		return nil
	}
	dn := docker.Network{ID: id, Name: n.Name, Internal: n.Internal, Options: n.Options, Labels: n.Labels}
	for i, p := range n.Prefixes {
		pool := docker.IPAM{Subnet: p.String()}
		if n.Gateways[i].IsValid() {
			pool.Gateway = n.Gateways[i].String()
		}
		dn.Pools = append(dn.Pools, pool)
	}
	if err := d.adopt(ctx, dn); err != nil {
		return fmt.Errorf("network %s, which this host had before it was forgotten, cannot go on: %w", n.Name, err)
	}
	d.core.cfg.Log.Info("a network from before this host was a new one goes on", "network", n.Name)
	_, err := d.learn(ctx, dn)
	return err
}

// takeUpPrefix does that for the network that has a subnet, of which an address is asked for.
func (d *networks) takeUpPrefix(p netip.Prefix) error {
	d.core.mu.Lock()
	var id string
	for _, n := range d.core.local.carried {
		if slices.Contains(n.Prefixes, p) {
			id = n.ID
		}
	}
	d.core.mu.Unlock()
	if id == "" {
		return nil
	}
	return d.takeUp(context.Background(), id)
}

// takeUpKnown takes up those that the cluster has with the same subnets: they are there before
// anybody asks for them. What cannot be is tried again when somebody does, or Docker lists it.
func (d *networks) takeUpKnown(ctx context.Context) {
	snap := d.core.replica.Snapshot()
	d.core.mu.Lock()
	carried := maps.Clone(d.core.local.carried)
	d.core.mu.Unlock()
	for _, id := range sortedKeys(carried) {
		n := carried[id]
		rec, live := cluster.Get[cluster.Network](snap, n.Name)
		if !live || rec.Removed || slices.ContainsFunc(n.Prefixes, func(p netip.Prefix) bool {
			s, live := cluster.Get[cluster.Subnet](snap, p.String())
			return !live || s.Network != n.Name
		}) {
			continue
		}
		if err := d.takeUp(ctx, id); err != nil {
			d.core.cfg.Log.Debug("take up a network from before", "network", n.Name, "err", err)
		}
	}
}

// dropCarried forgets those that have been taken up, and those that Docker does not have any more.
func (d *networks) dropCarried(v view) error {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	var gone []string
	for id := range d.core.local.carried {
		_, taken := d.core.local.networks[id]
		if taken || !slices.ContainsFunc(v.networks, func(n docker.Network) bool { return n.ID == id }) {
			gone = append(gone, id)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	err := d.core.local.db.Update(func(tx *store.Tx) error {
		for _, id := range gone {
			if err := carriedBucket.Delete(tx, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget what this host had before: %w", err)
	}
	for _, id := range gone {
		delete(d.core.local.carried, id)
	}
	return nil
}
