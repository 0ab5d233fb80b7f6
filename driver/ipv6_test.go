package driver

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	dockernet "github.com/docker/docker/api/types/network"
	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/replica"
)

func (e *engine) dual(name string) string {
	e.t.Helper()
	yes := true
	id, err := e.create(dockernet.CreateRequest{Name: name, CreateOptions: dockernet.CreateOptions{EnableIPv6: &yes}})
	check(e.t, err)
	e.look()
	return id
}

// A container of a network of both families has an address, a gateway and routes of
// each, and takes all of it along.
func TestBothFamilies(t *testing.T) {
	e := newEngine(t)
	id := e.dual("blue")
	e.write(func(tx *replica.Tx) { // of another host that made the network at the same moment
		_ = tx.Put(cluster.Subnet{Prefix: netip.MustParsePrefix("fd12:3456:789a:8000::/64"), Network: "blue", Gateway: netip.MustParseAddr("fd12:3456:789a:8000::1"), Home: "00000000000000bb"})
	})
	ep := e.run(id, "web")
	e.look()
	e.want("network blue vnid 1", "subnet 10.128.0.0/22 of blue gateway 10.128.0.1", "subnet fd12:3456:789a:8000::/64 of blue gateway fd12:3456:789a:8000::1",
		"subnet fd12:3456:789a::/64 of blue gateway fd12:3456:789a::1",
		fmt.Sprintf("endpoint %.12s on blue [10.128.0.2 fd12:3456:789a::2] 02:42:0a:80:00:02 web", ep), "use blue/"+string(self))
	reply, err := e.rig.Join(context.Background(), &network.JoinRequest{NetworkID: id, EndpointID: ep})
	check(t, err)
	if reply.Gateway != "10.128.0.1" || reply.GatewayIPv6 != "fd12:3456:789a::1" ||
		len(reply.StaticRoutes) != 1 || reply.StaticRoutes[0].NextHop != "fd12:3456:789a::1" || reply.StaticRoutes[0].Destination != "fd12:3456:789a:8000::/64" {
		t.Errorf("Join answers %+v", reply)
	}
	info, err := e.rig.EndpointInfo(context.Background(), &network.InfoRequest{NetworkID: id, EndpointID: ep})
	check(t, err)
	if info.Value["address"] != "10.128.0.2" || info.Value["address6"] != "fd12:3456:789a::2" {
		t.Errorf("EndpointOperInfo answers %v", info)
	}
	// Docker forgets the container: both addresses are free again.
	e.rm("web")
	e.look()
	e.rig.now = e.rig.now.Add(time.Hour)
	e.look()
	if l := e.rig.core.alloc.Leases(); len(l) != 0 {
		t.Errorf("left over: %v", l)
	}
}

// If one of two addresses is taken, the endpoint has neither.
func TestOneOfTwoAddressesTaken(t *testing.T) {
	e := newEngine(t)
	id := e.dual("blue")
	e.run(id, "web")
	_, err := e.rig.CreateEndpoint(context.Background(), &network.CreateEndpointRequest{
		NetworkID: id, EndpointID: strings.Repeat("e", 64),
		Interface: &network.EndpointInterface{Address: "10.128.0.9/22", AddressIPv6: "fd12:3456:789a::2/64"},
	})
	if err == nil || !strings.Contains(err.Error(), "fd12:3456:789a::2: in use") {
		t.Errorf("an address in use: %v", err)
	}
	for _, l := range e.rig.core.alloc.Leases() {
		if l.Endpoint == strings.Repeat("e", 64) {
			t.Errorf("%v is left", l)
		}
	}
}

// A network of the cluster appears with the families that it has.
func TestFamiliesOfAReplica(t *testing.T) {
	e := newEngine(t)
	e.red(false)
	e.write(func(tx *replica.Tx) {
		_ = tx.Put(cluster.Subnet{Prefix: netip.MustParsePrefix("fd99::/64"), Network: "red", Gateway: netip.MustParseAddr("fd99::1"), Home: self})
	})
	e.look()
	n, ok := e.named("red")
	if !ok || len(n.IPAM.Config) != 2 || n.IPAM.Config[1].Subnet != "fd99::/64" || n.IPAM.Config[1].Gateway != "fd99::1" {
		t.Errorf("it was made as %+v", n)
	}
	e.run(n.ID, "web")
	if got := e.rig.records(); !strings.Contains(got, " fd99::2] ") {
		t.Errorf("records are\n%s", got)
	}
}

// Without IPv4 everything is as with it.
func TestIPv6Alone(t *testing.T) {
	e := newEngine(t)
	ctx := context.Background()
	prefix, err := e.rig.core.alloc.Prefix(ctx, 6, ipam.Bits6, 0)
	check(t, err)
	id := strings.Repeat("6", 64)
	data := &network.IPAMData{AddressSpace: ipam.AddressSpace, Pool: prefix.String(), Gateway: "fd12:3456:789a::1/64"}
	_, err = e.rig.CreateNetwork(ctx, &network.CreateNetworkRequest{NetworkID: id, IPv6Data: []*network.IPAMData{data}})
	check(t, err)
	ep := e.run(id, "web")
	if got := e.rig.records(); !strings.Contains(got, "[fd12:3456:789a::2] 02:42:00:00:00:02") {
		t.Errorf("records are\n%s", got)
	}
	reply, err := e.rig.Join(ctx, &network.JoinRequest{NetworkID: id, EndpointID: ep})
	check(t, err)
	if reply.Gateway != "" || reply.GatewayIPv6 != "fd12:3456:789a::1" {
		t.Errorf("Join answers %+v", reply)
	}
}

func TestIPv6Refused(t *testing.T) {
	e := newEngine(t)
	four := &network.IPAMData{AddressSpace: ipam.AddressSpace, Pool: "10.128.0.0/22", Gateway: "10.128.0.1/22"}
	six := &network.IPAMData{AddressSpace: ipam.AddressSpace, Pool: "fd12::/64", Gateway: "fd12::1/64"}
	for want, r := range map[string]*network.CreateNetworkRequest{
		"has no subnet":                    {},
		"null":                             {IPv4Data: []*network.IPAMData{nil}},
		"not a prefix like fd12":           {IPv6Data: []*network.IPAMData{four}},
		"not a prefix like 10.1":           {IPv4Data: []*network.IPAMData{six}},
		"IPv6 needs an MTU of 1280":        {IPv6Data: []*network.IPAMData{six}, Options: map[string]any{optGeneric: map[string]any{"mtu": "1279"}}},
		"--ipam-opt prefixlen6=80 instead": {IPv6Data: []*network.IPAMData{six}, Options: map[string]any{optGeneric: map[string]any{"prefixlen6": "80"}}},
		"come from another IPAM driver":    {IPv6Data: []*network.IPAMData{{AddressSpace: "LocalDefault", Pool: "fd12::/64"}}},
	} {
		r.NetworkID = strings.Repeat("7", 64)
		if _, err := e.rig.CreateNetwork(context.Background(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	e.want("")
}
