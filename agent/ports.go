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

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver/ports"
	"github.com/grapevine-net/grapevine/internal/hold"
	"github.com/grapevine-net/grapevine/internal/nat"
)

// hostPorts are this host's ports, for the driver: sockets hold them, rules lead them to
// containers. Rules outlive the agent, sockets do not.
type hostPorts struct {
	sockets *hold.Sockets
	nat     *nat.NAT
	log     *slog.Logger
}

// Hold implements driver.Ports.
func (h hostPorts) Hold(b ports.Binding) error {
	err := h.sockets.Hold(b.Proto.String(), b.Host)
	if taken, ok := errors.AsType[*hold.TakenError](err); ok {
		return &ports.TakenError{Binding: b, By: taken.By}
	}
	return err
}

// Release implements driver.Ports.
func (h hostPorts) Release(b ports.Binding) { h.sockets.Release(b.Proto.String(), b.Host) }

// Publish implements driver.Ports.
func (h hostPorts) Publish(ctx context.Context, all []ports.Binding) error {
	var rules []nat.Published
	for _, b := range all {
		rules = append(rules, nat.Published{Proto: b.Proto.String(), Host: b.Host, To: b.To})
	}
	err := h.nat.Publish(ctx, rules)
	if errors.Is(err, nat.ErrStale) {
		h.log.Warn("published ports", "err", err)
		return nil
	}
	return err
}

// openPorts are the ports from which Linux takes those of outgoing connections, as
// Docker does for -p without a port of the host (ip(7), ip_local_port_range).
func openPorts() ports.Choice {
	c := ports.Choice{First: 32768, Last: 60999, Start: uint16(rand.Uint32())}
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

// internalSubnets are those whose containers have no way out of their networks.
func internalSubnets(s *cluster.Snapshot) (out []netip.Prefix) {
	for n := range cluster.All[cluster.Subnet](s) {
		if of, ok := cluster.Get[cluster.Network](s, n.Network); ok && of.Internal {
			out = append(out, n.Prefix)
		}
	}
	return out
}

// endpoints answers GET /v1/endpoints. Of published ports a host knows its own.
func (a *Agent) endpoints(context.Context) ([]api.Endpoint, error) {
	list := view.Endpoints(a.replica.Snapshot())
	published := a.driver.Published()
	for i, e := range list {
		slices.SortFunc(published[e.ID], func(a, b ports.Binding) int {
			return cmp.Or(cmp.Compare(a.To.Port(), b.To.Port()), a.Compare(b))
		})
		for _, b := range published[e.ID] {
			list[i].Ports = append(list[i].Ports, api.Port{Proto: b.Proto.String(), Host: b.Host, Container: b.To.Port()})
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
		list = append(list, api.Problem{What: "a published port is used twice: " + p, Do: "stop one of them; until then the container gets what comes for the port"})
	}
	return list
}
