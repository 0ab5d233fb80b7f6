package driver

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/cluster"
)

// attached makes an endpoint with the driver-opts of its user.
func (e *engine) attached(networkID, name, addr, addr6 string, options map[string]any) (string, error) {
	id := strings.Repeat(name, 64)
	_, err := e.rig.CreateEndpoint(context.Background(), &network.CreateEndpointRequest{
		NetworkID: networkID, EndpointID: id, Options: options, Interface: &network.EndpointInterface{Address: addr, AddressIPv6: addr6},
	})
	return id, err
}

// TestAddressesBesides: an endpoint has the addresses that its user declared, nobody else gets one of
// them, no name has them, and they are free again with its end.
func TestAddressesBesides(t *testing.T) {
	e := newEngine(t)
	id := e.dual("blue")
	ep, err := e.attached(id, "a", "10.128.0.9/22", "fd12:3456:789a::9/64", map[string]any{
		optAddresses: "10.128.1.1, fd12:3456:789a::1:1 10.128.1.2", "com.docker.network.endpoint.exposedports": []any{},
	})
	check(t, err)
	rec, live := cluster.Get[cluster.Endpoint](e.rig.replica.Snapshot(), ep)
	if !live || len(rec.Addrs) != 5 || len(rec.Named()) != 2 || rec.Addrs[3] != netip.MustParseAddr("fd12:3456:789a::1:1") {
		t.Fatalf("the record is %+v", rec)
	}
	if r, err := e.rig.Join(context.Background(), &network.JoinRequest{NetworkID: id, EndpointID: ep}); err != nil || r.Gateway != "10.128.0.1" || len(r.StaticRoutes) != 0 {
		t.Errorf("Join answers %+v, %v", r, err)
	}
	for _, of := range []struct {
		option any
		addr   string
		want   string
	}{
		{"10.128.1.3 10.128.1.2", "10.128.0.10/22", "10.128.1.2: in use"},
		{nil, "10.128.1.2/22", "10.128.1.2: in use"},
		{"10.128.0.9", "10.128.0.10/22", "10.128.0.9: in use"},
		{"10.128.0.10", "10.128.0.10/22", "is the container's already"},
		{"10.128.1.3,10.128.1.3", "10.128.0.10/22", "is the container's already"},
		{"10.128.0.1", "10.128.0.10/22", "is the gateway"},
		{"10.128.3.255", "10.128.0.10/22", "broadcast"},
		{"10.129.0.1", "10.128.0.10/22", "in none of the network's subnets"},
		{"192.0.2.1", "10.128.0.10/22", "in none of the network's subnets"},
		{"fe80::1", "10.128.0.10/22", "in none of the network's subnets"},
		{"banana", "10.128.0.10/22", "is no address"},
		{"", "10.128.0.10/22", "give 1 to 8"},
		{strings.Repeat("10.128.1.3 ", 9), "10.128.0.10/22", "give 1 to 8"},
		{7, "10.128.0.10/22", "not a string"},
	} {
		options := map[string]any{optAddresses: of.option}
		if of.option == nil {
			options = nil
		}
		if _, err := e.attached(id, "b", of.addr, "", options); err == nil || !strings.Contains(err.Error(), of.want) {
			t.Errorf("addresses=%v: %v, want %q", of.option, err, of.want)
		}
	}
	if _, err := e.attached(id, "b", "10.128.0.10/22", "", map[string]any{"adresses": "10.128.1.3"}); err == nil || !strings.Contains(err.Error(), "known are addresses, egress, ingress, delay, jitter, loss") {
		t.Errorf("an unknown option: %v", err)
	}
	check(t, e.rig.core.alloc.Release(netip.MustParseAddr("10.128.0.10"))) // as Docker does after a refusal
	held := func() (out []string) {
		for _, l := range e.rig.core.alloc.Leases() {
			out = append(out, l.Addr.String()+" "+l.Endpoint[:min(1, len(l.Endpoint))])
		}
		return out
	}
	want := "10.128.0.9 a,10.128.1.1 a,10.128.1.2 a,fd12:3456:789a::9 a,fd12:3456:789a::1:1 a"
	if got := strings.Join(held(), ","); got != want {
		t.Errorf("leased are %s, want %s", got, want)
	}
	_, err = e.rig.DeleteEndpoint(context.Background(), &network.DeleteEndpointRequest{NetworkID: id, EndpointID: ep})
	check(t, err)
	want = "10.128.0.9 ,fd12:3456:789a::9 " // which Docker gives back itself
	if got := strings.Join(held(), ","); got != want {
		t.Errorf("leased are %s, want %s", got, want)
	}
	next, err := e.attached(id, "c", "10.128.0.11/22", "", map[string]any{optAddresses: "10.128.1.2"})
	check(t, err)
	// One that Docker forgot gives all back.
	check(t, e.rig.endpoints.collectEndpoint(context.Background(), next))
	e.rig.now = e.rig.now.Add(time.Hour)
	e.look()
	if got := held(); len(got) != 0 {
		t.Errorf("leased are still %v", got)
	}
}
