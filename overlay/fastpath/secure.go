package fastpath

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// Secure is the part of a path that carries encrypted networks alone, and of what they send to other hosts only what goes in WireGuard without
// VXLAN. All else is the switch's, and at the interfaces of other networks, as at the VXLAN device, there is no program.
type Secure struct{ Path *Path }

// secured is how far it is with that.
type secured struct {
	wanted bool
	only   bool  // the programs that are loaded carry nothing else
	none   bool  // there was no encrypted network yet
	why    error // why the programs could not be loaded
}

// Start has the path carry so, from the first pass on in which there is an encrypted network: until then no program is loaded. The path is to be off.
func (s Secure) Start() error {
	p := s.Path
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on {
		return errors.New("the fast path is on")
	}
	p.secure = secured{wanted: true, none: true}
	return nil
}

// State says whether it carries so; else why it does not, or, with nil, that there was no encrypted network yet.
func (s Secure) State() (carries bool, why error) {
	p := s.Path
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.secure.only && !p.secure.none, p.secure.why
}

// begin is called before each pass; p.mu is held.
func (s Secure) begin(in pipeline.Input) {
	p := s.Path
	if !p.secure.wanted {
		return
	}
	p.secure.none = !p.cfg.Underlay.Encrypted && len(in.Encrypted) == 0
	if p.secure.none || p.secure.only || p.secure.why != nil {
		return
	}
	if p.secure.why = p.load(); p.secure.why != nil {
		p.log.Info("the fast path leaves encrypted networks to the switch", "why", p.secure.why)
		return
	}
	p.on, p.direct, p.judged, p.quiet, p.secure.only = true, false, false, false, true
}

// part is what of an input the path is to know: of all else it knows that the switch decides.
func (s Secure) part(in pipeline.Input) pipeline.Input {
	p := s.Path
	if !p.secure.only {
		return in
	}
	in.Groups = nil
	if p.cfg.Underlay.Encrypted { // all is encrypted
		return in
	}
	in.Ports, in.Routes = slices.Clone(in.Ports), slices.Clone(in.Routes)
	for i := range in.Ports {
		if port := &in.Ports[i]; !port.Encrypted {
			port.Plain, port.Guarded = false, false
		}
	}
	for i := range in.Routes {
		if r := &in.Routes[i]; r.VTEP != r.Secure {
			r.VTEP = netip.Addr{}
		}
	}
	return in
}

// attends reports whether a program is to be at an endpoint's interface.
func (s Secure) attends(port pipeline.Port) bool {
	p := s.Path
	return !p.secure.only || p.cfg.Underlay.Encrypted || port.Encrypted
}
