package driver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/driver/ports"
)

// led is where packets go, by bindings.
func (e *engine) led() string {
	e.rig.machine.mu.Lock()
	defer e.rig.machine.mu.Unlock()
	var out []string
	for _, b := range e.rig.machine.led {
		out = append(out, fmt.Sprintf("%s to %s", b.Host, b.To.Addr()))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// A container is published at the host's IPv6 addresses by IPv4 until it has a network with IPv6,
// and then by that; Engine 28 has each family's own network of the container serve it, and hands
// all ports over to both.
func TestCrossGivesWay(t *testing.T) {
	e := newEngine(t)
	e.rig.core.cfg.OpenPorts = func() ports.Choice { return ports.Choice{First: 32768, Last: 60999, Cross: true} }
	blue, dual := e.user("blue"), e.dual("dual")
	four := e.run(blue, "web")
	check(t, e.program(blue, four, 8080))
	const crossing = "0.0.0.0:8080 to 10.128.0.2, [::]:8080 to 10.128.0.2"
	if got := e.led(); got != crossing {
		t.Errorf("IPv4 only: %s", got)
	}
	both, err := e.endpoint(dual, "web-too")
	check(t, err)
	for id, n := range map[string]string{four: blue, both: dual} {
		_, err := e.rig.Join(t.Context(), &network.JoinRequest{NetworkID: n, EndpointID: id, SandboxKey: "/var/run/docker/netns/web"})
		check(t, err)
	}
	l, _ := e.rig.core.localEndpoint(both)
	for range 2 {
		check(t, e.program(dual, both, 8080))
		if got, want := e.led(), fmt.Sprintf("0.0.0.0:8080 to 10.128.0.2, [::]:8080 to %s", l.Addr6); got != want {
			t.Errorf("with a network for IPv6: %s, want %s", got, want)
		}
	}
	for range 2 {
		check(t, e.rig.publisher.unpublish(t.Context(), both))
		if got := e.led(); got != crossing {
			t.Errorf("after that network: %s", got)
		}
	}
	if n := len(e.rig.machine.bound); n != 2 {
		t.Errorf("%d ports are held", n)
	}
	// Asked not to, and the other way round: the one of IPv6 takes both.
	opts := portmap(8080)
	opts[optNoCross] = true
	_, err = e.rig.ProgramExternalConnectivity(t.Context(), &network.ProgramExternalConnectivityRequest{NetworkID: blue, EndpointID: four, Options: opts})
	check(t, err)
	if got := e.led(); got != "0.0.0.0:8080 to 10.128.0.2" {
		t.Errorf("asked to leave IPv6 alone: %s", got)
	}
	check(t, e.rig.publisher.unpublish(t.Context(), four))
	check(t, e.program(dual, both, 8080))
	if got, want := e.led(), fmt.Sprintf("0.0.0.0:8080 to %s, [::]:8080 to %s", l.Addr, l.Addr6); got != want {
		t.Errorf("the other network alone: %s, want %s", got, want)
	}
	// Another container gets neither.
	other := e.run(blue, "other")
	if err := e.program(blue, other, 8080); err == nil || !strings.Contains(err.Error(), "port is already in use by") {
		t.Errorf("another container: %v", err)
	}
}
