package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// Joiner makes this host part of a cluster, and describes it there.
type Joiner struct {
	*host
	quarantine *Quarantine
}

// join makes this host part of a cluster, which it begins if that is its
// role, and keeps its Node record as it should be.
func (m *Joiner) join(ctx context.Context) error {
	if !m.quarantine.WaitProven(ctx) {
		return nil
	}
	// A host that was forgotten keeps running, so that status can say what to do.
	if err := m.describe(); err != nil && !errors.Is(err, cluster.ErrForgotten) {
		return err
	}
	if m.role == identity.Seed {
		if err := m.seed(ctx); err != nil || ctx.Err() != nil {
			return err
		}
	}
	id, err := m.gossip.ClusterKnown(ctx)
	if err != nil {
		return nil //nolint:nilerr // ctx is done, which is no failure
	}
	if id != m.id.Cluster {
		if err := m.setCluster(id); err != nil {
			return err
		}
	}
	m.log.Info("part of the cluster", "cluster", id)
	return nil
}

// seedAlone begins a cluster if no other host is named that could be part of one.
// It comes before gossip listens, so that a host that is told to be alone is not
// taken in by one that still looks for it.
func (m *Joiner) seedAlone() error {
	if m.role != identity.Seed || len(m.cfg.Join) > 1 {
		return nil
	}
	m.role = identity.Member
	return m.begin()
}

// begin makes this host the owner of everything in a cluster of a new ID, durably.
// A host that dies after the ring and before the ID is mended by resumeSeed.
func (m *Joiner) begin() error {
	if err := ipam.Seed(m.replica, m.Self()); err != nil {
		return err
	}
	if err := m.setCluster(identity.NewCluster()); err != nil {
		return err
	}
	m.log.Info("beginning a new cluster", "cluster", m.id.Cluster)
	return nil
}

// seed begins a cluster, unless another host turns out to be part of one. The
// ring and the cluster's ID are durable before any other host hears of them.
func (m *Joiner) seed(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, seedPatience)
	defer cancel()
	if id, err := m.gossip.ClusterKnown(wait); err == nil {
		m.log.Info("first in GRAPEVINE_JOIN, but there is a cluster: joining", "cluster", id)
		return nil
	}
	if ctx.Err() != nil {
		return nil
	}
	if err := m.begin(); err != nil {
		return err
	}
	if err := m.gossip.SetClusterID(m.id.Cluster); err != nil {
		return fmt.Errorf("begin a cluster: %w; remove %s and start again", err, m.cfg.State)
	}
	return nil
}

// resumeSeed gives the cluster that this host was about to begin its ID: the
// host owns all numbers, as only a seed does, but is part of no cluster. A host that
// knows more than a seed is part of a cluster, and begins no other: its identity was
// lost, or it was killed after others told it their records and before the ID was on
// the disk. Then one of them tells the ID.
func (m *Joiner) resumeSeed() error {
	if m.id.Cluster != "" {
		return nil
	}
	snap := m.replica.Snapshot()
	seeded := ipam.Alone(snap.Ring(), m.Self())
	switch {
	case begun(snap, m.Self()) && (seeded || m.role == identity.Seed && len(m.cfg.Join) <= 1):
		return fmt.Errorf("%s says that this host is part of no cluster, but %s has the records of one: "+
			"restore both from a backup (`grapevine restore`), else `grapevine forget` this host on another one, and remove %s to join as a new host",
			filepath.Join(m.cfg.State, identity.File), m.db.Path(), m.cfg.State)
	case begun(snap, m.Self()):
		m.role = identity.Joiner
	case seeded:
		m.role = identity.Member
		return m.setCluster(identity.NewCluster())
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
func (m *Joiner) setCluster(id string) error {
	next := m.id
	next.Cluster = id
	if err := next.Save(m.cfg.State); err != nil {
		return err
	}
	m.id.Cluster = id // and nothing else: others read the node ID meanwhile
	return nil
}

// describe writes this host's Node record.
func (m *Joiner) describe() error {
	node := m.node(m.replica.Snapshot())
	_, err := m.replica.Update(func(tx *replica.Tx) error { return tx.Put(node) })
	return err
}

// DescribeAgain writes the Node record, and that of this host's addresses, again if they have changed, unless this host has
// none (any more): as one that leaves.
func (m *Joiner) DescribeAgain() error {
	snap := m.replica.Snapshot()
	was, there := cluster.Get[cluster.Node](snap, m.id.Node)
	if !there {
		return nil
	}
	var news []cluster.Body
	if node := m.node(snap); !slices.Equal(was.Reaches, node.Reaches) || was.Enforces != node.Enforces ||
		!was.Turn.Equal(node.Turn) || !bytes.Equal(was.SecureKey(), node.SecureKey()) || !bytes.Equal(was.KeyProof, node.KeyProof) ||
		!bytes.Equal(was.PolicyKeys, node.PolicyKeys) || !slices.Equal(was.Labels, node.Labels) {
		news = append(news, node)
	}
	had, _ := cluster.Get[cluster.Addresses](snap, m.id.Node)
	if own := m.to.Own(); own != nil && !slices.Equal(had.List, own) {
		news = append(news, cluster.Addresses{Host: m.Self(), List: own})
	}
	if len(news) == 0 {
		return nil
	}
	_, err := m.replica.Update(func(tx *replica.Tx) error {
		if _, there := cluster.Get[cluster.Node](tx.Snapshot(), m.id.Node); !there || m.leaving.Load() {
			return nil
		}
		for _, b := range news {
			if err := tx.Put(b); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// node is what the cluster is told of this host.
func (m *Joiner) node(snap *cluster.Snapshot) cluster.Node {
	n := m.to.Describe(snap)
	n.ID, n.Name, n.Gossip, n.Agent, n.CIDR4, n.CIDR6 = m.Self(), m.cfg.Name, m.gossip.Addr(), m.cfg.Version, m.cfg.CIDR4, m.cfg.CIDR6
	return n
}
