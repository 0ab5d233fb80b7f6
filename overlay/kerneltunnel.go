package overlay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
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
	// than Source: the kernel chooses it then. It may set what that needs.
	Inside func() bool
	// InsideAddr is that other address. If it is of another family than the hosts', what comes to it has a port of its own:
	// see [pipeline.Input.InsidePort].
	InsideAddr netip.Addr
}

// TunnelPort is the tunnel's port in the bridge.
const TunnelPort = link.Tunnel

// InsidePort is the one by which comes what is for the host's address inside what encrypts.
const InsidePort = link.TunnelInside

// device is how Open vSwitch calls the interface that it makes for all of its ports of the kind and
// a UDP port.
func (t KernelTunnel) device() string { return t.Kind.System(t.UDPPort, t.V6) }

// remade is how long Open vSwitch may take to make its interface.
const remade = 2 * time.Second

// ports are those of the bridge that there are to be.
func (t KernelTunnel) ports() []ovs.PortSpec {
	options := map[string]string{"remote_ip": "flow", "key": "flow"}
	if t.Kind.Ports() {
		options["dst_port"] = strconv.FormatUint(uint64(t.UDPPort), 10)
	}
	here := func(name string, at netip.Addr) ovs.PortSpec {
		own := maps.Clone(options)
		if at.IsValid() {
			own["local_ip"] = at.String()
		}
		return ovs.PortSpec{Name: name, Type: t.Kind.PortType(t.V6), Role: roleTunnel, Options: own}
	}
	inside := t.Inside != nil && t.Inside()
	switch {
	case !inside:
		return []ovs.PortSpec{here(TunnelPort, t.Source)}
	case t.V6 || !t.InsideAddr.IsValid():
		return []ovs.PortSpec{here(TunnelPort, netip.Addr{})}
	}
	return []ovs.PortSpec{here(TunnelPort, netip.Addr{}), here(InsidePort, t.InsideAddr)}
}

// Ensure makes the ports in the bridge, anew if the interface behind them was deleted: of that
// Open vSwitch takes no notice, and says of them that all is well.
func (t KernelTunnel) Ensure(ctx context.Context) (string, error) {
	state, err := t.Bridge.State(ctx)
	if err != nil {
		return "", err
	}
	want, whole := t.ports(), true
	var add []ovs.PortSpec
	var del, all []string
	for _, w := range want {
		p := state.Ports[w.Name]
		if p.Type != w.Type || !maps.Equal(p.Options, w.Options) || p.Error != "" {
			add = append(add, w)
		}
		all, whole = append(all, w.Name), whole && p.OFPort != 0
	}
	if _, there := state.Ports[InsidePort]; there && !slices.Contains(all, InsidePort) {
		del = append(del, InsidePort)
	}
	if len(add)+len(del) > 0 {
		_, err = t.Bridge.SetPorts(ctx, add, del)
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
	case !errors.Is(err, link.ErrNotFound) || !whole:
		return TunnelPort, nil
	}
	// One after the other: otherwise the switch keeps what it has.
	if _, err := t.Bridge.SetPorts(ctx, nil, all); err != nil {
		return TunnelPort, err
	}
	if _, err := t.Bridge.SetPorts(ctx, want, nil); err != nil {
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
