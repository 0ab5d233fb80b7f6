package overlay

import (
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// vtepsOf gives every VTEP a number that stays the same as long as it is there, over
// restarts too: so a restarted agent finds its flows as they should be. An IPv4 address is
// its own number. An IPv6 address has its hash; if two fall together the lower address has
// it, and the other one the next free number. 0 is nobody's. The VTEPs come in order.
func vtepsOf(addrs []netip.Addr) []pipeline.VTEP {
	taken := make(map[uint32]bool, len(addrs)+1)
	taken[0] = true
	slices.SortFunc(addrs, netip.Addr.Compare) // IPv4 first
	addrs = slices.Compact(addrs)
	vteps := make([]pipeline.VTEP, len(addrs))
	for n, a := range addrs {
		i := firstIndex(a)
		for taken[i] {
			i++
		}
		vteps[n], taken[i] = pipeline.VTEP{Addr: a, Index: i}, true
	}
	return vteps
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

// hostAddrs gives every host its addresses in pipeline.HostRanges, the same on all hosts
// that know of the same ones, without a word between them. IPv6: its ID, which has just
// the length. IPv4: a hash of the ID, and the next free one if two fall together (the
// lower ID first), which of 1,000 hosts happens once in 250 clusters.
func hostAddrs(ids []cluster.NodeID) map[cluster.NodeID][]netip.Addr {
	addrs, taken := make(map[cluster.NodeID][]netip.Addr, len(ids)), make(map[uint32]bool, len(ids))
	first, size := pipeline.HostRanges[0].Addr().As4(), uint32(1)<<(32-pipeline.HostRanges[0].Bits())
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		raw, err := hex.DecodeString(string(id))
		if err != nil || len(raw) != 8 {
			continue // no host of ours
		}
		h := fnv.New32a()
		_, _ = h.Write(raw) // never fails
		i := h.Sum32() % size
		for taken[i] || i == 0 {
			i = (i + 1) % size
		}
		taken[i] = true
		four, six := first, pipeline.HostRanges[1].Addr().As16()
		binary.BigEndian.PutUint32(four[:], binary.BigEndian.Uint32(first[:])|i)
		copy(six[8:], raw)
		addrs[id] = []netip.Addr{netip.AddrFrom4(four), netip.AddrFrom16(six)}
	}
	return addrs
}
