package tunnel

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// maxVTEPs is MAX_VTEPS of tunnel.c.
const maxVTEPs = 16384

// vtep is struct vtep of tunnel.c: network order, IPv4 mapped into IPv6.
type vtep [16]byte

func (v vtep) addr() netip.Addr { return netip.AddrFrom16(v).Unmap() }

// setVTEPs makes the two maps hold vteps and nothing else.
func setVTEPs(byIndex, byAddr *ebpf.Map, vteps map[uint32]netip.Addr) error {
	addrs, indexes, err := invert(vteps)
	if err != nil {
		return err
	}
	oldAddrs, err := read[uint32, vtep](byIndex)
	if err != nil {
		return err
	}
	oldIndexes, err := read[vtep, uint32](byAddr)
	if err != nil {
		return err
	}
	if err := add(byAddr, oldIndexes, indexes); err != nil {
		return err
	}
	if err := add(byIndex, oldAddrs, addrs); err != nil {
		return err
	}
	if err := remove(byIndex, oldAddrs, addrs); err != nil {
		return err
	}
	return remove(byAddr, oldIndexes, indexes)
}

// invert checks vteps and returns them in the maps' form, both ways.
func invert(vteps map[uint32]netip.Addr) (map[uint32]vtep, map[vtep]uint32, error) {
	if len(vteps) > maxVTEPs {
		return nil, nil, fmt.Errorf("set %d VTEPs: the tunnel holds %d", len(vteps), maxVTEPs)
	}
	addrs := make(map[uint32]vtep, len(vteps))
	indexes := make(map[vtep]uint32, len(vteps))
	for i, a := range vteps {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
			return nil, nil, fmt.Errorf("VTEP %d has the address %v, which is no host's", i, a)
		}
		v := vtep(a.As16())
		if j, twice := indexes[v]; twice {
			return nil, nil, fmt.Errorf("VTEPs %d and %d have the same address %v", min(i, j), max(i, j), a)
		}
		addrs[i], indexes[v] = v, i
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

func remove[K, V comparable](m *ebpf.Map, have, want map[K]V) error {
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
