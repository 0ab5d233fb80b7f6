package overlay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"time"

	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs"
)

// KernelTunnel is the tunnel of the kernel datapath: a flow-based port of
// Open vSwitch, over IPv4 and IPv6. The flows name the VTEPs.
type KernelTunnel struct {
	Bridge  *ovs.Bridge
	Kind    encap.Kind
	UDPPort uint16
	V6      bool       // hosts are at addresses of IPv6: of some kinds there is a port for each family
	Source  netip.Addr // this host's address that packets are sent from, and the only one that they may come to; invalid: any
	// Inside, if set, says whether packets go to other hosts' VTEPs inside what encrypts as well, from and to another address
	// than Source: the kernel chooses it then.
	Inside func() bool
}

// TunnelPort is the tunnel's port in the bridge.
const TunnelPort = link.Tunnel

// device is how Open vSwitch calls the interface that it makes for all of its ports of the kind and
// a UDP port.
func (t KernelTunnel) device() string { return t.Kind.System(t.UDPPort, t.V6) }

// remade is how long Open vSwitch may take to make its interface.
const remade = 2 * time.Second

// Ensure makes the port in the bridge, anew if the interface behind it was deleted: of that
// Open vSwitch takes no notice, and says of the port that all is well.
func (t KernelTunnel) Ensure(ctx context.Context) (string, error) {
	want := ovs.PortSpec{Name: TunnelPort, Type: t.Kind.PortType(t.V6), Role: roleTunnel, Options: map[string]string{"remote_ip": "flow", "key": "flow"}}
	if t.Kind.Ports() {
		want.Options["dst_port"] = strconv.FormatUint(uint64(t.UDPPort), 10)
	}
	if t.Source.IsValid() && (t.Inside == nil || !t.Inside()) {
		want.Options["local_ip"] = t.Source.String()
	}
	state, err := t.Bridge.State(ctx)
	if err != nil {
		return "", err
	}
	p := state.Ports[TunnelPort]
	if p.Type != want.Type || !maps.Equal(p.Options, want.Options) || p.Error != "" {
		_, err = t.Bridge.SetPorts(ctx, []ovs.PortSpec{want}, nil)
		return TunnelPort, err
	}
	if t.Bridge.Datapath != ovs.Kernel {
		return TunnelPort, nil
	}
	l, err := link.Get(t.device())
	switch {
	case err == nil && l.Up:
		return TunnelPort, nil
	case err == nil:
		return TunnelPort, link.Up(t.device())
	case !errors.Is(err, link.ErrNotFound) || p.OFPort == 0:
		return TunnelPort, nil
	}
	// One after the other: otherwise the switch keeps what it has.
	if _, err := t.Bridge.SetPorts(ctx, nil, []string{TunnelPort}); err != nil {
		return TunnelPort, err
	}
	if _, err := t.Bridge.SetPorts(ctx, []ovs.PortSpec{want}, nil); err != nil {
		return TunnelPort, err
	}
	for end := time.Now().Add(remade); ; sleep(ctx, 20*time.Millisecond) {
		if _, err := link.Get(t.device()); err == nil {
			return TunnelPort, nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return TunnelPort, fmt.Errorf("the kernel's interface %s is gone, and Open vSwitch does not make it again "+
				"(another of its ports uses it?): restart ovs-vswitchd", t.device())
		}
	}
}

// Devices are the interfaces that others may delete or set down.
func (t KernelTunnel) Devices() []string { return []string{t.device()} }

// Missing says what Ensure would set right, for people, and sets nothing.
func (t KernelTunnel) Missing(context.Context) []string {
	if t.Bridge.Datapath != ovs.Kernel {
		return nil // it has none
	}
	switch l, err := link.Get(t.device()); {
	case errors.Is(err, link.ErrNotFound):
		return []string{fmt.Sprintf("the tunnel's interface %s is gone", t.device())}
	case err == nil && !l.Up:
		return []string{fmt.Sprintf("the tunnel's interface %s is down", t.device())}
	}
	return nil
}

// SetVTEPs does nothing: the flows carry the addresses.
func (KernelTunnel) SetVTEPs(context.Context, map[uint32]netip.Addr) error { return nil }

// Foreign is 0: the switch drops and counts them.
func (KernelTunnel) Foreign(context.Context) (uint64, error) { return 0, nil }
