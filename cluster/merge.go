package cluster

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/ring"
)

// Compare returns -1, 0 or +1 as v is below, equal to or above w.
func (v Version) Compare(w Version) int {
	return cmp.Or(cmp.Compare(v.Counter, w.Counter), strings.Compare(string(v.Node), string(w.Node)))
}

// Merged is what became of records that other hosts have written, each list in the order
// of versions.
type Merged struct {
	// Fresh are in the state now and were not before.
	Fresh []Record
	// Gone are claims that were in the state before and are not any more, because a claim
	// around them is newer.
	Gone []Record
	// Stale had been replaced before they came, or were by the same records, but were the
	// next words of their writers: who has heard a later one waits for them, to know that
	// nothing is missing in between.
	Stale []Record
	// Lost are edits of policies and realms that others overruled without having seen them.
	Lost []Lost
}

// Lost is an edit of a policy or a realm, or its deletion, in whose place another one is that was made without
// knowledge of it: on another host, at the same time.
type Lost struct{ Edit, Winner Record }

// noteLost notes whether r, which has just come, and what is here under its key are such.
func (s *State) noteLost(r *Record, isNew bool) {
	old, there := s.cur.byKey.Get(r)
	if !there || old.Version == r.Version || !isNew && r.Version.Counter <= s.cur.Mark(r.Version.Node) {
		return // nobody wants to know, or it was told before
	}
	winner, loser := old, r
	if isNew {
		winner, loser = r, old
	}
	if l, is := r.Key.Kind.lost(winner, loser); is {
		s.lost = append(s.lost, l)
	}
}

// News is what others may lack: all that is fresh or stale.
func (m Merged) News() []Record { return slices.Concat(m.Fresh, m.Stale) }

// Merge adds what other hosts have written. The error, if any, holds a RefusedError
// for each record that was refused; the others have been merged all the same. What its
// writer has no right to by all that is known here is held, without an error, until
// more is known (Doubts).
//
// Merge is commutative, associative and idempotent, but for records refused or
// held.
// The records, their bodies included, belong to the State afterwards.
func (s *State) Merge(recs []Record) (Merged, error) {
	sorted := make([]*Record, len(recs))
	for i := range recs {
		sorted[i] = &recs[i]
	}
	// The order of versions is the order in which a writer wrote: its marks rise
	// and nothing is put in that the same message replaces.
	slices.SortStableFunc(sorted, func(a, b *Record) int { return a.Version.Compare(b.Version) })
	var added, removed []*Record
	var errs []error
	for _, r := range sorted {
		mark := s.cur.Mark(r.Version.Node)
		isNew, dropped, err := s.merge(r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, dropped...)
		if isNew || s.cur.Mark(r.Version.Node) > mark {
			added = append(added, r)
		}
	}
	late, dropped := s.reconsider()
	added, removed = append(added, late...), append(removed, dropped...)
	if len(late) > 0 {
		slices.SortStableFunc(added, func(a, b *Record) int { return a.Version.Compare(b.Version) })
	}
	m := Merged{Fresh: make([]Record, 0, len(added)), Lost: s.lost}
	s.lost = nil
	for _, r := range added {
		if now, ok := s.cur.byKey.Get(r); ok && now.Version == r.Version {
			m.Fresh = append(m.Fresh, *now)
		} else {
			m.Stale = append(m.Stale, *r)
		}
	}
	for _, r := range removed {
		if !s.cur.byKey.Has(r) {
			m.Gone = append(m.Gone, *r)
		}
	}
	return m, errors.Join(errs...)
}

// merge takes one record in, if it is acceptable and newer than what is there.
func (s *State) merge(r *Record) (isNew bool, dropped []*Record, err error) {
	if err := s.acceptable(r); err != nil {
		return false, nil, err
	}
	// Own writes are durable here before they go out: what comes back is known.
	if r.Version.Node == s.self {
		return false, nil, nil
	}
	isNew = s.supersedes(r)
	s.noteLost(r, isNew)
	if isNew {
		if s.cur.foreignTombstone(r) {
			return false, nil, refuse(*r, ErrForged, errors.New("deletes what another host wrote"))
		}
		if c, ok := r.claim(); ok && s.takesOurs(c) {
			s.held.hold(r)
			return false, nil, refuse(*r, ErrOwned, fmt.Errorf("given to %s", c.Owner))
		}
		if !s.rights.warranted(s.cur, r) {
			s.held.hold(r)
			return false, nil, nil
		}
		r = kept(r)
		dropped = s.apply(r)
	}
	s.clock = max(s.clock, r.Version.Counter)
	s.heard(r)
	return isNew, dropped, nil
}

