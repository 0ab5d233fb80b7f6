package former

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/ring"
)

// Config is what a Keeper works with.
type Config struct {
	// Snapshot and Watch are the replica's, and Flush puts on the disk what others wrote.
	Snapshot func() *cluster.Snapshot
	Watch    func() <-chan struct{}
	Flush    func(context.Context) error
	// Call asks another host's agent, and Alive are those that answer somebody.
	Call  func(ctx context.Context, node, method string, body []byte) ([]byte, error)
	Alive func() []string
	// Placed returns when this host's switch goes by a revision of the state, and Pass when it goes by what Waiting says now.
	Placed func(ctx context.Context, rev uint64) error
	Pass   func(context.Context) error
	Log    *slog.Logger
}

// Wait says with which hosts an endpoint does not talk yet.
type Wait struct {
	Hosts []cluster.NodeID // in order
	// All says that it talks with no other host: it is just being found out which of many have heard.
	All bool
}

// Keeper knows which containers had addresses before, and which hosts have heard of that. Its methods may be called concurrently.
type Keeper struct {
	self    cluster.NodeID
	db      *store.DB
	cfg     Config
	settled atomic.Pointer[cluster.Snapshot] // the switch goes by it, and it is on the disk
	settle  chan struct{}                    // capacity 1: who has put in is making another one settled

	wake       chan struct{} // somebody is to be asked
	changed    chan struct{} // Waiting may say something else
	unsavedYet chan struct{} // something is to be saved

	mu      sync.Mutex
	table   *table
	heard   map[cluster.NodeID]marks // by host
	unsaved map[cluster.NodeID]bool  // hosts whose marks are not on the disk
	asked   map[cluster.NodeID]*asked
	by      map[cluster.NodeID]cluster.NodeID // by way of whom a host answers that this one does not reach
	gone    map[key]bool                      // entries that are still on the disk
	since   map[string]time.Time
	turns   time.Time // when the next host may be asked for what does not matter yet
}

// asked is a host of which it is to be found out what it has heard.
type asked struct {
	need   marks
	quiet  bool // nothing waits for it
	tries  int  // that have ended
	tried  bool // one has ended, or takes long
	asking bool
	next   time.Time
	err    error     // of the last try
	old    time.Time // since when it is known that its agent does not know the question,
	was    marks     // of which this was needed then
}

var (
	entries = store.NewBucket[Entry]("former/entries")
	heards  = store.NewBucket[marks]("former/heard")
)

// Open reads what an agent before this one knew.
func Open(db *store.DB, self cluster.NodeID) (*Keeper, error) {
	k := &Keeper{
		self: self, db: db, settle: make(chan struct{}, 1), wake: make(chan struct{}, 1), changed: make(chan struct{}, 1), unsavedYet: make(chan struct{}, 1),
		table: newTable(), heard: map[cluster.NodeID]marks{}, unsaved: map[cluster.NodeID]bool{}, asked: map[cluster.NodeID]*asked{}, by: map[cluster.NodeID]cluster.NodeID{}, gone: map[key]bool{}, since: map[string]time.Time{},
	}
	err := db.View(func(tx *store.Tx) error {
		return errors.Join(
			entries.ForEach(tx, func(_ string, e Entry) error { k.table.put(e); return nil }),
			heards.ForEach(tx, func(host string, m marks) error { k.heard[cluster.NodeID(host)] = m; return nil }),
		)
	})
	if err != nil {
		return nil, fmt.Errorf("read who had which address before: %w", err)
	}
	return k, nil
}

// Follow tells the Keeper what it works with, before it runs or is asked anything.
func (k *Keeper) Follow(cfg Config) { k.cfg = cfg }

