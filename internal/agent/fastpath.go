package agent

import (
	"fmt"
	"log/slog"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/internal/ovs"
	"github.com/grapevine-net/grapevine/overlay"
	"github.com/grapevine-net/grapevine/overlay/fastpath"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/tunnel"
)

// fastPath is this host's fast path and why it is on or off.
type fastPath struct {
	path *fastpath.Path
	want string // auto, on or off
	why  error  // why it is off though wanted
	log  *slog.Logger
}

func (v *vswitch) newFastPath(vxlanPort uint16) fastPath {
	cfg := fastpath.Config{Tunnel: tunnel.VXLAN, TunnelMTU: tunnel.VXLAN, Prefix: outerPrefix, Device: outer, Log: v.log}
	if v.bridge.Datapath == ovs.Kernel {
		// Open vSwitch gives its own device a name by the port, and no MTU.
		cfg.Tunnel, cfg.TunnelMTU = fmt.Sprintf("vxlan_sys_%d", vxlanPort), gateway.Port
		cfg.Prefix, cfg.Device = "gv", overlay.PortName
	}
	return fastPath{path: fastpath.New(cfg), log: v.log}
}

// set switches the path on or off, with what a former agent left. It takes effect with
// the next pass of the overlay.
func (f *fastPath) set(want string) {
	f.want, f.why = want, nil
	switch want {
	case "auto":
		f.why = f.path.Compiled()
	case "off":
		f.why = fmt.Errorf("GRAPEVINE_FASTPATH is off")
	}
	if f.why == nil {
		f.why = f.path.Start()
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
	if f.why != nil {
		return "off: " + f.why.Error()
	}
	if _, trouble := f.path.On(); trouble != nil {
		return "rests: " + trouble.Error()
	}
	return "on"
}

// problems are what was asked for and is not.
func (f *fastPath) problems() (list []api.Problem) {
	if f.want == "on" && f.why != nil {
		list = append(list, api.Problem{What: "the fast path is off: " + f.why.Error(), Do: "set GRAPEVINE_FASTPATH=auto or off; the switch carries all, slower"})
	}
	if _, trouble := f.path.On(); trouble != nil {
		list = append(list, api.Problem{What: "the fast path rests: " + trouble.Error(), Do: "the agent goes on trying; the switch carries all meanwhile"})
	}
	return list
}
