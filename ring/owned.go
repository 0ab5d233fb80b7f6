package ring

import "net/netip"

// sweep goes through the claims of a block in address order and says for each
// run of numbers who owns it.
type sweep struct {
	open   []edge // the claims around the next number, the narrowest last
	next   number // the first number not yet accounted for
	done   bool   // there is no number after the last one accounted for
	bitLen int
	yield  func(Owner, span)
}

// edge is where the claim of an owner ends.
type edge struct {
	owner Owner
	last  number
}

// begin accounts for all numbers before s and opens the claim on s.
func (w *sweep) begin(o Owner, s span) {
	for len(w.open) > 0 && w.top().last.less(s.first) {
		w.end()
	}
	if s.first != (number{}) {
		w.upTo(s.first.dec())
	}
	w.next = s.first
	w.open = append(w.open, edge{o, s.last})
}

// end accounts for the rest of the narrowest claim and closes it.
func (w *sweep) end() {
	w.upTo(w.top().last)
	w.open = w.open[:len(w.open)-1]
}

// upTo accounts for the numbers up to and including last.
func (w *sweep) upTo(last number) {
	if len(w.open) == 0 || w.done || last.less(w.next) {
		return
	}
	w.yield(w.top().owner, span{w.next, last, w.bitLen})
	w.done = last == maxNumber
	w.next = last.inc()
}

func (w *sweep) top() edge { return w.open[len(w.open)-1] }

// owners calls yield for each run of numbers of p under one claim, in address
// order, leaving out what nobody owns. Runs side by side may have one owner.
func (r *Ring) owners(p netip.Prefix, yield func(Owner, span)) {
	if !validBlock(p) {
		return
	}
	whole := spanOf(p)
	w := sweep{next: whole.first, bitLen: whole.bitLen, yield: yield}
	for c := range r.Within(p) {
		s := whole
		if contains(p, c.Block) {
			s = spanOf(c.Block)
		}
		w.begin(c.Owner, s)
	}
	for len(w.open) > 0 {
		w.end()
	}
}

// Owned returns the numbers of within that o owns, as the fewest aligned blocks
// in address order: neighbours are joined even if they came by separate claims.
// It returns nil if there are none or within is not a masked prefix.
func (r *Ring) Owned(o Owner, within netip.Prefix) []netip.Prefix {
	var spans []span
	r.owners(within, func(owner Owner, s span) {
		if owner == o {
			spans = join(spans, s)
		}
	})
	return blocksOf(spans)
}

// OwnsAll reports whether o owns every number of block.
func (r *Ring) OwnsAll(o Owner, block netip.Prefix) bool {
	owned := r.Owned(o, block)
	return len(owned) == 1 && owned[0] == block
}

// Counts returns how many numbers of within each host owns, or the highest
// uint64 if there are more. Hosts that own none are left out.
func (r *Ring) Counts(within netip.Prefix) map[Owner]uint64 {
	sums := map[Owner]number{}
	r.owners(within, func(o Owner, s span) {
		n := s.last.sub(s.first)
		if n != maxNumber {
			n = n.inc()
		}
		sums[o] = sums[o].plus(n)
	})
	counts := make(map[Owner]uint64, len(sums))
	for o, n := range sums {
		counts[o] = n.saturated()
	}
	return counts
}
