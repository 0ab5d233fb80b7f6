package driver

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dockernet "github.com/docker/docker/api/types/network"
	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// TestFormerNetworksGoOn: the agent is a new host's, with Docker as it was. Networks that the
// cluster has, or that containers are on, go on; one that the cluster has removed meanwhile
// goes. Containers that run do so with addresses that this host has not given them.
func TestFormerNetworksGoOn(t *testing.T) {
	e := newEngine(t)
	ids := map[string]string{}
	for i, name := range []string{"blue", "green", "red"} {
		subnet := fmt.Sprintf("10.129.%d.0/24", i)
		id, err := e.create(dockernet.CreateRequest{Name: name, CreateOptions: dockernet.CreateOptions{
			IPAM: &dockernet.IPAM{Config: []dockernet.IPAMConfig{{Subnet: subnet, Gateway: fmt.Sprintf("10.129.%d.9", i)}}}, Options: map[string]string{"mtu": "1400"},
		}})
		check(t, err)
		ids[name] = id
	}
	e.look()
	ep := e.run(ids["blue"], "web")
	e.run(ids["red"], "db")
	e.look()

	// Forgotten: another host has deleted what this one has written, and users two networks.
	e.write(func(tx *replica.Tx) {
		for _, n := range []string{"blue", "red"} {
			tx.Delete(cluster.Use{Network: n, Host: self}.Key())
		}
		for ep := range cluster.All[cluster.Endpoint](tx.Snapshot()) {
			tx.Delete(ep.Key())
		}
		retire(tx, "green")
		retire(tx, "red")
	})
	for id := range e.rig.core.local.endpoints {
		check(t, e.rig.core.alloc.Unbind(id))
		check(t, e.rig.core.local.dropEndpoint(id))
	}
	for _, l := range e.rig.core.alloc.Leases() {
		check(t, e.rig.core.alloc.Release(l.Addr))
	}
	for id := range e.rig.core.local.networks {
		check(t, e.rig.core.local.dropNetwork(id))
	}
	e.rig.reopen()
	e.rig.core.cfg.DriverName, e.rig.core.cfg.Renewed = "grapevine:latest", true

	e.look()
	if n, ok := e.rig.core.local.networks[ids["blue"]]; !ok || n.Name != "blue" || n.MTU != 1400 || !slices.Equal(n.Gateways, []netip.Addr{netip.MustParseAddr("10.129.0.9")}) {
		t.Fatalf("blue, which the cluster has, is not taken on: %+v", n)
	}
	if len(e.rig.core.local.networks) != 1 || len(e.rig.Orphans()) != 0 {
		t.Fatalf("at once: %v, orphans %v", e.rig.core.local.networks, e.rig.Orphans())
	}
	e.rig.now = e.rig.now.Add(orphanedAfter + time.Second)
	e.look()
	e.want("network blue vnid 1", "network red vnid 4", "subnet 10.129.0.0/24 of blue gateway 10.129.0.9", "subnet 10.129.2.0/24 of red gateway 10.129.2.9",
		"use blue/"+string(self), "use red/"+string(self))
	e.rig.now = e.rig.now.Add(orphanedAfter + time.Second)
	e.look()
	e.look()
	if _, there := e.named("green"); there { // it may have waited for clients of Docker's
		t.Error("green is still in docker")
	}
	if got := e.rig.Orphans(); len(got) != 2 || !got[0].Known || got[0].Containers[0] != "web" || got[1].Containers[0] != "db" {
		t.Errorf("orphans: %+v", got)
	}

	// docker restart
	e.stop(ids["blue"], "web", ep)
	e.run(ids["blue"], "again")
	e.rm("web")
	e.look()
	if got := e.rig.Orphans(); len(got) != 1 || got[0].Network != "red" {
		t.Errorf("orphans after the restart: %+v", got)
	}
}

// TestRemovedIsNotAdopted: what Docker lists a little longer than it has it does not come back.
func TestRemovedIsNotAdopted(t *testing.T) {
	e := newEngine(t)
	id, err := e.create(dockernet.CreateRequest{Name: "blue", CreateOptions: dockernet.CreateOptions{
		IPAM: &dockernet.IPAM{Config: []dockernet.IPAMConfig{{Subnet: "10.129.0.0/24"}}},
	}})
	check(t, err)
	e.look()
	kept := e.networks[id]
	e.remove(id)
	e.networks[id] = kept
	for range 3 {
		e.look()
		e.rig.now = e.rig.now.Add(orphanedAfter + time.Second)
	}
	if len(e.rig.core.local.networks) != 0 {
		t.Errorf("networks: %v", e.rig.core.local.networks)
	}
}

