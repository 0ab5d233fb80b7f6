package cluster

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/ring"
)

// maxTitles bounds the titles of a claim; the newest are kept.
const maxTitles = 64

// titles returns the claims of others that c, which this host is about to write,
// replaces, and their titles: of each writer and block the newest. A host that
// has not heard of those claims, and cannot hear of them any more, sees by them
// that the writer of c owned the numbers.
//
// The newest of each writer and block is enough: whoever still takes an earlier
// owner for the owner believes that one's newest gift at once.
func (s *State) titles(c ring.Claim) []Record {
	type source struct {
		writer NodeID
		block  netip.Prefix
	}
	newest := map[source]Record{}
	add := func(r Record) {
		claim, _ := r.claim()
		at := source{r.Version.Node, claim.Block}
		if old, ok := newest[at]; r.Version.Node != s.self && (!ok || old.Version.Compare(r.Version) < 0) {
			newest[at] = r
		}
	}
	for d := range s.cur.ring.Within(c.Block) {
		r, ok := s.cur.Record(Claim{Block: d.Block}.Key())
		if !ok || !c.Dominates(d) {
			continue
		}
		for _, t := range r.titles {
			add(t)
		}
		r.titles = nil
		add(r)
	}
	list := slices.SortedFunc(maps.Values(newest), func(a, b Record) int { return a.Version.Compare(b.Version) })
	return list[max(0, len(list)-maxTitles):]
}

// entitled reports whether the writer of r, a claim, was the owner of what it
// gives away, by what is known here and by the titles that came with it.
func (s *State) entitled(r *Record, c ring.Claim) bool {
	if !s.settled || s.gives(s.cur.ring, c) {
		return true
	}
	if len(r.titles) == 0 {
		return false
	}
	proof := s.cur.ring.Clone()
	for _, t := range r.titles { // the oldest first
		if title, ok := t.claim(); ok && proof.Fresh(title) && s.gives(proof, title) {
			proof.Merge(title)
		}
	}
	return s.gives(proof, c)
}

// gives reports whether c is for its writer to make: of every number that gets
// another owner by it, the writer is the owner or the heir of the owner, or nobody
// is the owner.
func (s *State) gives(r *ring.Ring, c ring.Claim) bool {
	var after *ring.Ring
	for owner := range r.Counts(c.Block) {
		if owner == c.Version.By || owner == c.Owner || s.heir(c.Version.By, owner) {
			continue
		}
		if after == nil {
			after = r.Clone()
			after.Merge(c)
		}
		if len(ring.Subtract(r.Owned(owner, c.Block), after.Owned(owner, c.Block))) > 0 {
			return false
		}
	}
	return true
}

// heir reports whether a host may take over from another one: it wrote its
// tombstone, or that of who did, and so on. What a host left behind that wrote
// its own is anybody's.
func (s *State) heir(writer, dead NodeID) bool {
	for range maxHeirs {
		r, ok := s.cur.Record(Node{ID: dead}.Key())
		if !ok || r.Deleted == 0 {
			return false
		}
		if by := r.Version.Node; by == writer || by == dead {
			return true
		}
		dead = r.Version.Node
	}
	return false
}

// maxHeirs bounds the search for an heir of an heir.
const maxHeirs = 100

// maxHeld bounds what is held of each writer. What is beyond comes again.
const maxHeld = 256

// Doubt is a record that this host does not believe: its writer has no right to
// it by all that is known here.
type Doubt struct {
	Key     Key
	Version Version
	// Owner is, of a claim, a host that owns some of the numbers.
	Owner NodeID
}

// Doubts returns what is not believed, in the order of the versions.
func (s *State) Doubts() (list []Doubt) {
	for _, recs := range s.held {
		for _, r := range recs {
			list = append(list, s.doubt(r))
		}
	}
	slices.SortFunc(list, func(a, b Doubt) int { return a.Version.Compare(b.Version) })
	return list
}

func (s *State) doubt(r *Record) Doubt {
	d := Doubt{Key: r.Key, Version: r.Version}
	if c, ok := r.claim(); ok {
		for owner := range s.cur.ring.Counts(c.Block) {
			if owner != c.Version.By && owner > d.Owner {
				d.Owner = owner
			}
		}
	}
	return d
}

