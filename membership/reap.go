package membership

import (
	"context"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// reapPause is the least time between two looks for what is left of forgotten hosts.
const reapPause = 300 * time.Millisecond

// reap deletes what forgotten hosts wrote of their containers while they were cut off: it
// comes when they are reached again, and who took over from them has not seen it. Else the
// names would lead to addresses that are others', and the networks would be in use for ever.
func (m *Forgetter) reap(ctx context.Context) error {
	for {
		changed := m.replica.Watch()
		if keys := remains(m.replica.Snapshot(), m.Self(), m.alloc.Coordinator()); len(keys) > 0 && m.quarantine.Quarantined() == nil {
			_, err := m.replica.Update(func(tx *replica.Tx) error {
				for _, k := range keys {
					tx.Delete(k)
				}
				return nil
			})
			if err != nil {
				m.log.Warn("delete what forgotten hosts said of their containers", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reapPause):
		}
	}
}

// remains are the live records of containers of hosts that are forgotten, which self is to
// delete: who took over from them, or where that one is gone, the coordinator.
func remains(snap *cluster.Snapshot, self, coordinator cluster.NodeID) (keys []cluster.Key) {
	for r := range snap.Records() {
		if r.Key.Kind != cluster.KindNode { // the first of all kinds
			break
		}
		heir, dead := r.Version.Node, cluster.NodeID(r.Key.ID)
		if r.Deleted == 0 || dead == self {
			continue
		}
		if _, there := cluster.Get[cluster.Node](snap, string(heir)); !there {
			heir = coordinator
		}
		if heir != self {
			continue
		}
		for e := range cluster.Written[cluster.Endpoint](snap, dead) {
			keys = append(keys, e.Key())
		}
		for u := range cluster.Written[cluster.Use](snap, dead) {
			keys = append(keys, u.Key())
		}
		for l := range cluster.Written[cluster.Listen](snap, dead) {
			keys = append(keys, l.Key())
		}
		keys = append(keys, cluster.Only(snap, dead)...)
	}
	return keys
}
