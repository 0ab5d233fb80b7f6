package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver/ports"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/host/portreserve"
	"github.com/grapevine-net/grapevine/host/proxy"
	"github.com/grapevine-net/grapevine/overlay"
)

// HostPorts are this host's ports, for the driver: sockets hold them, rules lead them to
// containers. Rules outlive the agent, sockets do not.
type HostPorts struct {
	sockets *portreserve.Sockets
	nat     *nat.NAT
	proxy   *proxy.Server
	exposed func(proto string, port uint16) string // Config.Exposed
	log     *slog.Logger
}

// Ports are this host's, for the driver.
func (p *Plane) Ports() HostPorts { return HostPorts{&p.held, p.nat, p.proxy, p.cfg.Exposed, p.log} }

// Hold implements driver.Ports.
func (h HostPorts) Hold(b ports.Binding) error {
	err := h.sockets.HoldRun(b.Proto.String(), b.Host, b.More)
	if taken, ok := errors.AsType[*portreserve.TakenError](err); ok {
		at := b.Nth(taken.Behind(b.Host.Port()))
		if h.exposed != nil {
			if who := h.exposed(b.Proto.String(), at.Host.Port()); who != "" {
				return &ports.TakenError{Binding: at, By: func() string { return who + ", which is exposed on all hosts" }}
			}
		}
		return &ports.TakenError{Binding: at, By: taken.By}
	}
	return err
}

// Release implements driver.Ports.
func (h HostPorts) Release(run ports.Binding) {
	for b := range run.Each() {
		h.sockets.Release(b.Proto.String(), b.Host)
	}
}

// Publish implements driver.Ports.
func (h HostPorts) Publish(ctx context.Context, all []ports.Binding) error {
	var rules []nat.Published
	var answered []proxy.Forward
	for _, b := range all {
		if !b.Crosses() {
			rules = append(rules, nat.Published{Proto: b.Proto.String(), Host: b.Host, To: b.To, More: b.More})
		}
		if b.Host.Addr().Is6() && b.Proto != ports.SCTP {
			answered = append(answered, proxy.Forward{Network: b.Proto.String(), At: b.Host, To: b.To, More: b.More})
		}
	}
	err := h.nat.Publish(ctx, rules)
	if errors.Is(err, nat.ErrStale) {
		h.log.Warn("published ports", "err", err)
		err = nil
	}
	if err != nil {
		return err
	}
	h.proxy.Set(answered)
	return nil
}

// OpenPorts are the ports from which Linux takes those of outgoing connections, as
// Docker does for -p without a port of the host (ip(7), ip_local_port_range).
func OpenPorts() ports.Choice {
	c := ports.Choice{First: 32768, Last: 60999, Start: uint16(rand.Uint32()), Cross: portreserve.IPv6()}
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return c
	}
	var first, last uint16
	if n, _ := fmt.Sscan(string(text), &first, &last); n == 2 && first > 0 && first <= last {
		c.First, c.Last = first, last
	}
	return c
}

// strangers says of clients of this host's ports whether they are a container of an internal network,
// of grapevine's by its address or of Docker's by its bridge: these have no way to them. Subnets are
// looked up once for each state of the cluster.
func strangers(source overlay.Source, self cluster.NodeID, closed func(index int) bool) func(from netip.Addr, index int) bool {
	var mu sync.Mutex
	var rev uint64
	var subnets []netip.Prefix
	return func(from netip.Addr, index int) bool {
		if closed(index) {
			return true
		}
		snap := source.Snapshot()
		mu.Lock()
		defer mu.Unlock()
		if snap.Rev() != rev {
			rev, subnets = snap.Rev(), snap.Closed(self)
		}
		return slices.ContainsFunc(subnets, func(p netip.Prefix) bool { return p.Contains(from) })
	}
}