// acceptable checks all that makes a record refused, but for claims.
func (s *State) acceptable(r *Record) error {
	if err := r.validate(); err != nil {
		return refuse(*r, ErrMalformed, err)
	}
	if r.Version.Node == s.self && r.Version.Counter > s.cur.Mark(s.self) {
		return refuse(*r, ErrLostWrites, fmt.Errorf("own last write is %d", s.cur.Mark(s.self)))
	}
	if r.Version.Counter > s.clock && r.Version.Counter-s.clock > reach {
		return refuse(*r, ErrCounter, fmt.Errorf("highest seen is %d", s.clock))
	}
	if !speaksFor(r.Version.Node, r.Body) {
		return refuse(*r, ErrForged, nil)
	}
	if s.rekeyed(r) {
		return refuse(*r, ErrForged, errors.New("signed with another key than this host's records before"))
	}
	return nil
}

// supersedes reports whether r replaces what the state has under its key. It is
// the total order of the records of one key, for claims that of the ring.
func (s *State) supersedes(r *Record) bool {
	if c, ok := r.claim(); ok {
		return s.cur.ring.Fresh(c)
	}
	old, ok := s.cur.byKey.Get(r)
	if !ok {
		// What was heard before and is not here has been replaced since, and the tombstone
		// has expired: it is no news, whoever says it again, a record of the wire included.
		return r.final() || r.Version.Counter > s.cur.Mark(r.Version.Node)
	}
	if final, oldFinal := r.final(), old.final(); final != oldFinal {
		return final
	}
	if foreignTo(old, r) {
		return true
	}
	if r.Key.Kind.ordered() {
		if order := kinds[r.Key.Kind].order(r, old); order != 0 {
			return order > 0
		}
	}
	if order := r.Version.Compare(old.Version); order != 0 {
		return order > 0
	}
	return bytes.Compare(encodeRecord(*r), encodeRecord(*old)) > 0
}

// final reports whether r is a host's last word.
func (r *Record) final() bool { return r.Key.Kind == KindNode && r.Deleted != 0 }

// takesOurs reports whether c, which another host wrote and nothing dominates, would
// take numbers from this host.
func (s *State) takesOurs(c ring.Claim) bool {
	before := s.cur.ring.Owned(s.self, c.Block)
	if len(before) == 0 {
		return false
	}
	after := s.cur.ring.Clone()
	after.Merge(c)
	return len(ring.Subtract(before, after.Owned(s.self, c.Block))) > 0
}

// Missing yields the records that the sender of d lacks (Snapshot.Missing).
func (s *State) Missing(d Digest) iter.Seq[Record] { return s.Snapshot().Missing(d) }

// Complete notes that a peer has sent all that it has of what d covers, d being
// its own digest. It returns ErrLostWrites if the peer knows more of what this
// host wrote than this host does, and leaves out what is out of reach.
func (s *State) Complete(d Digest) error {
	var errs []error
	limit := s.clock + reach
	for node, counter := range d.Marks {
		own := s.cur.Mark(s.self)
		switch {
		case node == s.self && counter > own:
			errs = append(errs, &RefusedError{
				Version: Version{counter, node}, Reason: ErrLostWrites, Detail: fmt.Errorf("own last write is %d", own),
			})
		case !node.Valid() || counter > limit:
			errs = append(errs, &RefusedError{Version: Version{counter, node}, Reason: ErrCounter})
		default:
			s.raise(node, counter)
		}
	}
	s.rights.settled = s.rights.settled || len(errs) == 0
	return errors.Join(errs...)
}

// heard moves the writer's mark up to r if nothing is missing in between, and
// further over what had come too early.
func (s *State) heard(r *Record) {
	node := r.Version.Node
	s.held.release(r.Version) // what was refused may be acceptable now
	if r.Prev <= s.cur.Mark(node) {
		s.raise(node, r.Version.Counter)
	}
}

// raise moves a mark up to counter and on over the records that follow it
// without a gap, but not to a claim that was refused.
func (s *State) raise(node NodeID, counter uint64) {
	mark := s.cur.Mark(node)
	if counter <= mark && s.cur.early == 0 {
		return // as for almost all of a peer's marks: no record is above its own
	}
	counter = max(counter, mark)
	s.cur.byWriter.AscendGreaterOrEqual(s.at(Version{counter, node}), func(r *Record) bool {
		if r.Version.Node != node || r.Prev > counter {
			return false
		}
		counter = max(counter, r.Version.Counter)
		return true
	})
	if low, ok := s.held.lowest(node); ok {
		counter = min(counter, low-1)
	}
	if counter > mark {
		s.setMark(node, counter)
	}
}

func (s *State) setMark(node NodeID, counter uint64) {
	s.changed()
	s.cur.byWriter.AscendGreaterOrEqual(s.at(after(Version{s.cur.Mark(node), node})), func(r *Record) bool {
		below := r.Version.Node == node && r.Version.Counter <= counter
		if below {
			s.cur.early--
		}
		return below
	})
	s.cur.marks.ReplaceOrInsert(mark{node, counter})
}
