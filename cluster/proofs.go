package cluster

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/ring"
)

// maxProofs bounds the proofs of a claim; the newest are kept. Who claims what has more does it in parts (Provable).
const maxProofs = 64

// proofs returns the claims of others that c, which this host is about to write,
// replaces, and their proofs: of each writer and block the newest. A host that
// has not heard of those claims, and cannot hear of them any more, sees by them
// that the writer of c owned the numbers.
//
// The newest of each writer and block is enough: whoever still takes an earlier
// owner for the owner believes that one's newest gift at once, as far as it goes (pass).
func (s *State) proofs(c ring.Claim) []Record {
	list := s.allProofs(c)
	return list[max(0, len(list)-maxProofs):]
}

// maxParts bounds the parts of Provable that have proofs, so that no block has claims without end. What lies close together in a wide block,
// as addresses of IPv6 do, is parted from many that have none.
const maxParts = 16

// Provable are the parts in which a block is to be claimed, so that each claim has all of its proofs: mostly the block as it is.
// What has the most is halved first. What maxParts do not suffice for keeps the newest proofs, as does a single number.
func (s *State) Provable(block netip.Prefix) []netip.Prefix {
	count := func(p netip.Prefix) int {
		return len(s.allProofs(ring.Claim{Block: p, Version: ring.Version{Counter: s.clock + 1, By: s.self}}))
	}
	parts, counts := []netip.Prefix{block}, []int{count(block)}
	for proven := 1; proven < maxParts; {
		most := -1
		for i, n := range counts {
			if n > maxProofs && parts[i].Bits() < block.Addr().BitLen() && (most < 0 || n > counts[most]) {
				most = i
			}
		}
		if most < 0 {
			break
		}
		low, high := halves(parts[most])
		below, above := count(low), count(high)
		parts, counts = slices.Replace(parts, most, most+1, low, high), slices.Replace(counts, most, most+1, below, above)
		if below > 0 && above > 0 {
			proven++
		}
	}
	return parts
}

func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits, b := p.Bits()+1, p.Addr().AsSlice()
	b[(bits-1)/8] |= 0x80 >> ((bits - 1) % 8)
	top, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(p.Addr(), bits), netip.PrefixFrom(top, bits)
}

func (s *State) allProofs(c ring.Claim) []Record {
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
		for _, t := range r.proofs {
			add(t)
		}
		r.proofs = nil
		add(r)
	}
	return slices.SortedFunc(maps.Values(newest), func(a, b Record) int { return a.Version.Compare(b.Version) })
}

// rights is who may write what, by what this host has heard and has promised.
type rights struct {
	self NodeID
	// settled says that this host has heard a whole answer, or begun the cluster:
	// from then on it believes claims only from who owns the numbers.
	settled bool
	// forgets says whether a host may forget another one (Judge); nil: any may.
	forgets func(heir, dead NodeID) bool
	// promised says whether this host has promised a host's numbers to another one
	// (Judge); nil: none.
	promised func(dead NodeID) bool
}

// Judge sets who may forget whom: a tombstone of the Node dead that heir wrote is
// not believed while f says no. Own tombstones, and that of the own Node, are.
//
// promised says of whom this host has promised to take nothing any more, so that
// another host takes over. What such a host gave away, and was not heard of before the
// promise, the heir may not know of, and claim as well: it is believed only when all is
// here that the heir wrote by then, and does not speak against it.
func (s *State) Judge(forgets func(heir, dead NodeID) bool, promised func(dead NodeID) bool) {
	s.rights.forgets, s.rights.promised = forgets, promised
}

// Settle and Settled: from the first whole answer on (Complete), which it has to
// believe, a host believes claims only from who owns the numbers. It is for
// Restore's caller to remember.
func (s *State) Settle() { s.rights.settled = true }

// Settled reports whether claims are looked at.
func (s *State) Settled() bool { return s.rights.settled }

// warranted reports whether the writer of r, which supersedes what is here, has
// the right to it.
func (w *rights) warranted(snap *Snapshot, r *Record) bool {
	if c, ok := r.claim(); ok {
		return !w.tooLate(snap, r) && w.entitled(snap, r, c)
	}
	switch {
	case r.Deleted == 0:
		return true
	case r.Key.Kind == KindNode && r.Version.Node != NodeID(r.Key.ID) && w.self != NodeID(r.Key.ID):
		return !w.settled || w.forgets == nil || w.forgets(r.Version.Node, NodeID(r.Key.ID))
	case r.of != "":
		node, ok := snap.Record(Node{ID: r.of}.Key())
		return ok && node.Deleted != 0
	}
	return true
}

// tooLate reports whether a claim comes from a host whose numbers this host has
// promised to another one, of which it has not heard yet what it took over.
func (w *rights) tooLate(snap *Snapshot, r *Record) bool {
	if w.promised == nil || !w.promised(r.Version.Node) {
		return false
	}
	node, ok := snap.Record(Node{ID: r.Version.Node}.Key())
	return !ok || node.Deleted == 0 || snap.Mark(node.Version.Node) < node.Version.Counter
}

// entitled reports whether the writer of r, a claim, was the owner of what it
// gives away, by what is known here and by the proofs that came with it.
func (w *rights) entitled(snap *Snapshot, r *Record, c ring.Claim) bool {
	if !w.settled || snap.mayGive(snap.ring, c) {
		return true
	}
	if len(r.proofs) == 0 {
		return false
	}
	proof := snap.ring.Clone()
	for _, t := range r.proofs { // the oldest first
		if older, ok := t.claim(); ok && proof.Fresh(older) {
			pass(snap, proof, older)
		}
	}
	return snap.mayGive(proof, c)
}

// pass has c, a proof, do to r what its writer has a right to: who signs that all of a block has another owner gives away
// what is its own of it. The rest may be somebody else's by what is known here, whose own word comes before or after it;
// if all of c had to be believed, two words could each wait for the other.
func pass(s *Snapshot, r *ring.Ring, c ring.Claim) {
	if s.mayGive(r, c) {
		r.Merge(c)
		return
	}
	var parts []ring.Claim
	for owner := range r.Counts(c.Block) {
		if owner == c.Version.By || s.heir(c.Version.By, owner) {
			for _, p := range r.Owned(owner, c.Block) {
				parts = append(parts, ring.Claim{Block: p, Version: c.Version, Owner: c.Owner})
			}
		}
	}
	r.Merge(parts...)
}

// mayGive reports whether c is for its writer to make: of every number that gets
// another owner by it, the writer is the owner or the heir of the owner, or nobody
// is the owner.
func (s *Snapshot) mayGive(r *ring.Ring, c ring.Claim) bool {
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
func (s *Snapshot) heir(writer, dead NodeID) bool {
	for range maxHeirs {
		r, ok := s.Record(Node{ID: dead}.Key())
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

// foreignTombstone reports whether r is a tombstone of what is another host's, and does not
// say that this host is forgotten.
func (s *Snapshot) foreignTombstone(r *Record) bool {
	old, ok := s.byKey.Get(r)
	if r.Deleted == 0 || !ok {
		return false
	}
	host := hostOf(old.Body)
	return host != "" && host != cmp.Or(r.of, r.Version.Node)
}

// foreignTo reports whether tombstone, which is here, is no word of the host that
// wrote the live record r, nor says that this host is forgotten.
func foreignTo(tombstone, r *Record) bool {
	host := hostOf(r.Body)
	return tombstone.Deleted != 0 && host != "" && host != cmp.Or(tombstone.of, tombstone.Version.Node)
}
