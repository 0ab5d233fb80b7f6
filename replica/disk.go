package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
)

// Buckets of the state file.
var (
	// records by kind and ID, each as cluster.Encode writes it.
	records = store.NewBucket[[]byte]("replica/records")
	// marks, as cluster.EncodeDigest writes them: under ownKey this host's own,
	// under marksKey all of them as they were when all records were on the disk.
	marks = store.NewBucket[[]byte]("replica/marks")
)

const (
	ownKey   = "own"
	marksKey = "all"
	// settledKey is there, with an empty digest, if the state was cluster.Settled.
	settledKey = "settled"
)

// flushBatch is how many records a flush writes at once: others can write in between.
const flushBatch = 4096

// load reads all records, marks and graves.
func load(db *store.DB) (recs []cluster.Record, known map[cluster.NodeID]uint64, settled bool, dug map[string]grave, err error) {
	dug = map[string]grave{}
	known = map[cluster.NodeID]uint64{}
	err = db.View(func(tx *store.Tx) error {
		err := marks.ForEach(tx, func(key string, raw []byte) error {
			settled = settled || key == settledKey
			d, err := cluster.DecodeDigest(raw)
			for node, counter := range d.Marks {
				known[node] = max(known[node], counter)
			}
			return err
		})
		return errors.Join(err, records.ForEach(tx, func(_ string, raw []byte) error {
			one, err := cluster.Decode(raw)
			recs = append(recs, one...)
			return err
		}), graves.ForEach(tx, func(name string, g grave) error {
			dug[name] = g
			return nil
		}))
	})
	return recs, known, settled, dug, err
}

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
		touched = nil
	}
	r.state = next
	r.snap.Store(snap)
	r.later(touched)
	if before.Rev() != snap.Rev() {
		r.feed.notify()
	}
	return nil
}

// later leaves keys, and the marks, to the next flush. r.mu is held.
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

