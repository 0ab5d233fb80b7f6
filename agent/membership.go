package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/membership/identity"
	"github.com/grapevine-net/grapevine/replica"
)

// seedPatience is how long the seed waits for one of the other hosts to say that
// there is a cluster: then this host has lost its state, and must not begin another.
const seedPatience = 3 * time.Second

// membership makes this host part of a cluster, which it begins if that is its
// role, and keeps its Node record as it should be.
func (a *Agent) membership(ctx context.Context) error {
	if !a.waitProven(ctx) {
		return nil
	}
	// A host that was forgotten keeps running, so that status can say what to do.
	if err := a.describe(); err != nil && !errors.Is(err, cluster.ErrForgotten) {
		return err
	}
	if a.role == identity.Seed {
		if err := a.seed(ctx); err != nil || ctx.Err() != nil {
			return err
		}
	}
	id, err := a.gossip.ClusterKnown(ctx)
	if err != nil {
		return nil //nolint:nilerr // ctx is done, which is no failure
	}
	if id != a.id.Cluster {
		if err := a.setCluster(id); err != nil {
			return err
		}
	}
	a.log.Info("part of the cluster", "cluster", id)
	return nil
}

// seedAlone begins a cluster if no other host is named that could be part of one.
// It comes before gossip listens, so that a host that is told to be alone is not
// taken in by one that still looks for it.
func (a *Agent) seedAlone() error {
	if a.role != identity.Seed || len(a.cfg.Join) > 1 {
		return nil
	}
	a.role = identity.Member
	return a.begin()
}

// begin makes this host the owner of everything in a cluster of a new ID, durably.
// A host that dies after the ring and before the ID is mended by resumeSeed.
func (a *Agent) begin() error {
	if err := ipam.Seed(a.replica, a.self()); err != nil {
		return err
	}
	if err := a.setCluster(identity.NewCluster()); err != nil {
		return err
	}
	a.log.Info("beginning a new cluster", "cluster", a.id.Cluster)
	return nil
}

// seed begins a cluster, unless another host turns out to be part of one. The
// ring and the cluster's ID are durable before any other host hears of them.
func (a *Agent) seed(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, seedPatience)
	defer cancel()
	if id, err := a.gossip.ClusterKnown(wait); err == nil {
		a.log.Info("first in GRAPEVINE_JOIN, but there is a cluster: joining", "cluster", id)
		return nil
	}
	if ctx.Err() != nil {
		return nil
	}
	if err := a.begin(); err != nil {
		return err
	}
	if err := a.gossip.SetClusterID(a.id.Cluster); err != nil {
		return fmt.Errorf("begin a cluster: %w; remove %s and start again", err, a.cfg.State)
	}
	return nil
}

// resumeSeed gives the cluster that this host was about to begin its ID: the
// host owns all numbers, as only a seed does, but is part of no cluster. A host that
// knows more than a seed is part of a cluster, and begins no other: its identity was
// lost, or it was killed after others told it their records and before the ID was on
// the disk. Then one of them tells the ID.
func (a *Agent) resumeSeed() error {
	if a.id.Cluster != "" {
		return nil
	}
	snap := a.replica.Snapshot()
	seeded := snap.Ring().OwnsAll(a.self(), netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	switch {
	case begun(snap, a.self()) && (seeded || a.role == identity.Seed && len(a.cfg.Join) <= 1):
		return fmt.Errorf("%s says that this host is part of no cluster, but %s has the records of one: "+
			"restore both from a backup (`grapevine restore`), else `grapevine forget` this host on another one, and remove %s to join as a new host",
			filepath.Join(a.cfg.State, identity.File), a.db.Path(), a.cfg.State)
	case begun(snap, a.self()):
		a.role = identity.Joiner
	case seeded:
		a.role = identity.Member
		return a.setCluster(identity.NewCluster())
	}
	return nil
}

// begun reports whether there are records that a seed does not have before its cluster
// has an ID: others' and, of its own, more than its claims and its Node record.
func begun(snap *cluster.Snapshot, self cluster.NodeID) bool {
	for r := range snap.Records() {
		if r.Version.Node == ipam.Commons {
			continue
		}
		if r.Version.Node != self || r.Key != (cluster.Node{ID: self}).Key() && r.Key.Kind != cluster.KindClaim {
			return true
		}
	}
	return false
}

// setCluster makes the cluster's ID part of this host's identity, durably.
func (a *Agent) setCluster(id string) error {
	next := a.id
	next.Cluster = id
	if err := next.Save(a.cfg.State); err != nil {
		return err
	}
	a.id.Cluster = id // and nothing else: others read the node ID meanwhile
	return nil
}

// describe writes this host's Node record.
func (a *Agent) describe() error {
	node := a.node(a.replica.Snapshot())
	_, err := a.replica.Update(func(tx *replica.Tx) error { return tx.Put(node) })
	return err
}

// describeAnew writes the Node record again if it has changed, unless this host has none
// (any more): as one that leaves.
func (a *Agent) describeAnew() error {
	snap := a.replica.Snapshot()
	was, there := cluster.Get[cluster.Node](snap, a.id.Node)
	node := a.node(snap)
	if !there || slices.Equal(was.Reaches, node.Reaches) {
		return nil
	}
	_, err := a.replica.Update(func(tx *replica.Tx) error {
		if _, there := cluster.Get[cluster.Node](tx.Snapshot(), a.id.Node); !there || a.leaving.Load() {
			return nil
		}
		return tx.Put(node)
	})
	return err
}

// behindNAT is this host's own address if the others know it by another one; else it is invalid.
func (a *Agent) behindNAT() netip.Addr {
	for _, own := range addressesOf(a.cfg.Bind) {
		if own != a.underlay.Addr.Unmap() {
			return own
		}
	}
	return netip.Addr{}
}

// node is what the cluster is told of this host.
func (a *Agent) node(snap *cluster.Snapshot) cluster.Node {
	return cluster.Node{
		ID: a.self(), Name: a.cfg.Name, VTEP: a.underlay.Addr, Gossip: a.gossip.Addr(),
		VXLANPort: a.cfg.VXLANPort, MTU: a.underlay.MTU, Agent: a.version, Datapath: string(a.vswitch.datapath()),
		Reaches: a.reaches(snap), Hellos: hellosVersion,
		CIDR4: a.cfg.CIDR4, CIDR6: a.cfg.CIDR6, Bind: a.behindNAT(),
	}
}
