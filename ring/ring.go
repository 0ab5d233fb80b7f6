package ring

import (
	"iter"
	"net/netip"
	"sync"

	"github.com/google/btree"
)

// degree of the trees: nodes of up to 63 claims keep both the height and the
// cost of copying a node on write small.
const degree = 32

// Ring is a set of claims of which none dominates another. The zero Ring is
// empty and ready. Any number of goroutines may read and Clone one Ring at once;
// Merge needs it alone, but not its clones.
type Ring struct {
	tree *btree.BTreeG[Claim]
	// cloning serialises Clone: cloning a tree writes to it, in a place that no
	// reader looks at.
	cloning sync.Mutex
}

// Clone returns a copy, in constant time: the two share what neither changes.
func (r *Ring) Clone() *Ring {
	r.cloning.Lock()
	defer r.cloning.Unlock()
	if r.tree == nil {
		return &Ring{}
	}
	return &Ring{tree: r.tree.Clone()}
}

// Len returns the number of claims.
func (r *Ring) Len() int {
	if r.tree == nil {
		return 0
	}
	return r.tree.Len()
}

// Merge adds claims and keeps what nothing dominates. It returns the claims
// that are in the ring now and were not before, in the order given, and those
// that were in it and are not any more. A claim that is invalid, dominated or
// known already changes nothing and is in neither. Merge is commutative,
// associative and idempotent.
func (r *Ring) Merge(claims ...Claim) (accepted, dropped []Claim) {
	for _, c := range claims {
		if c.Validate() != nil || !r.Fresh(c) {
			continue
		}
		for _, d := range r.insert(c) {
			if i := index(accepted, d); i >= 0 {
				accepted = append(accepted[:i], accepted[i+1:]...)
			} else {
				dropped = append(dropped, d)
			}
		}
		accepted = append(accepted, c)
	}
	return accepted, dropped
}

// Fresh reports whether merging c would change the ring: it is not there and
// nothing there dominates it.
func (r *Ring) Fresh(c Claim) bool {
	// Of the claims around a block the narrowest is the newest: it decides.
	for p := range r.around(c.Block) {
		return p != c && !p.Dominates(c)
	}
	return true
}

// insert puts c, which is fresh, into the tree and returns what it dominates.
func (r *Ring) insert(c Claim) (dropped []Claim) {
	if r.tree == nil {
		r.tree = btree.NewG(degree, func(a, b Claim) bool { return compareBlocks(a.Block, b.Block) < 0 })
	}
	for d := range r.inside(c.Block) {
		if c.Dominates(d) {
			dropped = append(dropped, d)
		}
	}
	for _, d := range dropped {
		r.tree.Delete(d)
	}
	r.tree.ReplaceOrInsert(c)
	return dropped
}

// Owner returns the claim that decides who owns a: the narrowest one around it,
// which is also the newest. It returns false if nobody owns a.
func (r *Ring) Owner(a netip.Addr) (Claim, bool) {
	if !a.IsValid() {
		return Claim{}, false
	}
	for c := range r.around(netip.PrefixFrom(a, a.BitLen())) {
		return c, true
	}
	return Claim{}, false
}

// Claims yields all claims in address order, IPv4 before IPv6 and wider blocks
// before what is inside them.
func (r *Ring) Claims() iter.Seq[Claim] {
	return func(yield func(Claim) bool) {
		if r.tree != nil {
			r.tree.Ascend(func(c Claim) bool { return yield(c) })
		}
	}
}

// Within yields the claims that say who owns the numbers of p: those around p,
// the widest first, and then those inside it in address order. It yields nothing
// if p is invalid or not masked.
func (r *Ring) Within(p netip.Prefix) iter.Seq[Claim] {
	return func(yield func(Claim) bool) {
		if !validBlock(p) {
			return
		}
		var around []Claim
		for c := range r.around(p) {
			if c.Block != p {
				around = append(around, c)
			}
		}
		for i := len(around) - 1; i >= 0; i-- {
			if !yield(around[i]) {
				return
			}
		}
		for c := range r.inside(p) {
			if !yield(c) {
				return
			}
		}
	}
}

func index(claims []Claim, c Claim) int {
	// From the end: what a merge drops again is mostly what it has just added.
	for i := len(claims) - 1; i >= 0; i-- {
		if claims[i] == c {
			return i
		}
	}
	return -1
}
