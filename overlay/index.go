package overlay

import (
	"hash/fnv"
	"net/netip"
	"slices"
)

// vtepIndexes gives every VTEP a number that stays the same as long as it is there,
// over restarts too, so that a restarted agent finds its flows as they should be:
// an IPv4 address is its own number, an IPv6 address its hash, and the next free one
// if two fall together (the lower address first). 0 is nobody's.
func vtepIndexes(addrs []netip.Addr) map[netip.Addr]uint32 {
	index, taken := map[netip.Addr]uint32{}, map[uint32]bool{0: true}
	addrs = slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare) // IPv4 first
	for _, a := range slices.Compact(addrs) {
		i := firstIndex(a)
		for taken[i] {
			i++
		}
		index[a], taken[i] = i, true
	}
	return index
}

func firstIndex(a netip.Addr) uint32 {
	if a.Is4() {
		b := a.As4()
		return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	}
	h := fnv.New32a()
	_, _ = h.Write(a.AsSlice()) // never fails
	return h.Sum32()
}
