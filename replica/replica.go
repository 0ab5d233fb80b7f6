// Package replica owns the one mutable cluster.State of an agent: it makes
// writes durable, tells readers that something has changed, and speaks the bytes
// that package gossip carries.
package replica

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
	"net/netip"
)

const (
	// tombstoneAge is how long deletions are remembered, by the age of the state file: longer
	// than any partition that is to heal without bringing deleted things back.
	tombstoneAge = 72 * time.Hour
	expireEvery  = time.Hour
	// flushDelay is how long what other hosts wrote waits for the disk, and flushLimit if
	// more keeps coming, as it does when this host catches up: that has the processors
	// first. It comes again after a power failure.
	flushDelay = time.Second
	flushLimit = 5 * time.Second
)

// Replica is the state of the cluster as this host knows it. All methods may be
// called by any goroutine. Snapshot, Watch and Outbox never block; the others
// may wait for the disk.
type Replica struct {
	self cluster.NodeID
	db   *store.DB
	// Tests set a time, an age and a small batch.
	now   func() time.Time
	age   func() time.Duration // store.DB.Age
	batch int

	// Whoever needs several of these locks takes them in this order: flushing is held
	// by the one flush that there may be; mu by whoever changes the state, the
	// write to disk included, if it must be there at once; disk by who writes there.
	flushing, mu, disk sync.Mutex

	state *cluster.State
	// dirty are the keys whose records on disk are older than in state.
	dirty map[cluster.Key]bool
	// graves are those on disk, by the names of the tombstones' keys.
	graves map[string]grave
	// caughtUp is closed when another host has told all that it knows since Open.
	caughtUp chan struct{}
	// queue are keys that were dirty, in order, of which the flush has the first ones.
	queue []cluster.Key
	// behind says that the disk is older than state, be it in the marks only.
	behind bool
	syncs  answers
	// gate says why nothing may be written, if so; nil: it always may.
	gate func() error
	// beside writes what follows from own writes, in their transaction; nil: nothing does.
	beside func(tx *store.Tx, before, after *cluster.Snapshot, keys []cluster.Key) error
	// verify returns the records that are signed by their writers: only these are
	// believed. nil: records are not signed here.
	verify func([]cluster.Record) (good []cluster.Record, err error)

	snap atomic.Pointer[cluster.Snapshot]
	feed feed
	out  outbox
	// trouble is the first error that concerns this host's identity.
	trouble  atomic.Pointer[error]
	failed   atomic.Pointer[failure] // nil: the disk took what was last written
	wake     chan struct{}           // capacity 1: there is something to flush
	refused  refusals
	unproven unproven
	lost     lost
}

// Option changes a Replica as Open makes it.
type Option func(*Replica) error

// Signed makes a Replica sign what it writes with its host's key, and refuse what
// others write if it is not signed by them. Without it nothing is signed.
func Signed(key ed25519.PrivateKey) Option {
	return func(r *Replica) error {
		r.verify = cluster.Verify
		return r.state.SignWith(key)
	}
}

// Verified replaces cluster.Verify of a Signed Replica, for a process with the Replicas of
// many hosts, which need not each verify the same.
func Verified(f func([]cluster.Record) (good []cluster.Record, err error)) Option {
	return func(r *Replica) error {
		r.verify = f
		return nil
	}
}

// Judged lets functions say who may forget whom, and who is being forgotten
// (cluster.State.Judge). They must not block, nor call the Replica but for its Snapshot.
func Judged(forgets func(heir, dead cluster.NodeID) bool, promised func(dead cluster.NodeID) bool) Option {
	return func(r *Replica) error {
		r.state.Judge(forgets, promised)
		return nil
	}
}

// Gated makes Update fail, if it would write anything, with what f returns. f must
// not block.
func Gated(f func() error) Option {
	return func(r *Replica) error {
		r.gate = f
		return nil
	}
}