// persist makes the records of keys on the disk what they are in snap, and the
// own mark. The other marks wait for a flush: marks that are ahead of the records
// would keep other hosts from sending those again. r.mu is held.
func (r *Replica) persist(snap *cluster.Snapshot, keys []cluster.Key) error {
	r.disk.Lock()
	defer r.disk.Unlock()
	keys = slices.SortedFunc(slices.Values(keys), cluster.Key.Compare) // as in batchOf
	err := r.write(func(tx *store.Tx) error {
		if err := save(tx, snap, keys); err != nil {
			return err
		}
		own := map[cluster.NodeID]uint64{}
		if n := snap.Mark(r.self); n > 0 {
			own[r.self] = n
		}
		if err := marks.Put(tx, ownKey, cluster.EncodeDigest(cluster.Digest{Marks: own})); err != nil || r.beside == nil {
			return err
		}
		return r.beside(tx, r.snap.Load(), snap, keys)
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		delete(r.dirty, k)
	}
	return nil
}

// write writes to the disk, and notes whether that failed. r.disk is held.
func (r *Replica) write(fn func(*store.Tx) error) error {
	err := r.db.Update(fn)
	was := r.failed.Load()
	if err != nil {
		r.failed.Store(&failure{err, r.now(), was != nil && was.missed})
		return diskError{err}
	}
	if was != nil && !was.missed {
		r.failed.CompareAndSwap(was, nil)
	}
	return nil
}

// failure is why the disk did not take what was written, and when. If what others wrote was missed
// by it, there being room again is not enough: this host has to hear it.
type failure struct {
	err    error
	at     time.Time
	missed bool
}

// miss notes that something of others could not be written.
func (r *Replica) miss() {
	if f := r.failed.Load(); f != nil {
		r.failed.CompareAndSwap(f, &failure{f.err, f.at, true})
	}
}

// failureMemory is longer than it takes until what could not be written is tried again.
const failureMemory = 10 * time.Second

// Unwritten returns why the disk did not take what was last written, nil if it did and this host
// has heard again what it missed by that, or if that was so long ago that there is nothing to be
// tried again.
func (r *Replica) Unwritten() error {
	if f := r.failed.Load(); f != nil && r.now().Sub(f.at) < failureMemory {
		return f.err
	}
	return nil
}

// diskError is the disk's: whoever sent what could not be written is not to blame.
type diskError struct{ error }

func (e diskError) Unwrap() error { return e.error }

// Local says so to package gossip.
func (diskError) Local() bool { return true }

func save(tx *store.Tx, snap *cluster.Snapshot, keys []cluster.Key) error {
	for _, k := range keys {
		name := nameOf(k)
		var err error
		if rec, ok := snap.Record(k); ok {
			err = records.Put(tx, name, cluster.Encode([]cluster.Record{rec}))
		} else {
			err = records.Delete(tx, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nameOf is a record's key in the file: its kind in three digits, and its ID.
func nameOf(k cluster.Key) string {
	return string([]byte{'0' + byte(k.Kind/100), '0' + byte(k.Kind/10%10), '0' + byte(k.Kind%10), '/'}) + k.ID
}

// Flush writes to the disk what other hosts have written and is not there yet.
func (r *Replica) Flush(ctx context.Context) error {
	r.flushing.Lock()
	defer r.flushing.Unlock()
	batches := 0
	for more := true; more; batches++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if more, err = r.flushSome(); err != nil {
			return fmt.Errorf("flush the cluster's state: %w", err)
		}
	}
	if batches >= bulk {
		debug.FreeOSMemory()
	}
	return nil
}

// bulk are the batches of a flush after which memory goes back to the system: this host has
// caught up, and what that took would otherwise stay until the heap has grown to it again.
const bulk = 4

// flushSome flushes one batch, and with the last one the marks. Others merge
// meanwhile; who needs the disk waits. r.flushing is held.
func (r *Replica) flushSome() (more bool, err error) {
	r.mu.Lock()
	if !r.behind {
		r.mu.Unlock()
		return false, nil
	}
	keys := r.batchOf()
	snap, settled, last := r.snap.Load(), r.state.Settled(), len(r.dirty) == 0
	r.behind = !last
	// What is newer than snap must come to the disk after it.
	r.disk.Lock()
	r.mu.Unlock()
	err = r.write(func(tx *store.Tx) error {
		if err := save(tx, snap, keys); err != nil || !last {
			return err
		}
		if settled {
			if err := marks.Put(tx, settledKey, cluster.EncodeDigest(cluster.Digest{})); err != nil {
				return err
			}
		}
		return marks.Put(tx, marksKey, cluster.EncodeDigest(cluster.Digest{Marks: snap.Marks()}))
	})
	r.disk.Unlock()
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.later(keys)
		return false, err
	}
	return !last, nil
}

// batchOf takes the next keys to flush out of dirty. They come in order, from one batch to
// the next as well: bbolt takes the square of the time for keys at random, and writes a page
// again for each batch that has one of its keys. r.mu is held.
func (r *Replica) batchOf() (keys []cluster.Key) {
	if len(r.queue) == 0 {
		r.queue = slices.SortedFunc(maps.Keys(r.dirty), cluster.Key.Compare)
	}
	for len(r.queue) > 0 && len(keys) < r.batch {
		if k := r.queue[0]; r.dirty[k] {
			keys = append(keys, k)
			delete(r.dirty, k)
		}
		r.queue = r.queue[1:]
	}
	if len(r.dirty) == 0 {
		r.dirty, r.queue = map[cluster.Key]bool{}, nil // of a hundred thousand the room stays
	}
	return keys
}

// grave says since when there has been a tombstone here: of which version, and the age of
// the state file then.
type grave struct {
	Counter uint64
	Node    cluster.NodeID
	Since   time.Duration
}

// graves of tombstones, by the names of their keys.
var graves = store.NewBucket[grave]("replica/graves")

// Expire forgets the tombstones that have been here for tombstoneAge, while agents ran. Run
// does so each hour. What
// their writer's clock said, or this host's says, plays no part: a clock that is wrong by
// years would have them forgotten at once, and what was deleted come back.
func (r *Replica) Expire() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	snap, age := r.snap.Load(), r.age()
	dug, known := map[string]grave{}, 0 // new ones; how many tombstones have theirs
	var old []cluster.Key
	for k, v := range snap.Tombstones() {
		name := nameOf(k)
		g, ok := r.graves[name]
		if ok {
			known++
		}
		if !ok || g.Counter != v.Counter || g.Node != v.Node {
			g = grave{v.Counter, v.Node, age}
			dug[name] = g
		}
		if age-g.Since >= tombstoneAge {
			old = append(old, k)
		}
	}
	filled := map[string]bool{} // those that are needed no more: mostly none, of a hundred thousand
	if known < len(r.graves) {
		for name := range r.graves {
			filled[name] = true
		}
		for k := range snap.Tombstones() {
			delete(filled, nameOf(k))
		}
	}
	if len(old) > 0 {
		next := r.state.Clone()
		next.Expire(old)
		if err := r.commit(next, true); err != nil {
			return err
		}
	}
	if len(dug)+len(filled) == 0 {
		return nil
	}
	r.disk.Lock()
	defer r.disk.Unlock()
	if err := r.write(func(tx *store.Tx) error {
		// In order: a new host has all at once, and bbolt takes the square of the time for keys at random.
		for _, name := range slices.Sorted(maps.Keys(dug)) {
			if err := graves.Put(tx, name, dug[name]); err != nil {
				return err
			}
		}
		for name := range filled {
			if err := graves.Delete(tx, name); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	maps.Copy(r.graves, dug)
	maps.DeleteFunc(r.graves, func(name string, _ grave) bool { return filled[name] })
	return nil
}
