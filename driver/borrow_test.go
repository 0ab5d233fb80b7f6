package driver

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	dockernet "github.com/docker/docker/api/types/network"
	dockeripam "github.com/docker/go-plugins-helpers/ipam"

	"github.com/grapevine-net/grapevine/ipam"
)

// A network of another driver that takes its addresses from us gets none for its containers; what such
// a network has from before is kept as long as Docker has the network, and it is named.
func TestBorrower(t *testing.T) {
	ctx := context.Background()
	e := newEngine(t)
	pool, err := e.rig.ipam.RequestPool(ctx, &dockeripam.RequestPoolRequest{AddressSpace: ipam.AddressSpace})
	check(t, err)
	gateway := map[string]string{"RequestAddressType": "com.docker.network.gateway"}
	_, err = e.rig.ipam.RequestAddress(ctx, &dockeripam.RequestAddressRequest{PoolID: pool.PoolID, Options: gateway})
	check(t, err)
	prefix := netip.MustParsePrefix(pool.Pool)
	_, err = e.rig.core.alloc.Address(ctx, prefix, netip.Prefix{}, netip.Addr{}) // an older agent gave it
	check(t, err)
	ask := func(addr string) error {
		_, err := e.rig.ipam.RequestAddress(ctx, &dockeripam.RequestAddressRequest{PoolID: pool.PoolID, Address: addr})
		return err
	}
	if err := ask(""); !errors.Is(err, errNotOurs) || !strings.Contains(err.Error(), "is of no network that grapevine has") {
		t.Errorf("before Docker lists the network: %v", err)
	}
	check(t, ask(prefix.Addr().Next().Next().Next().String())) // --aux-address, for all we know
	e.networks["1"] = dockernet.Inspect{ID: "1", Name: "web", Driver: "macvlan", IPAM: dockernet.IPAM{
		Driver: "grapevine:latest", Config: []dockernet.IPAMConfig{{Subnet: pool.Pool}},
	}}
	e.networks["2"] = dockernet.Inspect{ID: "2", Name: "form", Driver: "null", IPAM: dockernet.IPAM{Driver: "grapevine:latest"}}
	e.container("1", "old", "e1")
	for range 3 {
		e.look()
		e.rig.now = e.rig.now.Add(time.Minute)
	}
	for _, addr := range []string{"", prefix.Addr().Next().Next().Next().Next().String()} {
		if err := ask(addr); !errors.Is(err, errNotOurs) || !strings.Contains(err.Error(), "network web takes its addresses from grapevine, and its driver is macvlan") {
			t.Errorf("address %q: %v", addr, err)
		}
	}
	list := e.rig.Borrowers()
	if len(list) != 1 || list[0].Network != "web" || !slices.Equal(list[0].Containers, []string{"old"}) {
		t.Errorf("named are %+v", list)
	}
	if n := len(e.rig.core.alloc.Leases()); n != 2 {
		t.Errorf("%d addresses are kept, not 2", n)
	}
	if _, there := e.rig.core.alloc.Subnet(prefix); !there {
		t.Error("the pool is freed")
	}
	delete(e.networks, "1")
	e.rm("old")
	for range 2 {
		e.look()
		e.rig.now = e.rig.now.Add(time.Minute)
	}
	if n := len(e.rig.core.alloc.Leases()); n != 0 || len(e.rig.Borrowers()) != 0 {
		t.Errorf("%d addresses are held after its end", n)
	}
}
