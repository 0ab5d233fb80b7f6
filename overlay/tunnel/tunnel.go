// Package tunnel carries packets between Open vSwitch's userspace datapath and the
// underlay: a collect-metadata device of VXLAN (RFC 7348), Geneve (RFC 8926) or GRE (RFC 2890) and two small tc programs
// (bpf/tunnel.c) that turn its metadata into bits of the inner MAC addresses and
// back. Open vSwitch itself only sees an Ethernet port, `gvtun`.
//
// The state is in the kernel: programs and maps live as long as the devices they
// are attached to, an agent that starts adopts the maps of the one before it, and
// replacing a program is atomic. So packets flow while no agent runs.
package tunnel

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// Names of the tunnel's interfaces.
const (
	Port = link.Tunnel     // the port of the bridge
	peer = link.TunnelPeer // its other end, where packets from the underlay go in
)

// wires are the collect-metadata devices, by the names of their kinds: there is one at a time.
var wires = map[string]string{encap.VXLAN.Name: link.VXLAN, encap.Geneve.Name: link.Geneve, encap.GRE.Name: link.GRE}

// Wire is the device that wraps packets in a way.
func Wire(k encap.Kind) string { return wires[k.Name] }

// Config says how packets travel.
type Config struct {
	Kind    encap.Kind // zero: VXLAN
	UDPPort uint16     // destination port of packets between hosts, on all of them; 0: that of Kind
	V6      bool       // hosts are at addresses of IPv6: a device of GRE has one family
	MTU     int        // largest inner IP packet, bytes; 0: 1500
	// TSO says that the switch takes packets beyond the MTU, to be segmented later
	// (other_config:userspace-tso-enable).
	TSO bool
	// Source is this host's address that packets are sent from, the one by which the others
	// know it; invalid: the kernel chooses by the route, as it has to where it does not know
	// link.TunnelSource.
	Source netip.Addr
}

// Tunnel is one host's tunnel, in the network namespace of the threads that call
// it. Its methods may be called concurrently; they do not block beyond the kernel's
// answers.
type Tunnel struct {
	cfg Config

	mu   sync.Mutex
	objs *bpfObjects // nil: not loaded yet
}

// New returns a Tunnel; nothing is done before Ensure or SetVTEPs.
func New(cfg Config) *Tunnel {
	if cfg.Kind.Name == "" {
		cfg.Kind = encap.VXLAN
	}
	if cfg.UDPPort == 0 {
		cfg.UDPPort = cfg.Kind.Port
	}
	if cfg.MTU == 0 {
		cfg.MTU = 1500
	}
	return &Tunnel{cfg: cfg}
}

// wire is the device that wraps packets.
func (t *Tunnel) wire() string { return Wire(t.cfg.Kind) }

// Mode says how flows address the tunnel.
func (t *Tunnel) Mode() pipeline.TunnelMode { return pipeline.HeaderBits }

// Ensure makes the devices and attaches the programs where they are missing or not
// as they should be, and returns the name of the port for the bridge. Packets pass
// for the VTEPs of SetVTEPs, or those a former agent set.
func (t *Tunnel) Ensure(context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.load(); err != nil {
		return "", err
	}
	dev, err := t.ensureDevices()
	if err != nil {
		return "", err
	}
	if err := t.objs.GvDevices.Put(uint32(0), dev); err != nil {
		return "", fmt.Errorf("tell the tc programs their devices: %w", err)
	}
	if err := t.attach(); err != nil {
		return "", err
	}
	return Port, t.up()
}

// SetVTEPs declares all remote VTEPs by index. What is new is added before what is
// not wanted any more is deleted.
func (t *Tunnel) SetVTEPs(_ context.Context, vteps map[uint32]netip.Addr) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.load(); err != nil {
		return err
	}
	return setVTEPs(t.objs.GvVtepAddr, t.objs.GvVtepIndex, vteps)
}

// VTEPs returns the remote VTEPs in force, also those that a former agent set: to
// give a VTEP the index it has.
func (t *Tunnel) VTEPs(context.Context) (map[uint32]netip.Addr, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.load(); err != nil {
		return nil, err
	}
	return readVTEPs(t.objs.GvVtepAddr)
}

// Counters are packets dropped by the programs since the tunnel was first made.
type Counters struct {
	TxNotOurs      uint64 // from the switch without the MAC prefixes
	TxUnknownIndex uint64 // from the switch for an index that no VTEP has
	RxUnknownVTEP  uint64 // from the underlay, the sender is no VTEP
	NoMemory       uint64 // the kernel could not change the packet
}

// Counters reads the counters.
func (t *Tunnel) Counters(context.Context) (Counters, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.load(); err != nil {
		return Counters{}, err
	}
	var c Counters
	for i, sum := range []*uint64{&c.TxNotOurs, &c.TxUnknownIndex, &c.RxUnknownVTEP, &c.NoMemory} {
		var perCPU []uint64
		if err := t.objs.GvCounters.Lookup(uint32(i), &perCPU); err != nil {
			return Counters{}, fmt.Errorf("read counter %d: %w", i, err)
		}
		for _, n := range perCPU {
			*sum += n
		}
	}
	return c, nil
}

// Foreign implements overlay.Tunnel.
func (t *Tunnel) Foreign(ctx context.Context) (uint64, error) {
	c, err := t.Counters(ctx)
	return c.RxUnknownVTEP, err
}

// Remove deletes the devices and with them programs and maps. Nothing there is no
// error. The Tunnel can be used again.
func (t *Tunnel) Remove(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.close()
	return remove()
}

// Close lets go of the programs and maps; attached as they are, they go on.
func (t *Tunnel) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.close()
	return nil
}

func (t *Tunnel) close() {
	if t.objs != nil {
		_ = t.objs.Close()
		t.objs = nil
	}
}