// Judge sets who may forget whom: a tombstone of the Node dead that heir wrote is
// not believed while f says no. Own tombstones, and that of the own Node, are.
//
// promised says of whom this host has promised to take nothing any more, so that
// another host takes over. What such a host gave away, and was not heard of before the
// promise, the heir may not know of, and claim as well: it is believed only when all is
// here that the heir wrote by then, and does not speak against it.
func (s *State) Judge(forgets func(heir, dead NodeID) bool, promised func(dead NodeID) bool) {
	s.forgets, s.promised = forgets, promised
}

// tooLate reports whether a claim comes from a host whose numbers this host has
// promised to another one, of which it has not heard yet what it took over.
func (s *State) tooLate(r *Record) bool {
	if s.promised == nil || !s.promised(r.Version.Node) {
		return false
	}
	node, ok := s.cur.Record(Node{ID: r.Version.Node}.Key())
	return !ok || node.Deleted == 0 || s.cur.Mark(node.Version.Node) < node.Version.Counter
}

// Settle and Settled: from the first whole answer on (Complete), which it has to
// believe, a host believes claims only from who owns the numbers. It is for
// Restore's caller to remember.
func (s *State) Settle() { s.settled = true }

// Settled reports whether claims are looked at.
func (s *State) Settled() bool { return s.settled }

// warranted reports whether the writer of r, which supersedes what is here, has
// the right to it.
func (s *State) warranted(r *Record) bool {
	if c, ok := r.claim(); ok {
		return !s.tooLate(r) && s.entitled(r, c)
	}
	switch {
	case r.Deleted == 0:
		return true
	case r.Key.Kind == KindNode && r.Version.Node != NodeID(r.Key.ID) && s.self != NodeID(r.Key.ID):
		return !s.settled || s.forgets == nil || s.forgets(r.Version.Node, NodeID(r.Key.ID))
	case r.of != "":
		node, ok := s.cur.Record(Node{ID: r.of}.Key())
		return ok && node.Deleted != 0
	}
	return true
}

// usurps reports whether r is a tombstone of what is another host's, and does not
// say that this host is forgotten.
func (s *State) usurps(r *Record) bool {
	old, ok := s.cur.byKey.Get(r)
	if r.Deleted == 0 || !ok {
		return false
	}
	host := hostOf(old.Body)
	return host != "" && host != cmp.Or(r.of, r.Version.Node)
}

// void reports whether tombstone, which is here, is no word of the host that
// wrote the live record r, nor says that this host is forgotten.
func void(tombstone, r *Record) bool {
	host := hostOf(r.Body)
	return tombstone.Deleted != 0 && host != "" && host != cmp.Or(tombstone.of, tombstone.Version.Node)
}

// hold keeps a record that is not believed, and the writer's mark below it.
func (s *State) hold(r *Record) {
	recs := s.held[r.Version.Node]
	if len(recs) >= maxHeld {
		return
	}
	if s.held == nil {
		s.held = map[NodeID]map[uint64]*Record{}
	}
	if recs == nil {
		recs = map[uint64]*Record{}
		s.held[r.Version.Node] = recs
	}
	recs[r.Version.Counter] = kept(r)
}

// release ends hold.
func (s *State) release(v Version) {
	delete(s.held[v.Node], v.Counter)
	if len(s.held[v.Node]) == 0 {
		delete(s.held, v.Node)
	}
}

// lowest returns the lowest counter that is held of a writer, and false if
// nothing is.
func (s *State) lowest(node NodeID) (low uint64, ok bool) {
	for counter := range s.held[node] {
		if !ok || counter < low {
			low, ok = counter, true
		}
	}
	return low, ok
}

// reconsider puts in what is held and is believed now, and drops what has been
// replaced. It returns what merge returns.
func (s *State) reconsider() (added, dropped []*Record) {
	for more := len(s.held) > 0; more; {
		more = false
		var all []*Record
		for _, recs := range s.held {
			all = slices.AppendSeq(all, maps.Values(recs))
		}
		slices.SortFunc(all, func(a, b *Record) int { return a.Version.Compare(b.Version) })
		for _, r := range all {
			if !s.supersedes(r) || s.usurps(r) {
				s.release(r.Version)
				s.heard(r)
				continue
			}
			if c, ok := r.claim(); ok && s.robs(c) || !s.warranted(r) {
				continue
			}
			s.release(r.Version)
			dropped = append(dropped, s.apply(r)...)
			added = append(added, r)
			s.heard(r)
			more = true
		}
	}
	return added, dropped
}

func cloneHeld(held map[NodeID]map[uint64]*Record) map[NodeID]map[uint64]*Record {
	c := maps.Clone(held)
	for node, recs := range c {
		c[node] = maps.Clone(recs)
	}
	return c
}