// Beside has f write to the disk what follows from what is written durably, in the same transaction, and before anybody sees it: the
// keys are those that changed. f must not call the Replica, and may be called again if the disk fails.
func Beside(f func(tx *store.Tx, before, after *cluster.Snapshot, keys []cluster.Key) error) Option {
	return func(r *Replica) error {
		r.beside = f
		return nil
	}
}

// GoingBy says by which operators' keys this host goes (cluster.State.GoBy).
func GoingBy(keys []cluster.PublicKey) Option {
	return func(r *Replica) error {
		r.state.GoBy(keys)
		return nil
	}
}

// Aged replaces the age of the state file, by which tombstones expire, in simulations.
func Aged(age func() time.Duration) Option {
	return func(r *Replica) error {
		r.age = age
		return nil
	}
}

// Open reads the state of host self from the state file. Run must be running
// for Outbox to give anything and for what other hosts write to be flushed.
func Open(db *store.DB, self cluster.NodeID, options ...Option) (*Replica, error) {
	recs, marks, settled, dug, err := load(db)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's state: %w", err)
	}
	state, err := cluster.Restore(self, recs, marks)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's state: %w", db.Damaged(err))
	}
	if settled {
		state.Settle()
	}
	r := &Replica{
		self: self, db: db, now: time.Now, age: db.Age, batch: flushBatch, state: state, dirty: map[cluster.Key]bool{}, graves: dug,
		caughtUp: make(chan struct{}), feed: newFeed(), out: newOutbox(), wake: make(chan struct{}, 1),
	}
	for _, o := range options {
		if err := o(r); err != nil {
			return nil, fmt.Errorf("open the cluster's state: %w", err)
		}
	}
	r.snap.Store(state.Snapshot())
	return r, nil
}

// Self returns the host whose replica this is.
func (r *Replica) Self() cluster.NodeID { return r.self }

// Snapshot returns the state as it is now. Own writes and claims in it are
// durable.
func (r *Replica) Snapshot() *cluster.Snapshot { return r.snap.Load() }

// Watch returns a channel that is closed at the next change of the records.
// Take it before the Snapshot, so that no change falls in between.
func (r *Replica) Watch() (changed <-chan struct{}) { return r.feed.watch() }

// Outbox gives the own writes as messages of about a packet's size, for gossip
// to broadcast. If nobody takes them, the oldest are dropped: anti-entropy
// brings them.
func (r *Replica) Outbox() <-chan []byte { return r.out.messages }

// Trouble returns why this host must not go on under its identity, or nil: other
// hosts know writes of it that it does not know itself (cluster.ErrLostWrites),
// or have forgotten it (cluster.ErrForgotten). It stays until
// the agent ends; the cure is to join as a new host.
func (r *Replica) Trouble() error {
	if r.Snapshot().Tombstone(cluster.Node{ID: r.Self()}.Key()) {
		return cluster.ErrForgotten // first: whoever is forgotten needs not be again
	}
	if t := r.trouble.Load(); t != nil {
		return *t
	}
	return nil
}

// Distrust makes err the Trouble of this host, if it has none yet.
func (r *Replica) Distrust(err error) { r.trouble.CompareAndSwap(nil, &err) }

// CaughtUp returns a channel that is closed when another host has told all that it knows
// since Open. Until then this host may know less than before it was started: what others
// wrote in the last seconds before it was killed was not on the disk yet.
func (r *Replica) CaughtUp() <-chan struct{} { return r.caughtUp }

// caught closes the channel of CaughtUp, and nothing is missed any more. The caller holds mu.
func (r *Replica) caught() {
	r.failed.Store(nil)
	select {
	case <-r.caughtUp:
	default:
		close(r.caughtUp)
	}
}

// Agreed is told that another host knows the same: as good as a whole answer, unless
// neither has heard of the cluster yet. It implements gossip.State.
func (r *Replica) Agreed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.caught()
	if !r.state.Settled() && r.Snapshot().Ring().Len() > 0 {
		r.state.Settle()
		r.later(nil)
	}
}

// Settled reports whether the state has heard a whole answer (cluster.State.Settled).
func (r *Replica) Settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Settled()
}

