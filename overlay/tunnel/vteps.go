package tunnel

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
)

// maxVTEPs is MAX_VTEPS of tunnel.c.
const maxVTEPs = 16384

// vtep is struct vtep of tunnel.c: network order, IPv4 mapped into IPv6.
type vtep [16]byte

func (v vtep) addr() netip.Addr { return netip.AddrFrom16(v).Unmap() }

// setVTEPs makes the two maps hold vteps and nothing else.
func setVTEPs(byIndex, byAddr *ebpf.Map, vteps map[uint32]netip.Addr) error {
	oldAddrs, err := read[uint32, vtep](byIndex)
	if err != nil {
		return err
	}
	oldIndexes, err := read[vtep, uint32](byAddr)
	if err != nil {
		return err
	}
	addrs, indexes, err := invert(vteps, oldIndexes)
	if err != nil {
		return err
	}
	if err := add(byAddr, oldIndexes, indexes); err != nil {
		return err
	}
	if err := add(byIndex, oldAddrs, addrs); err != nil {
		return err
	}
	if err := prune(byIndex, oldAddrs, addrs); err != nil {
		return err
	}
	return prune(byAddr, oldIndexes, indexes)
}

// invert checks vteps and returns them in the maps' form, both ways. An address may
// have several indexes, as while flows change from one to another: packets from it
// keep the index they have, else get the lowest.
func invert(vteps map[uint32]netip.Addr, current map[vtep]uint32) (map[uint32]vtep, map[vtep]uint32, error) {
	if len(vteps) > maxVTEPs {
		return nil, nil, fmt.Errorf("set %d VTEPs: the tunnel holds %d", len(vteps), maxVTEPs)
	}
	addrs := make(map[uint32]vtep, len(vteps))
	indexes := make(map[vtep]uint32, len(vteps))
	for _, i := range slices.Sorted(maps.Keys(vteps)) {
		a := vteps[i]
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
			return nil, nil, fmt.Errorf("VTEP %d has the address %v, which is no host's", i, a)
		}
		v := vtep(a.As16())
		addrs[i] = v
		if _, taken := indexes[v]; !taken || current[v] == i {
			indexes[v] = i
		}
	}
	return addrs, indexes, nil
}

func readVTEPs(byIndex *ebpf.Map) (map[uint32]netip.Addr, error) {
	raw, err := read[uint32, vtep](byIndex)
	if err != nil {
		return nil, err
	}
	out := make(map[uint32]netip.Addr, len(raw))
	for i, v := range raw {
		out[i] = v.addr()
	}
	return out, nil
}

func read[K, V comparable](m *ebpf.Map) (map[K]V, error) {
	out := make(map[K]V)
	var k K
	var v V
	it := m.Iterate()
	for it.Next(&k, &v) {
		out[k] = v
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read map %v: %w", m, err)
	}
	return out, nil
}

func add[K, V comparable](m *ebpf.Map, have, want map[K]V) error {
	for k, v := range want {
		if old, ok := have[k]; ok && old == v {
			continue
		}
		if err := m.Put(k, v); err != nil {
			return fmt.Errorf("set %v in map %v: %w", k, m, err)
		}
	}
	return nil
}

func prune[K, V comparable](m *ebpf.Map, have, want map[K]V) error {
	for k := range have {
		if _, ok := want[k]; ok {
			continue
		}
		if err := m.Delete(k); err != nil {
			return fmt.Errorf("delete %v from map %v: %w", k, m, err)
		}
	}
	return nil
}
