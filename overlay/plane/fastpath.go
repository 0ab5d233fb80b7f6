package plane

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/host/bypass"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/overlay/fastpath"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/tunnel"
)

// fastPath is this host's fast path and why it is on or off.
type fastPath struct {
	path  *fastpath.Path
	spare bool // the kernel's own datapath does nearly as well
	log   *slog.Logger

	lookout atomic.Pointer[bypass.Lookout] // of what the host does with packets; nil: it does not matter

	mu   sync.Mutex
	want string                      // auto, on, off, look or direct
	why  error                       // why it is off
	stop func()                      // ends lookout
	pass func(context.Context) error // of the overlay
	more func() string               // what else status says
}

func (p *Plane) newFastPath(source netip.Addr) *fastPath {
	vxlanPort, underlay, wrapped := p.cfg.Settings.VXLANPort, p.cfg.wire(), p.cfg.Settings.Encapsulation()
	cfg := fastpath.Config{
		Tunnel: tunnel.Wire(wrapped), TunnelMTU: tunnel.Wire(wrapped), Prefix: link.OuterPrefix, Device: outer, Log: p.log, Source: source,
		Underlay: fastpath.Underlay{Encap: wrapped, Device: underlay.Interface, VTEP: underlay.Addr.Unmap(), Port: vxlanPort, Encrypted: p.cfg.Secure.All(), IPsec: p.cfg.Settings.NeedsIPsec()},
		Gateway:  gateway.Port, Leg: gateway.Port,

		InnerPrefix: link.InnerPrefix, Inner: inner, Port: tunnel.Port,
	}
	if p.Bridge.Datapath == ovs.Kernel {
		// Open vSwitch names its device by the port, and gives it no MTU to go by.
		cfg.Tunnel, cfg.TunnelMTU = wrapped.System(vxlanPort, underlay.Addr.Unmap().Is6()), gateway.Port
		cfg.Prefix, cfg.Device = link.PortPrefix, link.PortName
		cfg.Gateway = "" // the module has it: no tap that a daemon reads
		cfg.Inner = nil  // nor has the switch's port another end than the container's
	}
	f := &fastPath{spare: p.Bridge.Datapath == ovs.Kernel, log: p.log, pass: func(ctx context.Context) error { return p.overlay.Pass(ctx) }}
	cfg.Judge, cfg.Ports = f.judge, f.ports
	f.path = fastpath.New(cfg)
	return f
}

var errOff = errors.New("as it was asked for")

// spared is what auto says beside the kernel's own datapath of what it does not carry.
func spared(what string) string {
	return "auto leaves " + what + " to the kernel's openvswitch module, which is fast by itself"
}

// alone says that it is to carry encrypted networks alone: what they send goes without VXLAN, which the kernel's datapath cannot have it do.
func (f *fastPath) alone() bool { return f.want == "auto" && f.spare }

// set switches the path on or off, with what a former agent left. It carries from the
// next pass of the overlay on.
func (f *fastPath) set(want string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.want, f.why = want, nil
	f.unwatch()
	switch want {
	case "auto":
		if !f.spare {
			f.why = f.path.Compiled()
		}
	case "off":
		f.why = errOff
	}
	switch {
	case f.why != nil:
	case f.alone(): // another mode, maybe of a former agent, may have left programs that carry more
		if f.why = f.path.Stop(); f.why == nil {
			f.why = fastpath.Secure{Path: f.path}.Start()
		}
	case want == "auto", want == "look":
		// Where it would be for nothing, nobody looks.
		if f.why = f.path.StartJudged(); f.why == nil && f.path.NeverDirect() == nil {
			f.look()
		}
	default:
		f.why = f.path.Start(want == "direct")
	}
	if f.why == nil {
		return
	}
	if err := f.path.Stop(); err != nil {
		f.log.Warn("remove the programs of the fast path", "err", err)
	}
}

// sends reports whether the programs send VXLAN.
func (f *fastPath) sends() bool {
	on, _ := f.path.On()
	f.mu.Lock()
	defer f.mu.Unlock()
	return on && !f.alone()
}

// status is one line for people.
func (f *fastPath) status() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	line := f.line()
	if full := f.path.Full(); full != nil {
		line += "; " + full.Error()
	}
	return line + f.more()
}

func (f *fastPath) line() string {
	if f.why != nil {
		return "off: " + f.why.Error()
	}
	if _, trouble := f.path.On(); trouble != nil {
		return "rests: " + trouble.Error()
	}
	if f.want == "on" {
		return "on"
	}
	if f.alone() {
		switch carries, err := (fastpath.Secure{Path: f.path}).State(); {
		case carries:
			return "on for encrypted networks; " + spared("the others")
		case err != nil:
			return "off: " + spared("all") + ", and encrypted networks as well: " + err.Error()
		}
		return "off: " + spared("all") + ", but for encrypted networks, of which there is none"
	}
	if err := f.path.Direct(); err != nil {
		return "on, not direct: " + err.Error()
	}
	if err := fastpath.Cut(f.path); err != nil {
		return "direct, but cut at a bridge: " + err.Error()
	}
	return "direct"
}

// problems are what was asked for and is not.
func (f *fastPath) problems() (list []api.Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if (f.want == "on" || f.want == "direct") && f.why != nil {
		list = append(list, api.Problem{Code: api.FastPathOff, What: "the fast path is off: " + f.why.Error(), Do: "set GRAPEVINE_FASTPATH=auto; the switch carries all meanwhile, slower"})
	}
	if _, trouble := f.path.On(); trouble != nil {
		list = append(list, api.Problem{Code: api.FastPathOff, What: "the fast path rests: " + trouble.Error(), Do: "the agent goes on trying; the switch carries all meanwhile, slower"})
	}
	if err := f.path.Direct(); err != nil && f.want == "direct" {
		list = append(list, api.Problem{Code: api.FastPathOff, What: "the fast path is on, but not direct: " + err.Error(), Do: "set GRAPEVINE_FASTPATH=on if that is to stay; the device of the encapsulation carries between hosts meanwhile"})
	}
	return list
}

// PurgeFastPath takes the programs of an agent that is gone from the underlay's devices and the gateway; those of
// others go with them.
func PurgeFastPath() error {
	path := fastpath.New(fastpath.Config{Tunnel: link.VXLAN, TunnelMTU: link.VXLAN, Gateway: gateway.Port, Prefix: link.OuterPrefix, Device: outer, InnerPrefix: link.InnerPrefix, Inner: inner, Port: tunnel.Port, Log: slog.New(slog.DiscardHandler)})
	if err := (fastpath.Headerless{Path: path}).Remove(); !errors.Is(err, link.ErrNotFound) {
		return err
	}
	return nil
}

// FastPath is how the fast path is, as api.Status has it.
func (p *Plane) FastPath() string { return p.fast.status() }

// SwitchFastPath answers POST /v1/fastpath.
func (p *Plane) SwitchFastPath(ctx context.Context, r api.FastPathRequest) (api.Done, error) {
	switch r.Mode {
	case "auto", "on", "off", "look", "direct":
	default:
		return api.Done{}, api.Errorf(http.StatusBadRequest, "the fast path cannot be %q: say auto, on, off, look or direct", r.Mode)
	}
	if r.Mode == "off" {
		p.fast.path.Unsettle()
		_ = p.overlay.Pass(ctx) // what is wrong the next one says
	}
	p.fast.set(r.Mode)
	if err := p.overlay.Pass(ctx); err != nil {
		return api.Done{}, err
	}
	p.fast.looked(ctx)
	p.bare.kick()
	return api.Done{Text: "The fast path is " + p.fast.status() + "."}, nil
}