// Tx is an Update under way. It is valid inside the function it is passed to.
type Tx struct {
	state   *cluster.State
	written []cluster.Record
	now     time.Time
	err     error
}

// Put writes a body with the next version of this host; a body that is there
// already, to the bit, is no write (cluster.State.Put). If the body is refused
// the Update fails as a whole with that error, whatever its function returns.
// Snapshot().Record has the record.
func (tx *Tx) Put(b cluster.Body) error {
	if c, ok := b.(cluster.Claim); ok {
		_, err := tx.Claim(c)
		return err
	}
	return tx.put(b)
}

// Claim is Put, and returns the records: of a block with more proofs than a claim may have, one for each of its parts.
func (tx *Tx) Claim(c cluster.Claim) (recs []cluster.Record, err error) {
	for _, part := range tx.Provable(c.Block) {
		if err := tx.put(cluster.Claim{Block: part, Owner: c.Owner}); err != nil {
			return nil, err
		}
		recs = append(recs, tx.written[len(tx.written)-1])
	}
	return recs, nil
}

// Provable are the parts of a block that Claim makes a record of each (cluster.State.Provable).
func (tx *Tx) Provable(block netip.Prefix) []netip.Prefix { return tx.state.Provable(block) }

func (tx *Tx) put(b cluster.Body) error {
	rec, written, err := tx.state.Put(b)
	if err != nil {
		tx.err = err
		return err
	}
	if written {
		tx.written = append(tx.written, rec)
	}
	return nil
}

// Delete writes a tombstone, and returns false if there is no live record.
func (tx *Tx) Delete(k cluster.Key) bool {
	rec, ok := tx.state.Delete(k, tx.now)
	if ok {
		tx.written = append(tx.written, rec)
	}
	return ok
}

// Snapshot returns the state with what this Update has written so far.
func (tx *Tx) Snapshot() *cluster.Snapshot { return tx.state.Snapshot() }

// Update runs fn, which writes records, and makes them durable. When it returns
// nil, all of them are on the disk, in Snapshot and on their way to the other
// hosts; rev is the Snapshot's revision that has them. On an error nothing has
// happened. Updates run one after the other, and with Merge: fn must be quick
// and must not call the Replica.
func (r *Replica) Update(fn func(*Tx) error) (rev uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tx := &Tx{state: r.state.Clone(), now: r.now()}
	if err := cmp.Or(fn(tx), tx.err); err != nil {
		return 0, err
	}
	if len(tx.written) == 0 {
		return r.Snapshot().Rev(), nil
	}
	if r.gate != nil {
		if err := r.gate(); err != nil {
			return 0, fmt.Errorf("write to the cluster's state: %w", err)
		}
	}
	if err := r.commit(tx.state, true); err != nil {
		return 0, fmt.Errorf("write to the cluster's state: %w", err)
	}
	r.out.add(tx.written)
	return r.Snapshot().Rev(), nil
}

// Run flushes, expires and fills the Outbox until ctx ends; then it flushes once
// more, and returns the error of that.
func (r *Replica) Run(ctx context.Context) error {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	var flush <-chan time.Time // nil: nothing to flush
	var since time.Time
	flushed := func(err error) {
		if flush = nil; err != nil {
			slog.Error("the cluster's state is not on the disk; trying again", "err", err)
			flush = time.After(flushDelay)
		}
	}
	flushed(r.Expire())
	for {
		head, send := r.out.head()
		select {
		case <-ctx.Done():
			return r.Flush(context.WithoutCancel(ctx))
		case send <- head:
			r.out.pop()
		case <-r.out.more:
		case <-r.wake:
			if flush == nil {
				since = time.Now()
			}
			if time.Since(since) < flushLimit-flushDelay {
				flush = time.After(flushDelay)
			}
		case <-flush:
			flushed(r.Flush(ctx))
		case <-tick.C:
			flushed(errors.Join(r.db.KeepAge(), r.Expire()))
		}
	}
}
