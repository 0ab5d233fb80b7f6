package cluster

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"iter"
	"math"
	"strings"
	"sync"

	"github.com/google/btree"

	"github.com/grapevine-net/grapevine/ring"
)

// Snapshot is the state at one moment. It never changes; any number of
// goroutines may use it. The maps and slices in bodies are shared with other
// snapshots: they must not be written to.
type Snapshot struct {
	byKey    *btree.BTreeG[*Record] // by Key
	byWriter *btree.BTreeG[*Record] // by writer and counter
	// Those of both that are no tombstones: of these there may be thousands for each.
	live, liveByWriter *btree.BTreeG[*Record]
	marks              *btree.BTreeG[mark] // by writer
	early              int                 // records above their writers' marks
	ring               *ring.Ring
	rev                uint64
	changes            *change // the newest
	goesBy             []PublicKey

	digestOnce  sync.Once
	digest      Digest
	encodedOnce sync.Once
	encoded     []byte // digest, as EncodeDigest writes it
}

// mark says that everything a writer wrote up to counter has been heard of.
type mark struct {
	node    NodeID
	counter uint64
}

func newTrees() *Snapshot {
	const degree = 32
	byKey := func(a, b *Record) bool { return a.Key.Compare(b.Key) < 0 }
	return &Snapshot{
		byKey:    btree.NewG(degree, byKey),
		byWriter: btree.NewG(degree, byWriter),
		live:     btree.NewG(degree, byKey), liveByWriter: btree.NewG(degree, byWriter),
		marks:   btree.NewG(degree, func(a, b mark) bool { return a.node < b.node }),
		ring:    &ring.Ring{},
		changes: &change{},
	}
}

// clone returns a copy in constant time. The original must not be in use by
// other goroutines meanwhile.
func (s *Snapshot) clone() *Snapshot {
	return &Snapshot{
		byKey: s.byKey.Clone(), byWriter: s.byWriter.Clone(), live: s.live.Clone(), liveByWriter: s.liveByWriter.Clone(), marks: s.marks.Clone(), early: s.early,
		ring: s.ring.Clone(), rev: s.rev, changes: s.changes, goesBy: s.goesBy,
	}
}

// Compare orders keys by kind and ID.
func (k Key) Compare(o Key) int {
	if k.Kind != o.Kind {
		return int(k.Kind) - int(o.Kind)
	}
	return strings.Compare(k.ID, o.ID)
}

func byWriter(a, b *Record) bool {
	switch {
	case a.Version.Node != b.Version.Node:
		return a.Version.Node < b.Version.Node
	case a.Version.Counter != b.Version.Counter:
		return a.Version.Counter < b.Version.Counter
	}
	return a.Key.Compare(b.Key) < 0
}

// Rev counts the changes of the records since the agent started: a snapshot with
// a higher Rev is newer. It means nothing to other hosts.
func (s *Snapshot) Rev() uint64 { return s.rev }

// Ring returns the claims. It must not be merged into; clone it for that.
func (s *Snapshot) Ring() *ring.Ring { return s.ring }

// Record returns the record of a key, which may be a tombstone.
func (s *Snapshot) Record(k Key) (Record, bool) {
	if r, ok := s.byKey.Get(&Record{Key: k}); ok {
		return *r, true
	}
	return Record{}, false
}

// Known reports for each record whether it is there, to the bit.
func (s *Snapshot) Known(recs []Record) (known []bool) {
	known = make([]bool, len(recs))
	pivot := &Record{}
	for i := range recs {
		pivot.Key = recs[i].Key
		r, ok := s.byKey.Get(pivot)
		known[i] = ok && r.Version == recs[i].Version && r.Equal(recs[i])
	}
	return known
}

// HostName is the name of a host, for people: its ID while its record is not there.
func (s *Snapshot) HostName(id NodeID) string {
	n, _ := Get[Node](s, string(id))
	return cmp.Or(n.Name, string(id))
}

// Left reports whether a host has deleted its own Node record: it has gone for good.
func (s *Snapshot) Left(id NodeID) bool {
	r, ok := s.Record(Node{ID: id}.Key())
	return ok && r.Deleted != 0 && r.Version.Node == id
}

// Tombstone reports whether the record of a key was deleted, not so long ago
// that it has expired.
func (s *Snapshot) Tombstone(k Key) bool {
	r, ok := s.Record(k)
	return ok && r.Deleted != 0
}

// Records yields all records, tombstones as well, by kind and ID.
func (s *Snapshot) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		s.byKey.Ascend(func(r *Record) bool { return yield(*r) })
	}
}

// Tombstones yields the keys and versions of the tombstones that may expire: all but those of Nodes and policies.
func (s *Snapshot) Tombstones() iter.Seq2[Key, Version] {
	return func(yield func(Key, Version) bool) {
		s.byKey.Ascend(func(r *Record) bool { return r.Deleted == 0 || r.Key.Kind.lasting() || yield(r.Key, r.Version) })
	}
}

// Gone yields the keys of the tombstones of one kind.
func (s *Snapshot) Gone(kind Kind) iter.Seq[Key] {
	return func(yield func(Key) bool) {
		s.byKey.AscendGreaterOrEqual(&Record{Key: Key{Kind: kind}}, func(r *Record) bool {
			return r.Key.Kind == kind && (r.Deleted == 0 || yield(r.Key))
		})
	}
}

// Len returns the number of records, tombstones included.
func (s *Snapshot) Len() int { return s.byKey.Len() }

