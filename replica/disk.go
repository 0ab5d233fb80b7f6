package replica

import (
	"context"
	"fmt"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/internal/store"
)

// commit makes next the state, durably if so wanted: then, on an error, nothing
// has changed. r.mu is held.
func (r *Replica) commit(next *cluster.State, durable bool) error {
	before, snap, touched := r.snap.Load(), next.Snapshot(), next.Touched()
	if snap == before {
		r.state = next // has seen a higher clock, perhaps
		return nil
	}
	if durable {
		if err := r.persist(snap, touched); err != nil {
			return err
		}
	} else {
		r.later(touched)
	}
	r.state = next
	r.snap.Store(snap)
	if before.Rev() != snap.Rev() {
		r.feed.notify()
	}
	return nil
}

// later leaves keys to the next flush. r.mu is held.
func (r *Replica) later(touched []cluster.Key) {
	for _, k := range touched {
		r.dirty[k] = true
	}
	r.behind = true
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// persist writes the keys given and all dirty ones as they are in snap, and the
// marks, in one transaction. They belong together: marks that are ahead of the
// records would keep other hosts from sending those again. r.mu is held.
func (r *Replica) persist(snap *cluster.Snapshot, touched []cluster.Key) error {
	err := r.db.Update(func(tx *store.Tx) error {
		for k := range r.dirty {
			if err := save(tx, snap, k); err != nil {
				return err
			}
		}
		for _, k := range touched {
			if err := save(tx, snap, k); err != nil {
				return err
			}
		}
		return marks.Put(tx, marksKey, cluster.EncodeDigest(cluster.Digest{Marks: snap.Marks()}))
	})
	if err == nil {
		r.behind = false
		clear(r.dirty)
	}
	return err
}

// save makes the record of a key on the disk what it is in snap.
func save(tx *store.Tx, snap *cluster.Snapshot, k cluster.Key) error {
	key := fmt.Sprintf("%03d/%s", k.Kind, k.ID)
	rec, ok := snap.Record(k)
	if !ok {
		return records.Delete(tx, key)
	}
	return records.Put(tx, key, cluster.Encode([]cluster.Record{rec}))
}

// Flush writes to the disk what other hosts have written and is not there yet.
func (r *Replica) Flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.behind {
		return nil
	}
	if err := r.persist(r.snap.Load(), nil); err != nil {
		return fmt.Errorf("flush the cluster's state: %w", err)
	}
	return nil
}

// expire forgets old tombstones.
func (r *Replica) expire() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.state.Clone()
	if len(next.Expire(r.now().Add(-tombstoneAge))) == 0 {
		return nil
	}
	return r.commit(next, true)
}
