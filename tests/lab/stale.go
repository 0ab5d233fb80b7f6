package lab

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/grapevine-net/grapevine/host/link"
)

// staleMain makes what the fast path of this host knows of a range wrong, behind the agent's back: args are an
// address in it and the VTEP that it is said to be at.
func staleMain(args []string) error {
	addr, err := netip.ParseAddr(args[0])
	if err != nil {
		return err
	}
	vtep, err := netip.ParseAddr(args[1])
	if err != nil {
		return err
	}
	ranges, err := attachedMap("gv_ranges")
	if err != nil {
		return err
	}
	defer ranges.Close()
	value := make([]byte, ranges.ValueSize())
	key := struct {
		Bits uint32
		Addr [16]byte
	}{128, addr.As16()}
	if err := ranges.Lookup(key, value); err != nil { // of the longest range
		return fmt.Errorf("look up %s: %w", addr, err)
	}
	at := vtep.As16()
	copy(value, at[:])
	return ranges.Put(key, value) // longer than any
}

// attachedMap is a map of the program at a container's interface in this network namespace.
func attachedMap(name string) (*ebpf.Map, error) {
	list, err := link.List("g")
	if err != nil {
		return nil, err
	}
	for _, l := range list {
		id, err := link.AttachedTC(l.Name, link.Ingress, "gv_endpoint")
		if err != nil || id == 0 {
			continue
		}
		program, err := ebpf.NewProgramFromID(id)
		if err != nil {
			return nil, err
		}
		defer program.Close()
		info, err := program.Info()
		if err != nil {
			return nil, err
		}
		ids, _ := info.MapIDs()
		for _, id := range ids {
			m, err := ebpf.NewMapFromID(id)
			if err != nil {
				return nil, err
			}
			if info, err := m.Info(); err == nil && info.Name == name {
				return m, nil
			}
			_ = m.Close()
		}
	}
	return nil, errors.New("no program of the fast path has a map " + name)
}
