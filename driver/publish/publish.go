// Package publish is this host's published ports, for the driver: sockets hold them, rules lead them to containers.
package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"

	"github.com/grapevine-net/grapevine/driver/ports"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/host/portreserve"
	"github.com/grapevine-net/grapevine/host/proxy"
)

// Ports are this host's. Rules outlive the agent, sockets do not.
type Ports struct {
	Sockets *portreserve.Sockets
	NAT     *nat.NAT
	Proxy   *proxy.Server
	// Exposed names what this host holds a port for, for all hosts of the cluster, "" if it does not.
	Exposed func(proto string, port uint16) string
	Log     *slog.Logger
}

// Hold implements driver.Ports.
func (p Ports) Hold(b ports.Binding) error {
	err := p.Sockets.HoldRun(b.Proto.String(), b.Host, b.More)
	if taken, ok := errors.AsType[*portreserve.TakenError](err); ok {
		at := b.Nth(taken.Behind(b.Host.Port()))
		if p.Exposed != nil {
			if who := p.Exposed(b.Proto.String(), at.Host.Port()); who != "" {
				return &ports.TakenError{Binding: at, By: func() string { return who + ", which is exposed on all hosts" }}
			}
		}
		return &ports.TakenError{Binding: at, By: taken.By}
	}
	return err
}

// Release implements driver.Ports.
func (p Ports) Release(run ports.Binding) {
	for b := range run.Each() {
		p.Sockets.Release(b.Proto.String(), b.Host)
	}
}

// Publish implements driver.Ports.
func (p Ports) Publish(ctx context.Context, all []ports.Binding) error {
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
	err := p.NAT.Publish(ctx, rules)
	if errors.Is(err, nat.ErrStale) {
		p.Log.Warn("published ports", "err", err)
		err = nil
	}
	if err != nil {
		return err
	}
	p.Proxy.Set(answered)
	return nil
}

// Open are the ports from which Linux takes those of outgoing connections, as
// Docker does for -p without a port of the host (ip(7), ip_local_port_range).
func Open() ports.Choice {
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