// Get returns the live body of kind T with the ID (Key.ID).
func Get[T Body](s *Snapshot, id string) (T, bool) {
	var zero T
	r, ok := s.byKey.Get(&Record{Key: Key{zero.Key().Kind, id}})
	if !ok || r.Body == nil {
		return zero, false
	}
	body, ok := r.Body.(T)
	return body, ok
}

// All yields the live bodies of kind T in the order of their IDs. It takes time for these,
// and not for what has gone.
func All[T Body](s *Snapshot) iter.Seq[T] {
	var zero T
	kind := zero.Key().Kind
	return func(yield func(T) bool) {
		s.live.AscendGreaterOrEqual(&Record{Key: Key{Kind: kind}}, func(r *Record) bool {
			if r.Key.Kind != kind {
				return false
			}
			body, live := r.Body.(T)
			return !live || yield(body)
		})
	}
}

// Written yields the live bodies of kind T that a host wrote, in the order in which it
// did: all of a Node, Endpoint or Use that is on the host. It takes time for what there is of
// what the host wrote, and not for what others did.
func Written[T Body](s *Snapshot, host NodeID) iter.Seq[T] {
	return func(yield func(T) bool) {
		s.liveByWriter.AscendGreaterOrEqual(&Record{Version: Version{Node: host}}, func(r *Record) bool {
			if r.Version.Node != host {
				return false
			}
			body, ok := r.Body.(T)
			return !ok || yield(body)
		})
	}
}

// Digest returns what is known. The first call on a Snapshot takes time
// proportional to the number of writers. The map is shared: it must not be
// written to.
func (s *Snapshot) Digest() Digest {
	s.digestOnce.Do(func() {
		s.digest.Marks = s.Marks()
		if s.early == 0 {
			return // to look for them takes several times as long as all the rest
		}
		hash := fnv.New64a()
		for r := range s.Missing(s.digest) {
			fmt.Fprintf(hash, "%s %d %s;", r.Version.Node, r.Version.Counter, r.Key)
		}
		s.digest.Early = hash.Sum64()
	})
	return s.digest
}

// EncodedDigest returns the wire form of the Digest (EncodeDigest), which is shared: it
// must not be written to.
func (s *Snapshot) EncodedDigest() []byte {
	s.encodedOnce.Do(func() {
		early := uint64(0)
		if s.early > 0 {
			early = s.Digest().Early
		}
		s.encoded = beginDigest(early, s.marks.Len())
		s.marks.Ascend(func(m mark) bool {
			s.encoded = appendMark(s.encoded, m.node, m.counter)
			return true
		})
	})
	return s.encoded
}

// isEarly reports whether r is above its writer's mark.
func (s *Snapshot) isEarly(r *Record) bool { return r.Version.Counter > s.Mark(r.Version.Node) }

// Marks returns the marks of the digest, for Restore.
func (s *Snapshot) Marks() map[NodeID]uint64 {
	marks := make(map[NodeID]uint64, s.marks.Len())
	s.marks.Ascend(func(m mark) bool {
		marks[m.node] = m.counter
		return true
	})
	return marks
}

// Missing yields the records that the sender of d lacks, by writer and version.
// A host that merges all of them has heard of everything that Digest covers.
//
// That holds although replaced writes are not sent: if A's fifth write was
// replaced by B's ninth, then either B's is sent, or d says that B's ninth was
// heard of, and a host that knows the ninth needs no fifth.
func (s *Snapshot) Missing(d Digest) iter.Seq[Record] {
	if s.early > 0 {
		return s.search(d)
	}
	return func(yield func(Record) bool) {
		s.marks.Ascend(func(m mark) (more bool) {
			known := d.Marks[m.node]
			more = true
			if known >= m.counter {
				return more // as for almost all writers
			}
			s.byWriter.AscendGreaterOrEqual(&Record{Version: after(Version{known, m.node})}, func(r *Record) bool {
				if r.Version.Node != m.node {
					return false
				}
				more = yield(*r)
				return more
			})
			return more
		})
	}
}

// search is Missing where there are records above their writers' marks. It takes a search for each writer.
func (s *Snapshot) search(d Digest) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		// From after what d has of a writer on, until a record that d has: then it
		// is another writer's, and the search goes on after what d has of that one.
		for from, more := (Version{}), true; more; {
			more = false
			s.byWriter.AscendGreaterOrEqual(&Record{Version: from}, func(r *Record) bool {
				if mark := d.Marks[r.Version.Node]; r.Version.Counter <= mark {
					from, more = after(Version{mark, r.Version.Node}), true
					return false
				}
				return yield(*r)
			})
		}
	}
}

// after returns the next version in the order of writers and counters.
func after(v Version) Version {
	if v.Counter == math.MaxUint64 {
		return Version{Node: v.Node + "\x00"}
	}
	return Version{v.Counter + 1, v.Node}
}

// Highest returns the highest counter that has been heard of from a writer,
// whatever is missing below, 0 if none.
func (s *Snapshot) Highest(node NodeID) uint64 {
	high := s.Mark(node)
	s.byWriter.DescendLessOrEqual(&Record{Version: Version{math.MaxUint64, node}}, func(r *Record) bool {
		if r.Version.Node == node {
			high = max(high, r.Version.Counter)
		}
		return false
	})
	return high
}

// Latest is the highest counter that has been heard of from anybody: what is written next has a higher one.
func (s *Snapshot) Latest() (high uint64) {
	for node := range s.Marks() {
		high = max(high, s.Highest(node))
	}
	return high
}

// Mark returns the mark of one writer, 0 if nothing of it has been heard of.
func (s *Snapshot) Mark(node NodeID) uint64 {
	m, _ := s.marks.Get(mark{node: node})
	return m.counter
}
