package link

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// AdoptMaps adds the maps of the loaded program id that fit spec to maps, by name. One
// that an agent of another version laid out differently is left out, and so is one
// whose name is taken. The caller closes them.
func AdoptMaps(id ebpf.ProgramID, spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) error {
	prog, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return fmt.Errorf("adopt the maps of program %d: %w", id, err)
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		return fmt.Errorf("adopt the maps of program %d: %w", id, err)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return fmt.Errorf("adopt map %d: %w", id, err)
		}
		mi, err := m.Info()
		if err != nil {
			return errors.Join(fmt.Errorf("adopt map %d: %w", id, err), m.Close())
		}
		s := spec.Maps[mi.Name]
		if s == nil || maps[mi.Name] != nil || s.Compatible(m) != nil {
			_ = m.Close()
			continue
		}
		maps[mi.Name] = m
	}
	return nil
}
