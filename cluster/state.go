package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"
)

// reach is how far ahead of all it has seen a host lets a counter be. At a
// million writes a second an honest cluster needs twelve days to get there.
const reach = 1 << 40

// State is the records one host knows. Hosts that have exchanged all their
// messages, in whatever order, grouping and repetition, have equal States:
//
//   - of two records with one key, the one of the higher version stays; if both
//     are the same version, which no correct host writes, the one that is larger
//     in its wire form; but of what operators sign, what they have signed last (signedOrder);
//   - a claim also removes older claims inside its block (package ring), and the
//     ring of a State has exactly its claim records;
//   - the tombstone of a Node stays whatever comes: a host that was forgotten or
//     has left does not come back under its identity. That of a policy stays until
//     somebody applies the policy anew.
//
// A State is not for use by several goroutines at once; its Snapshots are.
type State struct {
	self NodeID
	cur  *Snapshot // owned by this State alone
	pub  *Snapshot // what Snapshot returned last, while it is still true
	// clock is the highest counter seen.
	clock   uint64
	held    pending
	rights  rights
	signing signing
	// pivot is where to look in a tree; it saves each look-up one of its own.
	pivot Record
	lost  []Lost // seen by the Merge under way
	// touched are the keys of the records put in or removed, for Touched.
	touched []Key
}

// New returns the empty state of a host.
func New(self NodeID) *State { return &State{self: self, cur: newTrees(), rights: rights{self: self}} }

// Restore returns a State with records and marks that this host has written to
// its disk before. It fails if they cannot be from one State of self.
func Restore(self NodeID, recs []Record, marks map[NodeID]uint64) (*State, error) {
	s := New(self)
	var errs []error
	for i := range recs {
		r := &recs[i]
		r.forget()
		if err := r.validate(); err != nil {
			errs = append(errs, refuse(*r, ErrMalformed, err))
			continue
		}
		if r.Version.Node == self && r.Version.Counter > marks[self] {
			errs = append(errs, refuse(*r, ErrLostWrites, nil))
			continue
		}
		s.clock = max(s.clock, r.Version.Counter)
		if s.supersedes(r) {
			s.apply(r)
		}
	}
	for node, counter := range marks {
		s.clock = max(s.clock, counter)
		s.raise(node, counter)
	}
	s.touched = nil
	return s, errors.Join(errs...)
}

// Self returns the host whose state this is.
func (s *State) Self() NodeID { return s.self }

// Clone returns a copy, in constant time, that changes independently.
func (s *State) Clone() *State {
	c := *s
	c.cur, c.held, c.touched = s.cur.clone(), s.held.clone(), slices.Clip(s.touched)
	return &c
}

// Snapshot returns the state as it is now, in constant time.
func (s *State) Snapshot() *Snapshot {
	if s.pub == nil {
		s.pub = s.cur.clone()
	}
	return s.pub
}

// Touched returns the keys of all records that were put in or removed since the
// last call: what there is to write to, or delete from, a disk.
func (s *State) Touched() (keys []Key) {
	keys, s.touched = s.touched, nil
	return keys
}

// Put writes a body with the next version of this host and returns its record,
// and whether it is a new one: a body that is there already, to the bit, is not
// written again (claims always are). The body is copied. The error says that it
// is invalid or that it is not for this host to write.
//
// The caller answers for claims: self must own every number of the block, or know
// that nobody does, or that the owner is gone for good.
func (s *State) Put(b Body) (rec Record, written bool, err error) {
	if b == nil {
		return Record{}, false, fmt.Errorf("write a record: %w: no body", ErrMalformed)
	}
	r := Record{Key: b.Key(), Version: Version{s.clock + 1, s.self}, Prev: s.cur.Mark(s.self)}
	raw, err := encoding.Marshal(b)
	if err == nil {
		err = r.decodeBody(raw)
	}
	if err == nil {
		err = r.validate()
	}
	if _, unsigned := r.Body.(opaque); unsigned && err == nil {
		err = b.validate() // decodeSigned
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("write %s: %w: %w", b.Key(), ErrMalformed, err)
	}
	if !speaksFor(s.self, r.Body) {
		return Record{}, false, fmt.Errorf("write %s: %w", r.Key, ErrForged)
	}
	old, known := s.cur.Record(r.Key)
	if known && old.Deleted != 0 && r.Key.Kind == KindNode {
		return Record{}, false, fmt.Errorf("write %s: %w: it must join as a new host", r.Key, ErrForgotten)
	}
	if known && old.Body != nil && r.Key.Kind != KindClaim && bytes.Equal(old.encodedBody(), raw) {
		return old, false, nil
	}
	if c, ok := r.claim(); ok {
		s.rights.settled = s.rights.settled || s.cur.ring.Len() == 0
		r.proofs = s.proofs(c.Block)
	}
	s.signing.sign(&r)
	if r.Key.Kind.ordered() && !s.supersedes(&r) {
		return Record{}, false, fmt.Errorf("write %s: %w", r.Key, ErrSerial)
	}
	s.write(&r)
	return r, true, nil
}

