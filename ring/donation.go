package ring

import "net/netip"

// Donation picks what a host gives to one that asks for a share: half of its
// largest free range. free are the giver's free blocks, as Subtract returns them,
// of one address family; unit is the prefix length of the smallest block that is
// of use (32 for single IPv4 addresses and VNIDs, 22 for networks of that size):
// free blocks that are smaller do not count and are not given.
//
// It returns the largest free aligned block that is no larger than half of the
// free numbers, rounded up to a power of two; the highest of these, since a host
// uses its own numbers from below. A host with one unit left keeps it: Donation
// returns false.
func Donation(free []netip.Prefix, unit int) (netip.Prefix, bool) {
	var usable []netip.Prefix
	for _, p := range Union(free) {
		if p.Bits() <= unit {
			usable = append(usable, p)
		}
	}
	if len(usable) == 0 {
		return netip.Prefix{}, false
	}
	bitLen := usable[0].Addr().BitLen()
	unit = min(unit, bitLen)
	units := count(usable).shr(bitLen - unit)
	if units.less(number{0, 2}) {
		return netip.Prefix{}, false
	}
	half := 128 - units.shr(1).dec().leadingZeros() // log2 of half the units, rounded up
	bits := max(unit-half, 0)
	var best netip.Prefix
	for _, p := range usable {
		if p.Bits() < bits {
			p = lastPart(p, bits)
		}
		if !best.IsValid() || p.Bits() <= best.Bits() {
			best = p
		}
	}
	return best, true
}

// Fit returns a block of the given prefix length from free, and false if none of
// the blocks is large enough. It takes the first part of the smallest that is, so
// that large ones stay whole.
func Fit(free []netip.Prefix, bits int) (netip.Prefix, bool) {
	var best netip.Prefix
	for _, p := range free {
		if p.IsValid() && p.Bits() <= bits && bits <= p.Addr().BitLen() && (!best.IsValid() || p.Bits() > best.Bits()) {
			best = p
		}
	}
	if !best.IsValid() {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(best.Masked().Addr(), bits), true
}

// lastPart returns the highest block of the given prefix length inside p.
func lastPart(p netip.Prefix, bits int) netip.Prefix {
	s := spanOf(p)
	return netip.PrefixFrom(s.last.addr(s.bitLen), bits).Masked()
}
