package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/overlay"
	"github.com/grapevine-net/grapevine/overlay/fastpath"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/tunnel"
)

// fastPath is this host's fast path and why it is on or off.
type fastPath struct {
	path  *fastpath.Path
	spare bool // the kernel's own datapath does nearly as well
	log   *slog.Logger

	mu   sync.Mutex
	want string // auto, on, off or direct
	why  error  // why it is off
}

func (v *vswitch) newFastPath(vxlanPort uint16, underlay link.Underlay, source netip.Addr) *fastPath {
	cfg := fastpath.Config{
		Tunnel: tunnel.VXLAN, TunnelMTU: tunnel.VXLAN, Prefix: outerPrefix, Device: outer, Log: v.log, Source: source,
		Underlay: fastpath.Underlay{Device: underlay.Interface, VTEP: underlay.Addr.Unmap(), Port: vxlanPort},
	}
	if v.bridge.Datapath == ovs.Kernel {
		// Open vSwitch names its device by the port, and gives it no MTU to go by.
		cfg.Tunnel, cfg.TunnelMTU = fmt.Sprintf("vxlan_sys_%d", vxlanPort), gateway.Port
		cfg.Prefix, cfg.Device = "gv", overlay.PortName
	}
	return &fastPath{path: fastpath.New(cfg), spare: v.bridge.Datapath == ovs.Kernel, log: v.log}
}

var (
	errOff   = errors.New("as it was asked for")
	errSpare = errors.New("auto leaves it to the kernel's openvswitch module, which is fast by itself")
)

// set switches the path on or off, with what a former agent left. It carries from the
// next pass of the overlay on.
func (f *fastPath) set(want string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.want, f.why = want, nil
	switch want {
	case "auto":
		if f.why = errSpare; !f.spare {
			f.why = f.path.Compiled()
		}
	case "off":
		f.why = errOff
	}
	if f.why == nil {
		f.why = f.path.Start(want == "direct")
	}
	if f.why == nil {
		return
	}
	if err := f.path.Stop(); err != nil {
		f.log.Warn("remove the programs of the fast path", "err", err)
	}
}

// status is one line for people.
func (f *fastPath) status() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.why != nil {
		return "off: " + f.why.Error()
	}
	if _, trouble := f.path.On(); trouble != nil {
		return "rests: " + trouble.Error()
	}
	if f.want != "direct" {
		return "on"
	}
	if err := f.path.Direct(); err != nil {
		return "on, not direct: " + err.Error()
	}
	return "direct"
}

// problems are what was asked for and is not.
func (f *fastPath) problems() (list []api.Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if (f.want == "on" || f.want == "direct") && f.why != nil {
		list = append(list, api.Problem{What: "the fast path is off: " + f.why.Error(), Do: "set GRAPEVINE_FASTPATH=auto; the switch carries all meanwhile, slower"})
	}
	if _, trouble := f.path.On(); trouble != nil {
		list = append(list, api.Problem{What: "the fast path rests: " + trouble.Error(), Do: "the agent goes on trying; the switch carries all meanwhile, slower"})
	}
	if err := f.path.Direct(); err != nil {
		list = append(list, api.Problem{What: "the fast path is on, but not direct: " + err.Error(), Do: "set GRAPEVINE_FASTPATH=on if that is to stay; the VXLAN device carries between hosts meanwhile"})
	}
	return list
}

// switchFastPath answers POST /v1/fastpath.
func (a *Agent) switchFastPath(ctx context.Context, r api.FastPathRequest) (api.Done, error) {
	switch r.Mode {
	case "auto", "on", "off", "direct":
	default:
		return api.Done{}, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("the fast path cannot be %q: say auto, on, off or direct", r.Mode)}
	}
	a.vswitch.fast.set(r.Mode)
	if err := a.vswitch.overlay.Pass(ctx); err != nil {
		return api.Done{}, err
	}
	return api.Done{Text: "The fast path is " + a.vswitch.fast.status() + "."}, nil
}
