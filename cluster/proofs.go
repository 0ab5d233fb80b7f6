package cluster

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/ring"
)

// maxProofs bounds the proofs of a claim; the newest are kept. Who claims what has more does it in parts (Provable).
const maxProofs = 64

// said is a claim of another host's that a claim of this host's replaces, or that is a proof of one that it replaces.
type said struct {
	rec   *Record
	claim ring.Claim
	with  int // the length of the block of the claim in the ring that it is, or that it came with
}

// proofs returns what a claim of this host's on a block has to show: claims of other hosts that it replaces, and their proofs. A
// host that has not heard of those, and cannot hear of them any more, sees by them that this host owned the numbers.
//
// Of each number the newest word of each host is enough: whoever still takes an earlier owner for the owner believes that one's
// newest word at once, as far as it goes (pass). And of a host that is gone a newer word of who may speak for it (voices) is.
func (s *State) proofs(block netip.Prefix) []Record {
	v := voices{s, map[NodeID]voice{}}
	needed := v.needed(v.words(block))
	slices.SortFunc(needed, func(a, b said) int { return a.rec.Version.Compare(b.rec.Version) })
	needed = needed[max(0, len(needed)-maxProofs):]
	list := make([]Record, len(needed))
	for i, w := range needed {
		list[i] = *w.rec
		list[i].proofs = nil
	}
	return list
}

// maxParts bounds the parts of Provable that have proofs, so that no block has claims without end. What lies close together in a wide block,
// as addresses of IPv6 do, is parted from many that have none.
const maxParts = 16

// Provable are the parts in which a block is to be claimed, so that each claim has all of its proofs: mostly the block as it is.
// What has the most is halved first. What maxParts do not suffice for keeps the newest proofs, as does a single number.
func (s *State) Provable(block netip.Prefix) []netip.Prefix {
	v := voices{s, map[NodeID]voice{}}
	type part struct {
		words  []said
		proofs int
	}
	words := v.words(block)
	blocks, parts := []netip.Prefix{block}, []part{{words, len(v.needed(words))}}
	for proven := 1; proven < maxParts; {
		most := -1
		for i, p := range parts {
			if p.proofs > maxProofs && blocks[i].Bits() < block.Addr().BitLen() && (most < 0 || p.proofs > parts[most].proofs) {
				most = i
			}
		}
		if most < 0 {
			break
		}
		low, high := halves(blocks[most])
		was := parts[most]
		// What came with a claim on both stays with that one, around them.
		words := slices.DeleteFunc(was.words, func(w said) bool { return w.with < low.Bits() })
		at, _ := slices.BinarySearchFunc(words, high, func(w said, high netip.Prefix) int { return w.claim.Block.Compare(high) })
		below, above := part{words: words[:at]}, part{words: words[at:]}
		for _, half := range []*part{&below, &above} {
			if half.proofs = was.proofs; len(half.words) < len(was.words) {
				half.proofs = len(v.needed(half.words))
			}
		}
		blocks, parts = slices.Replace(blocks, most, most+1, low, high), slices.Replace(parts, most, most+1, below, above)
		if below.proofs > 0 && above.proofs > 0 {
			proven++
		}
	}
	return blocks
}

// voices knows who may speak for whom.
type voices struct {
	state *State
	of    map[NodeID]voice
}

// voice is who may speak for a host that is gone.
type voice struct {
	hosts   []NodeID
	anybody bool
}

// words returns what other hosts have said of numbers that a claim of this host's on a block replaces, but for those for which this
// host may speak: in the order of the blocks, wider ones before what is inside them, and of one block the newest first.
func (v voices) words(block netip.Prefix) (list []said) {
	add := func(r *Record, with netip.Prefix) {
		if c, ok := r.claim(); ok && !v.speaks(v.state.self, c.Version.By) {
			list = append(list, said{r, c, with.Bits()})
		}
	}
	for d := range v.state.cur.ring.Within(block) {
		if r := v.state.claimed(d); r != nil && d.Block.Bits() >= block.Bits() {
			add(r, d.Block)
			for i := range r.proofs {
				add(&r.proofs[i], d.Block)
			}
		}
	}
	slices.SortFunc(list, func(a, b said) int {
		return cmp.Or(a.claim.Block.Compare(b.claim.Block), b.claim.Version.Compare(a.claim.Version))
	})
	return list
}

// needed returns those words, in their order, since which nobody who may speak for the same host has said anything of all of the block.
func (v voices) needed(words []said) (list []said) {
	var around []*said // of those, what is on the next one's block or around it
	for i := range words {
		w := &words[i]
		for len(around) > 0 && !covers(around[len(around)-1].claim.Block, w.claim.Block) {
			around = around[:len(around)-1]
		}
		if !slices.ContainsFunc(around, func(o *said) bool {
			return o.claim.Version.Compare(w.claim.Version) >= 0 && v.speaks(o.claim.Version.By, w.claim.Version.By)
		}) {
			list, around = append(list, *w), append(around, w)
		}
	}
	return list
}

// speaks reports whether a host may speak for another one, as every host believes that has heard as much (heir).
func (v voices) speaks(host, dead NodeID) bool {
	if host == dead {
		return true
	}
	of, known := v.of[dead]
	if !known {
		of.hosts, of.anybody = v.state.successors(dead)
		v.of[dead] = of
	}
	return of.anybody || slices.Contains(of.hosts, host)
}

// successors returns who may speak for a host that is gone: the host that wrote its tombstone, and that which wrote that one's, and
// so on; and anybody if the last of them left by its own word. Who is being forgotten may get another tombstone yet.
func (s *State) successors(gone NodeID) (hosts []NodeID, anybody bool) {
	for range maxHeirs {
		r, ok := s.cur.Record(Node{ID: gone}.Key())
		switch by := r.Version.Node; {
		case !ok || r.Deleted == 0:
			return hosts, false
		case by == gone:
			return hosts, s.rights.promised == nil || !s.rights.promised(gone)
		default:
			hosts, gone = append(hosts, by), by
		}
	}
	return hosts, false
}

// claimed returns the record of a claim of the ring.
func (s *State) claimed(c ring.Claim) (found *Record) {
	s.cur.byWriter.AscendGreaterOrEqual(s.at(Version{c.Version.Counter, c.Version.By}), func(r *Record) bool {
		if is, ok := r.claim(); ok && is == c {
			found = r
		}
		return found == nil && r.Version.Counter == c.Version.Counter && r.Version.Node == c.Version.By
	})
	return found
}

func covers(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits, b := p.Bits()+1, p.Addr().AsSlice()
	b[(bits-1)/8] |= 0x80 >> ((bits - 1) % 8)
	top, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(p.Addr(), bits), netip.PrefixFrom(top, bits)
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
