package fastpath

import (
	"maps"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/host/link"
)

// lost is in place of the index of a device whose program was taken away.
const lost = 0

// Lost names the devices whose program another one has taken away, until the next Widen or Settle puts it
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
		case p.cfg.Port:
			program, hook = noteTunnelProgram, link.Egress
		default:
			if p.cfg.Inner != nil && strings.HasPrefix(name, p.cfg.InnerPrefix) {
				program = noteLocalProgram
			}
		}
		index := p.attached[name]
		if l, err := link.Get(name); err != nil || index != lost && uint32(l.Index) != index {
			continue // gone, or another one: the next Widen sees that
		}
		if id, err := link.AttachedTC(name, hook, program); err == nil && id == 0 {
			p.attached[name] = lost
			names = append(names, name)
		}
	}
	if l, err := link.Get(p.cfg.Gateway); p.noting != 0 && err == nil && uint32(l.Index) == p.noting {
		if id, err := link.AttachedTC(l.Name, link.Ingress, noteLocalProgram); err == nil && id == 0 {
			p.noting = lost
			if !slices.Contains(names, l.Name) {
				names = append(names, l.Name)
			}
		}
	}
	return names
}