// Note notes which addresses this host's own writes take from endpoints, and whose they were before it had them, in the transaction that
// makes the writes durable (replica.Beside).
func (k *Keeper) Note(tx *store.Tx, before, after *cluster.Snapshot, keys []cluster.Key) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []Entry
	for _, at := range keys {
		rec, there := after.Record(at)
		if !there || rec.Version.Node != k.self {
			continue
		}
		switch at.Kind {
		case cluster.KindEndpoint:
			old, _ := cluster.Get[cluster.Endpoint](before, at.ID)
			now, _ := rec.Body.(cluster.Endpoint)
			list = append(list, k.left(old, now, rec.Version.Counter)...)
			list = append(list, k.given(after, old, now)...)
		case cluster.KindClaim:
			if c, ok := rec.Body.(cluster.Claim); ok && c.Owner == k.self {
				list = append(list, k.claimed(before, after, c.Block)...)
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	for _, e := range list {
		if err := k.keep(tx, k.table.put(e)); err != nil {
			return err
		}
	}
	put, gone := k.table.bound(living(after, k.self))
	for _, e := range put {
		if err := k.keep(tx, e); err != nil {
			return err
		}
	}
	for _, one := range gone {
		k.gone[one] = true
	}
	for one := range k.gone {
		if err := entries.Delete(tx, one.name()); err != nil {
			return err
		}
	}
	clear(k.gone)
	return nil
}

// left are entries of the addresses that an endpoint has no more, or has as another one to policies.
func (k *Keeper) left(old, now cluster.Endpoint, counter uint64) (list []Entry) {
	was := print(old)
	if was == 0 {
		return nil
	}
	for _, a := range old.Addrs {
		if print(now) != was || !slices.Contains(now.Addrs, a) {
			list = append(list, Entry{Block: whole(a), By: k.self, Counter: counter, Had: []Had{{was, short(old.ID)}}})
		}
	}
	return list
}

// given are entries of the addresses that an endpoint just got, out of what another host has given to this one: what that one knows of
// them comes with its answer alone (Take), which may be lost, as the claim is not.
func (k *Keeper) given(snap *cluster.Snapshot, old, now cluster.Endpoint) (list []Entry) {
	for _, a := range now.Addrs {
		if c, owned := snap.Ring().Owner(whole(a).Addr()); owned && c.Owner == k.self && !slices.Contains(old.Addrs, a) {
			list = append(list, Entry{Block: whole(a), By: c.Version.By, Counter: c.Version.Counter, Any: true})
		}
	}
	return k.unheard(snap, list)
}

// claimed are entries of what this host claims of what others have claimed: it replaces what says whose that was.
func (k *Keeper) claimed(before, after *cluster.Snapshot, block netip.Prefix) (list []Entry) {
	if ring.VNIDs.Overlaps(block) {
		return nil
	}
	for c := range before.Ring().Within(block) {
		e := Entry{Block: c.Block, By: c.Version.By, Counter: c.Version.Counter, Any: true}
		if e.Block.Bits() < block.Bits() {
			e.Block = block
		}
		list = append(list, e)
		if c.Owner != k.self && c.Owner != c.Version.By {
			e.By, e.Counter = c.Owner, before.Mark(c.Owner)
			list = append(list, e)
		}
	}
	list = k.unheard(after, list)
	if len(list) > 0 {
		lives := living(after, k.self)
		for i := range list {
			list[i].But = slices.DeleteFunc(slices.Clone(lives), func(a netip.Addr) bool { return !list[i].Block.Contains(a) })
		}
	}
	return list
}

// unheard are those entries of which another host may not have heard. k.mu is held.
func (k *Keeper) unheard(snap *cluster.Snapshot, list []Entry) []Entry {
	list = slices.DeleteFunc(list, func(e Entry) bool { return e.By == k.self || e.Counter == 0 })
	if len(list) == 0 {
		return nil
	}
	heard := k.byAll(snap)
	return slices.DeleteFunc(list, func(e Entry) bool { return heard[e.By] >= e.Counter })
}

// whole is the block of an address.
func whole(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	return netip.PrefixFrom(a, a.BitLen())
}

// living are the addresses of a host's endpoints.
func living(snap *cluster.Snapshot, host cluster.NodeID) (list []netip.Addr) {
	for e := range cluster.Written[cluster.Endpoint](snap, host) {
		for _, a := range e.Addrs {
			list = append(list, a.Unmap().WithZone(""))
		}
	}
	return list
}

// keep writes an entry to the disk. k.mu is held.
func (k *Keeper) keep(tx *store.Tx, e Entry) error {
	delete(k.gone, e.key())
	return entries.Put(tx, e.key().name(), e)
}

// Given are the entries that go with blocks to the host that gets them (ipam.Former).
func (k *Keeper) Given(blocks []netip.Prefix) ([]byte, error) {
	const most = 64 // of a message
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []Entry
	for _, block := range blocks {
		list = append(list, k.table.within(block, most)...)
	}
	if len(list) == 0 {
		return nil, nil
	}
	return cbor.Marshal(list)
}

// Take notes what came with blocks: durably, and before any of their addresses is given to a container (ipam.Former).
func (k *Keeper) Take(given []byte) error {
	var list []Entry
	if err := cbor.Unmarshal(given, &list); err != nil {
		return fmt.Errorf("malformed list of %d bytes of who had which address before: %w", len(given), err)
	}
	for _, e := range list {
		if !e.Block.IsValid() || e.Block != e.Block.Masked() || !e.By.Valid() {
			return fmt.Errorf("%s is no block that somebody had", e.Block)
		}
	}
	return k.db.Update(func(tx *store.Tx) error {
		k.mu.Lock() // behind the disk's own, as in Note
		defer k.mu.Unlock()
		for _, e := range list {
			e.But = nil // that is for who has noted it
			if err := k.keep(tx, k.table.put(e)); err != nil {
				return err
			}
		}
		return nil
	})
}

// reachable is up to where a host can hear a writer: of one that is gone for good no more than what there is of it.
func reachable(snap *cluster.Snapshot, by cluster.NodeID, counter uint64) uint64 {
	if !snap.Tombstone(cluster.Node{ID: by}.Key()) {
		return counter
	}
	return min(counter, snap.Mark(by))
}

// asking reports whether rules could ask who a container is.
func asking(snap *cluster.Snapshot) bool {
	if cluster.PoliciesOf(snap).Any() {
		return true
	}
	for n := range cluster.All[cluster.Network](snap) {
		if n.Isolated() || n.Labelled {
			return true
		}
	}
	return false
}

// choosing reports whether an egress asks who a container is.
func choosing(snap *cluster.Snapshot) bool {
	for range cluster.All[cluster.LabelEgress](snap) {
		return true
	}
	return false
}

// listeners are the other hosts that go by who a container is: to judge what it may do, or to let it out by an egress. Where nobody does
// yet these are all, since a first rule may come at any moment.
func (k *Keeper) listeners(snap *cluster.Snapshot, judge, choose bool) (list []cluster.NodeID) {
	lets := map[cluster.NodeID]bool{}
	if choose {
		for h := range cluster.All[cluster.EgressHolder](snap) {
			lets[h.Host] = true
		}
	}
	for n := range cluster.All[cluster.Node](snap) {
		if n.ID != k.self && (!judge && !choose || judge && n.Enforces > 0 || lets[n.ID]) {
			list = append(list, n.ID)
		}
	}
	return list
}

// many is of how many hosts an endpoint is kept one by one, while they have not been asked yet.
const many = 16

// Waiting says of this host's endpoints with which hosts they do not talk yet, and has these asked. Where nobody goes by who a container
// is they all talk, and hosts are asked slowly: a first rule keeps nobody waiting for what all have heard long ago. It does not block.
func (k *Keeper) Waiting(snap *cluster.Snapshot) map[string]Wait {
	k.mu.Lock()
	defer k.mu.Unlock()
	judge, choose := asking(snap), choosing(snap)
	matters := judge || choose
	var out map[string]Wait
	var listeners []cluster.NodeID
	needed := map[cluster.NodeID]marks{}
	for e := range k.concerned(snap) {
		need := k.table.needs(e)
		if need == nil {
			continue
		}
		for by := range need {
			need[by] = reachable(snap, by, need[by])
		}
		if listeners == nil {
			listeners = k.listeners(snap, judge, choose)
		}
		var w Wait
		for _, host := range listeners {
			if k.heard[host].met(need) {
				continue
			}
			w.Hosts = append(w.Hosts, host)
			if needed[host] == nil {
				needed[host] = marks{}
			}
			needed[host].raise(need)
			w.All = w.All || k.asked[host] == nil || !k.asked[host].tried
		}
		if w.Hosts == nil || !matters {
			continue
		}
		w.All = w.All && len(w.Hosts) > many
		if out == nil {
			out = map[string]Wait{}
		}
		out[e.ID] = w
		if k.since[e.ID].IsZero() {
			k.since[e.ID] = time.Now()
		}
	}
	maps.DeleteFunc(k.since, func(id string, _ time.Time) bool { _, waits := out[id]; return !waits })
	k.want(needed, matters)
	return out
}

// concerned are this host's endpoints, if anything is known of who had addresses before. k.mu is held.
func (k *Keeper) concerned(snap *cluster.Snapshot) iter.Seq[cluster.Endpoint] {
	if len(k.table.entries) == 0 {
		return func(func(cluster.Endpoint) bool) {}
	}
	return cluster.Written[cluster.Endpoint](snap, k.self)
}

// want has hosts asked for what they are to have heard: at once, if it matters, or else one after the other. k.mu is held.
func (k *Keeper) want(needed map[cluster.NodeID]marks, matters bool) {
	maps.DeleteFunc(k.asked, func(host cluster.NodeID, a *asked) bool { return needed[host] == nil && !a.asking })
	for host, need := range needed {
		a := k.asked[host]
		switch {
		case a == nil:
			a = &asked{}
			k.asked[host] = a
			if !matters {
				a.next = k.turn(time.Now())
			}
		case matters && (a.quiet || !a.need.met(need)):
			a.next = time.Time{}
		}
		a.need, a.quiet = need, !matters
	}
	if len(needed) > 0 {
		poke(k.wake)
	}
}

// turn is when the next host is asked for what does not matter yet. k.mu is held.
func (k *Keeper) turn(now time.Time) time.Time {
	at := k.turns
	if at.Before(now) {
		at = now
	}
	k.turns = at.Add(turns)
	return at
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
