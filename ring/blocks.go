package ring

import (
	"net/netip"
	"slices"
)

// span is a run of numbers of one address family, both ends included.
type span struct {
	first, last number
	bitLen      int
}

func spanOf(p netip.Prefix) span {
	first, bitLen := numberOf(p.Addr()), p.Addr().BitLen()
	size := power(bitLen - p.Bits())
	if size == maxNumber {
		return span{number{}, maxNumber, bitLen}
	}
	return span{first, first.add(size).dec(), bitLen}
}

// blocks appends the fewest aligned blocks that make up s, in address order.
func (s span) blocks(to []netip.Prefix) []netip.Prefix {
	for n := s.first; ; {
		host := min(n.trailingZeros(), s.bitLen)
		for host > 0 && s.last.sub(n).less(power(host).dec()) {
			host--
		}
		if host == 128 && (n != number{} || s.last != maxNumber) {
			host-- // power(128) saturates, one below the truth
		}
		p := netip.PrefixFrom(n.addr(s.bitLen), s.bitLen-host)
		to = append(to, p)
		end := spanOf(p).last
		if !end.less(s.last) {
			return to
		}
		n = end.inc()
	}
}

// spansOf returns blocks, in any order and overlapping or not, as separate
// spans in address order, IPv4 first. It leaves out what is no masked prefix.
func spansOf(blocks []netip.Prefix) []span {
	sorted := slices.DeleteFunc(slices.Clone(blocks), func(p netip.Prefix) bool { return !validBlock(p) })
	slices.SortFunc(sorted, compareBlocks)
	var spans []span
	for _, p := range sorted {
		spans = join(spans, spanOf(p))
	}
	return spans
}

// join appends s, which begins at or after the last of spans, or extends that one.
func join(spans []span, s span) []span {
	if len(spans) == 0 {
		return append(spans, s)
	}
	end := &spans[len(spans)-1]
	if end.bitLen != s.bitLen || end.last != maxNumber && end.last.inc().less(s.first) {
		return append(spans, s)
	}
	if end.last.less(s.last) {
		end.last = s.last
	}
	return spans
}

func blocksOf(spans []span) (blocks []netip.Prefix) {
	for _, s := range spans {
		blocks = s.blocks(blocks)
	}
	return blocks
}

// Union returns the numbers of blocks, which may overlap and be in any order, as
// the fewest aligned blocks in address order, IPv4 before IPv6.
func Union(blocks []netip.Prefix) []netip.Prefix { return blocksOf(spansOf(blocks)) }

// Subtract returns the numbers that are in blocks and not in used, as the fewest
// aligned blocks in address order. Both may overlap and be in any order; what is
// not a masked prefix counts for nothing.
func Subtract(blocks, used []netip.Prefix) []netip.Prefix {
	holes := spansOf(used)
	var left []span
	for _, s := range spansOf(blocks) {
		left = s.without(holes, left)
	}
	return blocksOf(left)
}

// without appends what is left of s without the holes, which are in order.
func (s span) without(holes []span, to []span) []span {
	for _, h := range holes {
		if h.bitLen != s.bitLen || h.last.less(s.first) {
			continue
		}
		if s.last.less(h.first) {
			break
		}
		if s.first.less(h.first) {
			to = append(to, span{s.first, h.first.dec(), s.bitLen})
		}
		if !h.last.less(s.last) {
			return to
		}
		s.first = h.last.inc()
	}
	return append(to, s)
}

// Count returns how many numbers blocks have, each block for itself, or the
// highest uint64 if there are more.
func Count(blocks []netip.Prefix) uint64 { return count(blocks).saturated() }

func count(blocks []netip.Prefix) (n number) {
	for _, p := range blocks {
		n = n.plus(size(p))
	}
	return n
}

// size returns the numbers of a block, 2^128-1 for ::/0.
func size(p netip.Prefix) number { return power(p.Addr().BitLen() - p.Bits()) }
