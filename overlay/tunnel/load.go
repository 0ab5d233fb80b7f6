package tunnel

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/grapevine-net/grapevine/host/link"
)

// hook is where a program goes.
type hook struct {
	dev  string
	at   link.Hook
	prog string
}

func (t *Tunnel) hooks() []hook {
	return []hook{
		// At the egress of the port itself and not behind it: one queue less.
		{Port, link.Egress, bpfProgGvtunTx},
		{t.wire(), link.Ingress, bpfProgGvtunRx},
	}
}

// load brings the programs and maps into the kernel, with the maps of those that
// are attached, if they fit.
func (t *Tunnel) load() error {
	if t.objs != nil {
		return nil
	}
	link.RaiseMemlock()
	spec, err := loadBpf()
	if err != nil {
		return fmt.Errorf("read the tunnel's programs: %w", err)
	}
	old, err := t.adopt(spec)
	if err != nil {
		return err
	}
	defer func() {
		for _, m := range old {
			_ = m.Close()
		}
	}()
	objs := new(bpfObjects)
	if err := spec.LoadAndAssign(objs, &ebpf.CollectionOptions{MapReplacements: old}); err != nil {
		return fmt.Errorf("load the tunnel's programs (needs Linux 4.18 with CONFIG_BPF_SYSCALL): %w", err)
	}
	t.objs = objs
	return nil
}

// adopt returns the maps of the attached programs that fit spec, by name. A map
// that an agent of another version laid out differently is left out: it begins empty. The former agent may have wrapped
// packets in another way, by another device.
func (t *Tunnel) adopt(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	maps := make(map[string]*ebpf.Map)
	hooks := t.hooks()
	for _, name := range wires {
		hooks = append(hooks, hook{name, link.Ingress, bpfProgGvtunRx})
	}
	for _, h := range hooks {
		id, err := link.AttachedTC(h.dev, h.at, h.prog)
		if err != nil {
			return nil, err
		}
		if id == 0 {
			continue
		}
		if err := link.AdoptMaps(id, spec, maps); err != nil {
			return nil, fmt.Errorf("adopt the maps of %s at %s: %w", h.prog, h.dev, err)
		}
	}
	return maps, nil
}

// attach puts our programs at their hooks, in place of those of a former agent, and
// keeps the host's stack from the port, as Consume says.
func (t *Tunnel) attach() error {
	progs := map[string]*ebpf.Program{bpfProgGvtunTx: t.objs.GvtunTx, bpfProgGvtunRx: t.objs.GvtunRx}
	for _, h := range t.hooks() {
		want, err := progs[h.prog].Info()
		if err != nil {
			return fmt.Errorf("program %s: %w", h.prog, err)
		}
		wantID, _ := want.ID()
		have, err := link.AttachedTC(h.dev, h.at, h.prog)
		if err != nil {
			return err
		}
		if have == wantID {
			continue
		}
		if err := link.AttachTC(h.dev, h.at, link.Second, progs[h.prog], h.prog); err != nil {
			return err
		}
	}
	return link.Consume(Port)
}
