package membership

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/membership/backup"
)

// Backup writes this host's state to w.
func (m *Member) Backup(_ context.Context, w io.Writer) error {
	return backup.Write(w, backup.Manifest{
		Node: m.id.Node, Cluster: m.gossip.ClusterID(), Name: m.cfg.Name, Agent: m.cfg.Version, Made: time.Now().UTC(),
	}, m.cfg.State, m.db)
}

// methodRecall asks what the called host has heard of the caller: the highest
// counter of its writes, 8 bytes.
const methodRecall = "agent.recall"

// recall answers methodRecall, to an agent of before the list with the counter alone.
func (m *Quarantine) recall(_ context.Context, from string, body []byte) ([]byte, error) {
	snap := m.replica.Snapshot()
	if snap.Tombstone(cluster.Node{ID: cluster.NodeID(from)}.Key()) {
		return nil, cluster.ErrForgotten
	}
	r := recollection{highest: snap.Highest(cluster.NodeID(from)), restored: m.unproven.Load()}
	for n := range cluster.All[cluster.Node](snap) {
		r.hosts = append(r.hosts, n.ID)
	}
	text := r.encode()
	if len(body) == 0 {
		if r.restored {
			return nil, errors.New("this host was restored from a backup itself")
		}
		return text[:8], nil
	}
	return text, nil
}

// recollection is the answer to methodRecall:
//
//	highest 8 | restored 1 | hosts 16 each
type recollection struct {
	highest  uint64 // version of what the caller wrote, and the host has heard of
	restored bool   // the host was restored itself, and does not know what it has lost
	hosts    []cluster.NodeID
	old      bool // an older agent's, with nothing but highest
}

const nodeIDSize = 16

func (r recollection) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, r.highest)
	b = append(b, map[bool]byte{true: 1}[r.restored])
	for _, id := range r.hosts {
		b = append(b, id...)
	}
	return b
}

func decodeRecollection(b []byte) (r recollection, err error) {
	if len(b) != 8 && (len(b) < 9 || (len(b)-9)%nodeIDSize != 0) {
		return r, fmt.Errorf("%d bytes are no answer to %s", len(b), methodRecall)
	}
	r.highest, r.old = binary.BigEndian.Uint64(b), len(b) == 8
	if !r.old {
		r.restored = b[8] != 0
		for rest := b[9:]; len(rest) > 0; rest = rest[nodeIDSize:] {
			r.hosts = append(r.hosts, cluster.NodeID(rest[:nodeIDSize]))
		}
	}
	return r, nil
}

// alonePatience is how long a host that was restored as the only one (`restore --alone`) asks
// all the same, lest somebody knows better.
const alonePatience = 5 * time.Second

// proveRestored asks every host of the cluster, after a restore, whether it has
// heard more of this host than the backup has. If none has, the backup is as good
// as what was lost. If one has, this host must join as a new one. What a host says that was
// restored itself proves nothing: of what both have lost neither knows.
func (m *Quarantine) proveRestored(ctx context.Context) error {
	if !m.unproven.Load() {
		return nil
	}
	begun, own := time.Now(), m.replica.Snapshot().Mark(m.Self()) // as the backup has it
	answers := map[cluster.NodeID]recollection{}                  // of hosts that were not restored
	for {
		waiting, unheard := false, false // unheard: one that is alive has not answered
		for n := range cluster.All[cluster.Node](m.replica.Snapshot()) {
			if _, has := answers[n.ID]; has || n.ID == m.Self() {
				continue
			}
			r, err := m.askRecall(ctx, n.ID)
			switch {
			case err != nil:
				waiting, unheard = true, unheard || m.Answers(n.ID)
			case r.highest > own:
				m.log.Error("the backup is older than what the cluster knows", "host", n.Name)
				m.replica.Distrust(fmt.Errorf("%w: restored from a backup with write %d, host %s has heard of %d", cluster.ErrLostWrites, own, hostName(m.replica.Snapshot(), n.ID), r.highest))
				return nil
			case !r.restored:
				answers[n.ID] = r
			}
		}
		alone := m.id.Alone && !unheard && time.Since(begun) > alonePatience
		if m.replica.Trouble() == nil && (alone || !waiting && m.vouched(answers)) {
			next := m.id
			next.Restored, next.Alone = false, false
			if err := next.Save(m.cfg.State); err != nil {
				return err
			}
			m.id.Restored, m.id.Alone = false, false
			m.unproven.Store(false)
			m.log.Info("nothing is missing in the backup", "hosts that agree", len(answers), "alone", alone)
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// vouched reports whether the answers are all that there are to be had, and worth something.
// All: this host has heard of all hosts that others know, since some may have joined after the
// backup. Worth something: not all hosts that answered are new ones. Those own nothing, and know
// only what this host has told them itself.
func (m *Quarantine) vouched(answers map[cluster.NodeID]recollection) bool {
	snap := m.replica.Snapshot()
	for _, r := range answers {
		if r.old {
			select {
			case <-m.replica.CaughtUp():
			default:
				return false
			}
		}
		for _, id := range r.hosts {
			if _, known := snap.Record(cluster.Node{ID: id}.Key()); !known {
				return false
			}
		}
	}
	for c := range snap.Ring().Claims() {
		if _, has := answers[c.Owner]; has {
			return true
		}
	}
	return false
}

func (m *Quarantine) askRecall(ctx context.Context, id cluster.NodeID) (r recollection, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	b, err := m.gossip.Call(ctx, string(id), methodRecall, []byte{1})
	if err != nil {
		return r, err
	}
	if r, err = decodeRecollection(b); err != nil {
		return r, fmt.Errorf("host %s: %w", id, err)
	}
	return r, nil
}