// TestAnotherClustersNetworks: a host that has no former life in this cluster takes on what
// the cluster has, and names the rest.
func TestAnotherClustersNetworks(t *testing.T) {
	e := newEngine(t)
	id, err := e.create(dockernet.CreateRequest{Name: "blue", CreateOptions: dockernet.CreateOptions{
		IPAM: &dockernet.IPAM{Config: []dockernet.IPAMConfig{{Subnet: "10.129.0.0/24"}}},
	}})
	check(t, err)
	e.look()
	e.write(func(tx *replica.Tx) { retire(tx, "blue") })
	check(t, e.rig.core.local.dropNetwork(id))
	for range 3 {
		e.look()
		e.rig.now = e.rig.now.Add(orphanedAfter + time.Second)
	}
	if got := e.rig.Orphans(); len(got) != 1 || got[0].Known || len(e.rig.core.local.networks) != 0 {
		t.Errorf("orphans %+v, networks %v", got, e.rig.core.local.networks)
	}
	e.want()
}

// TestHalfRemovedNetworks: Docker has failed to store that a network goes, as on a full disk. It
// does not list it any more, so that the agent forgets it, and does again after its next start.
func TestHalfRemovedNetworks(t *testing.T) {
	for what, meanwhile := range map[string]func(e *engine){
		"the cluster has it no more": func(*engine) {},
		"it has another subnet now": func(e *engine) {
			e.write(func(tx *replica.Tx) {
				_ = tx.Put(cluster.Network{Name: "red", VNID: 8})
				_ = tx.Put(cluster.Subnet{Prefix: netip.MustParsePrefix("10.10.0.0/24"), Network: "red", Gateway: netip.MustParseAddr("10.10.0.1"), Home: self})
			})
			e.look()
		},
		"it was made again, and is in use": func(e *engine) {
			e.red(false)
			e.look()
			n, _ := e.named("red")
			e.run(n.ID, "web")
			e.look()
		},
	} {
		t.Run(what, func(t *testing.T) {
			e := newEngine(t)
			e.red(false)
			e.look()
			half, _ := e.named("red")
			e.write(func(tx *replica.Tx) { retire(tx, "red") })
			e.full = true
			for range 4 { // it waits for clients of Docker's
				e.rig.now = e.rig.now.Add(forgottenAfter)
				_, _ = e.rig.mirror.look(t.Context())
			}
			e.full = false
			if _, known := e.rig.core.local.networks[half.ID]; known {
				t.Fatal("the agent has what docker does not list")
			}
			meanwhile(e)
			records := e.rig.records()
			e.networks[half.ID] = half
			for range 3 {
				e.rig.now = e.rig.now.Add(time.Second)
				e.look()
			}
			if _, there := e.networks[half.ID]; there || len(e.rig.Orphans()) > 0 {
				t.Errorf("docker has it %v, orphans %v", there, e.rig.Orphans())
			}
			if _, there := e.named("red"); there != (len(e.rig.core.local.networks) == 1) {
				t.Errorf("docker has another one: %v, the agent: %v", there, e.rig.core.local.networks)
			}
			e.want(strings.Split(records, "\n")...)
		})
	}
}

// TestEndsThatAreNotStored: Docker has removed a network, or a container, whose end this agent's
// full disk did not take. It goes soon after there is room, and is in nobody's way.
func TestEndsThatAreNotStored(t *testing.T) {
	e := newEngine(t)
	e.red(false)
	blue := e.user("blue")
	e.look()
	web := e.run(blue, "web")
	e.rig.now = e.rig.now.Add(time.Minute) // nothing is young
	e.look()
	e.write(func(tx *replica.Tx) { retire(tx, "red") })
	e.rig.life.Over = true
	for range 4 { // it waits for clients of Docker's
		e.rig.now = e.rig.now.Add(time.Second)
		_, _ = e.rig.mirror.look(t.Context())
	}
	if _, there := e.named("red"); there {
		t.Fatal("docker still has the network")
	}
	if _, err := e.rig.DeleteEndpoint(t.Context(), &network.DeleteEndpointRequest{NetworkID: blue, EndpointID: web}); err == nil {
		t.Fatal("the end of an endpoint is stored on a full disk")
	}
	e.rm("web")
	e.rig.life.Over = false
	e.red(false) // somebody has made it again
	for range 5 {
		e.rig.now = e.rig.now.Add(time.Second)
		_, _ = e.rig.mirror.look(t.Context())
	}
	if _, there := e.named("red"); !there {
		t.Error("the network that was made again is not in docker")
	}
	if n := len(e.rig.core.alloc.Leases()); n != 0 {
		t.Errorf("%d leases", n)
	}
}

// TestRemovalsFailWhileDockerIsLookedAt: that a network could not be removed is noted by Docker's calls while the
// watcher reads it. Nothing is asked of the result: `make race` is what fails.
func TestRemovalsFailWhileDockerIsLookedAt(t *testing.T) {
	e := newEngine(t)
	e.user("blue")
	var calls sync.WaitGroup
	calls.Go(func() {
		gone := strings.Repeat("9", 64)
		for range 20 {
			e.rig.core.mu.Lock()
			err := e.rig.core.local.setEndpoint(localEndpoint{ID: "short", Network: gone})
			e.rig.core.mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if _, err := e.rig.DeleteNetwork(context.Background(), &network.DeleteNetworkRequest{NetworkID: gone}); err == nil {
				t.Error("a network went with an endpoint that cannot")
			}
		}
	})
	for range 20 {
		e.look()
	}
	calls.Wait()
}
