package ring

import (
	"iter"
	"net/netip"
)

// inside yields the claims on p and on blocks inside it, in address order. The
// ring must not change meanwhile.
func (r *Ring) inside(p netip.Prefix) iter.Seq[Claim] {
	return func(yield func(Claim) bool) {
		if r.tree == nil {
			return
		}
		r.tree.AscendGreaterOrEqual(Claim{Block: p}, func(c Claim) bool {
			return p.Contains(c.Block.Addr()) && yield(c)
		})
	}
}

// around yields the claims on p and on blocks around it, the narrowest first.
// The ring must not change meanwhile.
func (r *Ring) around(p netip.Prefix) iter.Seq[Claim] {
	return func(yield func(Claim) bool) {
		if r.tree == nil {
			return
		}
		// Each step looks at the last claim at or before the narrowest block that
		// may still come. If that claim is not around p, then what is around p is
		// also around that claim, hence no narrower than what the two share.
		for next := p; ; {
			c, ok := r.atOrBefore(next)
			if !ok || c.Block.Addr().BitLen() != p.Addr().BitLen() {
				return
			}
			bits := c.Block.Bits() - 1
			if contains(c.Block, p) {
				if !yield(c) {
					return
				}
			} else {
				bits = min(next.Bits()-1, commonBits(c.Block.Addr(), p.Addr()))
			}
			if bits < 0 {
				return
			}
			next = netip.PrefixFrom(p.Addr(), bits).Masked()
		}
	}
}

// atOrBefore returns the last claim in address order whose block is p or before it.
func (r *Ring) atOrBefore(p netip.Prefix) (last Claim, ok bool) {
	r.tree.DescendLessOrEqual(Claim{Block: p}, func(c Claim) bool {
		last, ok = c, true
		return false
	})
	return last, ok
}

// commonBits returns the length of the longest prefix that a and b, of one
// address family, share.
func commonBits(a, b netip.Addr) int {
	return numberOf(a).xor(numberOf(b)).leadingZeros() - (128 - a.BitLen())
}
