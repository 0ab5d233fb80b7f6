package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver/ports"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/host/portreserve"
	"github.com/grapevine-net/grapevine/host/proxy"
)

// hostPorts are this host's ports, for the driver: sockets hold them, rules lead them to
// containers. Rules outlive the agent, sockets do not.
type hostPorts struct {
	sockets *portreserve.Sockets
	nat     *nat.NAT
	proxy   *proxy.Server
	log     *slog.Logger
}

// Hold implements driver.Ports.
func (h hostPorts) Hold(b ports.Binding) error {
	err := h.sockets.HoldRun(b.Proto.String(), b.Host, b.More)
	if taken, ok := errors.AsType[*portreserve.TakenError](err); ok {
		return &ports.TakenError{Binding: b.Nth(taken.Behind(b.Host.Port())), By: taken.By}
	}
	return err
}

// Release implements driver.Ports.
func (h hostPorts) Release(run ports.Binding) {
	for b := range run.Each() {
		h.sockets.Release(b.Proto.String(), b.Host)
	}
}

// Publish implements driver.Ports.
func (h hostPorts) Publish(ctx context.Context, all []ports.Binding) error {
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

// openPorts are the ports from which Linux takes those of outgoing connections, as
// Docker does for -p without a port of the host (ip(7), ip_local_port_range).
func openPorts() ports.Choice {
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

// internalClients says of addresses whether they are a container's of an internal network, which
// has no way to this host's ports. Subnets are looked up once for each state of the cluster.
func (a *Agent) internalClients() func(netip.Addr) bool {
	var mu sync.Mutex
	var rev uint64
	var subnets []netip.Prefix
	return func(from netip.Addr) bool {
		snap := a.replica.Snapshot()
		mu.Lock()
		defer mu.Unlock()
		if snap.Rev() != rev {
			rev, subnets = snap.Rev(), snap.InternalSubnets()
		}
		return slices.ContainsFunc(subnets, func(p netip.Prefix) bool { return p.Contains(from) })
	}
}

// endpoints answers GET /v1/endpoints. Of published ports a host knows its own.
func (a *Agent) endpoints(context.Context) ([]api.Endpoint, error) {
	snap := a.replica.Snapshot()
	list := view.Endpoints(snap)
	published := a.driver.Published()
	for i, e := range list {
		where, _ := cluster.Get[cluster.Endpoint](snap, e.ID)
		list[i].Here = where.Host == a.self()
		slices.SortFunc(published[e.ID], func(a, b ports.Binding) int {
			return cmp.Or(cmp.Compare(a.To.Port(), b.To.Port()), a.Compare(b))
		})
		for _, b := range published[e.ID] {
			list[i].Ports = append(list[i].Ports, api.Port{Proto: b.Proto.String(), Host: b.Host, Container: b.To.Port(), More: b.More})
		}
	}
	return list, nil
}

// portProblems are for status.
func (a *Agent) portProblems() (list []api.Problem) {
	if a.driver == nil {
		return nil
	}
	for _, p := range a.driver.PortProblems() {
		list = append(list, api.Problem{What: "a published port is another program's of this host as well: " + p, Do: "until then the container gets what comes for the port"})
	}
	return list
}
