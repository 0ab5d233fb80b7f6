package overlay

import (
	"context"
	"maps"
	"net/netip"
	"strconv"

	"github.com/grapevine-net/grapevine/internal/ovs"
)

// KernelTunnel is the tunnel of the kernel datapath: a flow-based VXLAN port of
// Open vSwitch (RFC 7348), over IPv4 and IPv6. The flows name the VTEPs.
type KernelTunnel struct {
	Bridge  *ovs.Bridge
	UDPPort uint16
}

// TunnelPort is the tunnel's port in the bridge.
const TunnelPort = "gvtun"

// Ensure makes the port in the bridge.
func (t KernelTunnel) Ensure(ctx context.Context) (string, error) {
	want := ovs.PortSpec{Name: TunnelPort, Type: "vxlan", Role: roleTunnel, Options: map[string]string{
		"remote_ip": "flow", "key": "flow", "dst_port": strconv.FormatUint(uint64(t.UDPPort), 10),
	}}
	state, err := t.Bridge.State(ctx)
	if err != nil {
		return "", err
	}
	if p := state.Ports[TunnelPort]; p.Type == want.Type && maps.Equal(p.Options, want.Options) && p.Error == "" {
		return TunnelPort, nil
	}
	_, err = t.Bridge.SetPorts(ctx, []ovs.PortSpec{want}, nil)
	return TunnelPort, err
}

// SetVTEPs does nothing: the flows carry the addresses.
func (KernelTunnel) SetVTEPs(context.Context, map[uint32]netip.Addr) error { return nil }

// Foreign is 0: the switch drops and counts them.
func (KernelTunnel) Foreign(context.Context) (uint64, error) { return 0, nil }