// Delete writes a tombstone with the next version of this host. It returns false
// if there is no live record with the key, unless it is a Node, which may be
// forgotten unseen, or if it is a claim: numbers cannot be deleted, only given
// away; nor can what an operator has signed, but by signing that. Others believe it of an endpoint or use of another host only if they have
// that host's Node tombstone: write that one first.
func (s *State) Delete(k Key, now time.Time) (Record, bool) {
	old, ok := s.cur.Record(k)
	if !ok && k.Kind != KindNode || old.Deleted != 0 || k.Kind == KindClaim || k.Kind.ordered() && kinds[k.Kind].order(&Record{Key: k, Deleted: 1}, &old) < 0 {
		return Record{}, false
	}
	r := Record{Key: k, Version: Version{s.clock + 1, s.self}, Prev: s.cur.Mark(s.self), Deleted: max(1, now.Unix())}
	if host := hostOf(old.Body); host != s.self {
		r.of = host
	}
	s.signing.sign(&r)
	s.write(&r)
	return r, true
}

// Expire forgets tombstones. What they deleted stays deleted where it was heard before (Merge).
// A host that has been away for longer than they were there still has it, and brings it back by
// writing it anew. Keys of other records, and those of Nodes and policies, whose
// tombstones stay for good, are left alone.
func (s *State) Expire(keys []Key) {
	for _, k := range keys {
		if r, ok := s.cur.byKey.Get(&Record{Key: k}); ok && r.Deleted != 0 && !k.Kind.lasting() {
			s.remove(r)
		}
	}
}

// Digest returns what is known (Snapshot.Digest).
func (s *State) Digest() Digest { return s.Snapshot().Digest() }

// write applies an own record, which has the highest version of all.
func (s *State) write(r *Record) {
	s.apply(r)
	s.setMark(s.self, r.Version.Counter)
}

// apply puts r, which supersedes what is there, into the trees and returns the
// records that it removed under other keys.
func (s *State) apply(r *Record) (gone []*Record) {
	s.changed()
	s.clock = max(s.clock, r.Version.Counter) // also of what was held: an own word on it is to be later
	s.cur.rev++
	s.cur.note(r.Key)
	s.touched = append(s.touched, r.Key)
	s.intern(r)
	if c, ok := r.claim(); ok {
		_, dropped := s.cur.ring.Merge(c)
		for _, d := range dropped {
			old, ok := s.cur.byKey.Get(&Record{Key: Claim{Block: d.Block}.Key()})
			if ok && old.Key != r.Key {
				s.remove(old)
				gone = append(gone, old)
			}
		}
	}
	if old, ok := s.cur.byKey.ReplaceOrInsert(r); ok {
		s.unindex(old)
	}
	if r.Body != nil {
		s.cur.live.ReplaceOrInsert(r)
		s.cur.liveByWriter.ReplaceOrInsert(r)
	} else {
		s.cur.live.Delete(r)
	}
	s.cur.byWriter.ReplaceOrInsert(r)
	if s.cur.isEarly(r) {
		s.cur.early++
	}
	return gone
}

func (s *State) remove(r *Record) {
	s.changed()
	s.cur.rev++
	s.cur.note(r.Key)
	s.touched = append(s.touched, r.Key)
	s.cur.byKey.Delete(r)
	s.cur.live.Delete(r)
	s.unindex(r)
}

func (s *State) unindex(r *Record) {
	s.cur.byWriter.Delete(r)
	s.cur.liveByWriter.Delete(r)
	if s.cur.isEarly(r) {
		s.cur.early--
	}
}

// changed must be called before every change of cur.
func (s *State) changed() { s.pub = nil }

// at is where a writer's records from a counter on are, until the next call.
func (s *State) at(v Version) *Record {
	s.pivot = Record{Version: v}
	return &s.pivot
}

// kept is a copy of a record that keeps nothing of its message alive.
func kept(r *Record) *Record {
	c := *r
	c.forget()
	return &c
}

// forget lets go of the message that a record came in.
func (r *Record) forget() {
	if !r.more {
		r.raw = nil
	}
}
