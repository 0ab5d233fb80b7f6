package fastpath

import (
	"maps"
	"slices"

	"github.com/grapevine-net/grapevine/host/link"
)

// Lost names the devices whose program another one has taken away. The next Widen puts it
// back. Of what stands at the underlay it says nothing.
func (p *Path) Lost() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(p.attached)) {
		program, hook := endpointProgram, link.Ingress
		switch name {
		case p.cfg.Underlay.Device:
			continue
		case p.cfg.Tunnel:
			program = tunnelProgram
		case p.cfg.Gateway:
			program, hook = gatewayProgram, link.Egress
		}
		if l, err := link.Get(name); err != nil || uint32(l.Index) != p.attached[name] {
			continue // gone, or another one: the next Widen sees that
		}
		if id, err := link.AttachedTC(name, hook, program); err == nil && id == 0 {
			delete(p.attached, name)
			names = append(names, name)
		}
	}
	return names
}
