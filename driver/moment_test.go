package driver

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	dockernet "github.com/docker/docker/api/types/network"
	dockeripam "github.com/docker/go-plugins-helpers/ipam"
	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/replica"
)

// Networks that a user, the agent or another host make and remove at the same moment,
// as Compose does on several hosts.

func (e *engine) record(name string) cluster.Network {
	n, _ := cluster.Get[cluster.Network](e.rig.replica.Snapshot(), name)
	return n
}

// ids of the networks that Docker has under a name.
func (e *engine) ids(name string) (ids []string) {
	for _, n := range e.list() {
		if n.Name == name {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// userAsks is the first call of a user's docker network create.
func (e *engine) userAsks(subnet string) {
	e.t.Helper()
	_, err := e.rig.ipam.RequestPool(context.Background(), &dockeripam.RequestPoolRequest{AddressSpace: ipam.AddressSpace, Pool: subnet})
	check(e.t, err)
}

// A network that is announced again has its labels: by them Compose knows it.
func TestLabelsComeBack(t *testing.T) {
	e := newEngine(t)
	e.red(false)
	e.look()
	n, _ := e.named("red")
	e.look()
	e.run(n.ID, "web")
	e.write(func(tx *replica.Tx) { retire(tx, "red") })
	e.look()
	if rec := e.record("red"); rec.Labels["l"] != "v" || rec.MTU != 1400 || rec.Options["mtu"] != "1400" {
		t.Errorf("it came back as %+v", rec)
	}
}

// Docker cannot store, on a full disk, a network that it has asked us to make, and removes it: what
// the cluster has of it stays, whoever made it here, and there is nothing left of it otherwise.
func TestNetworkDockerCannotStore(t *testing.T) {
	e := newEngine(t)
	e.red(false)
	e.full = true
	if _, err := e.rig.mirror.look(t.Context()); err == nil {
		t.Error("nothing is said of a network that docker cannot store")
	}
	red := dockernet.CreateRequest{Name: "red", CreateOptions: dockernet.CreateOptions{
		IPAM: &dockernet.IPAM{Config: []dockernet.IPAMConfig{{Subnet: "10.9.0.0/24"}}},
	}}
	for _, options := range []map[string]string{nil, {"name": "red"}} { // a user's
		red.Options = options
		if _, err := e.create(red); err == nil {
			t.Error("a full disk takes a network")
		}
	}
	if _, err := e.create(dockernet.CreateRequest{Name: "blue", CreateOptions: dockernet.CreateOptions{Options: map[string]string{"name": "blue"}}}); err == nil {
		t.Error("a full disk takes a network")
	}
	e.full = false
	e.look()
	if rec := e.record("red"); rec.VNID != 7 || rec.Removed {
		t.Errorf("the network is %+v", rec)
	}
	if _, there := e.named("red"); !there {
		t.Error("the network is not made when there is room again")
	}
	e.want("network red vnid 7", "subnet 10.9.0.0/24 of red gateway 10.9.0.5")
}

// Made anew while others still use it, a network is what its user says now.
func TestMadeAnew(t *testing.T) {
	e := newEngine(t)
	e.red(true)
	_, err := e.create(dockernet.CreateRequest{Name: "red", CreateOptions: dockernet.CreateOptions{
		Labels: map[string]string{"l": "w"}, Options: map[string]string{"mtu": "1300"},
	}})
	check(t, err)
	e.look()
	if rec := e.record("red"); rec.Labels["l"] != "w" || rec.MTU != 1300 || rec.VNID != 7 || rec.Removed {
		t.Errorf("it is %+v", rec)
	}
}

// While a user makes a network, whose name nobody can know, the agent makes none.
func TestUserGoesFirst(t *testing.T) {
	for _, subnet := range []string{"", "10.9.0.0/24"} { // any, or that of the same network
		for when, begin := range map[string]func(*engine){
			"before":    func(e *engine) { e.userAsks(subnet) },
			"meanwhile": func(e *engine) { e.meanwhile = func() { e.userAsks(subnet) } },
		} {
			e := newEngine(t)
			e.red(false)
			begin(e)
			open, err := e.rig.mirror.look(context.Background())
			if ids := e.ids("red"); err != nil || !open || len(ids) != 0 {
				t.Errorf("asked for %q %s: %d networks, open %v, %v", subnet, when, len(ids), open, err)
			}
			e.rig.now = e.rig.now.Add(2 * creationTime) // the user's came to nothing
			e.look()
			if ids := e.ids("red"); len(ids) != 1 {
				t.Errorf("asked for %q %s: %d networks afterwards", subnet, when, len(ids))
			}
		}
	}
}

// Where Docker has two of a name after all, the agent's goes, also with a subnet in common.
func TestUsersNetworkStays(t *testing.T) {
	for _, subnet := range []string{"", "10.9.0.0/24"} {
		e := newEngine(t)
		e.red(false)
		e.look()
		id, err := e.create(dockernet.CreateRequest{Name: "red", CreateOptions: dockernet.CreateOptions{
			IPAM: &dockernet.IPAM{Config: []dockernet.IPAMConfig{{Subnet: subnet}}},
		}})
		check(t, err)
		e.run(id, "web")
		e.look()
		e.look()
		if ids := e.ids("red"); len(ids) != 1 || ids[0] != id {
			t.Errorf("subnet %q: docker has %v", subnet, ids)
		}
		if got := e.rig.records(); !strings.Contains(got, "use red/") || e.record("red").Removed {
			t.Errorf("subnet %q: records are\n%s", subnet, got)
		}
	}
}

// A container that never ran, and so has a network's name alone, is to be on the user's of two.
func TestNameOfTwo(t *testing.T) {
	ours, users := docker.Network{ID: "a", Name: "red"}, docker.Network{ID: "b", Name: "red"}
	for _, list := range [][]docker.Network{{ours, users}, {users, ours}} {
		v := view{
			networks:   list,
			local:      map[string]localNetwork{"a": {ID: "a", Name: "red", Replica: true}, "b": {ID: "b", Name: "red"}},
			containers: []docker.Container{{Name: "web", Networks: []docker.Attachment{{Network: "red"}}}},
		}
		if used := v.usedNetworks(); used["a"] || !used["b"] {
			t.Errorf("in use of %v: %v", list, used)
		}
	}
}

// On a busy host, where Docker takes long to answer, a network waits longer for who may have missed it.
func TestCreateWaitGrows(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{time.Millisecond: createWait, 100 * time.Millisecond: 2 * time.Second, time.Minute: vanishWait} {
		if got := (&applier{answers: took}).createWait(); got != want {
			t.Errorf("answers in %s: %s", took, got)
		}
	}
}

// A network that leaves the cluster while it is made here does not come back by that.
func TestGoneMeanwhile(t *testing.T) {
	e := newEngine(t)
	e.red(false)
	e.meanwhile = func() { e.write(func(tx *replica.Tx) { retire(tx, "red") }) }
	e.look()
	e.look()
	if ids := e.ids("red"); len(ids) != 0 {
		t.Errorf("docker has %v", ids)
	}
	e.want("")
}

// Two hosts make a network with the same subnet: it is joined, once it has its name.
func TestSubnetBegunElsewhere(t *testing.T) {
	e := newEngine(t)
	subnet := netip.MustParsePrefix("10.9.0.0/24")
	begun := func(name string) {
		e.write(func(tx *replica.Tx) {
			_ = tx.Put(cluster.Network{Name: name, VNID: 7})
			_ = tx.Put(cluster.Subnet{Prefix: subnet, Network: name, Gateway: subnet.Addr().Next(), Home: self})
		})
	}
	begun(provisional + "there")
	id, err := e.create(dockernet.CreateRequest{Name: "red", CreateOptions: dockernet.CreateOptions{
		Labels: map[string]string{"l": "v"}, IPAM: &dockernet.IPAM{Config: []dockernet.IPAMConfig{{Subnet: subnet.String()}}},
	}})
	check(t, err)
	e.run(id, "web")
	if open, err := e.rig.mirror.look(context.Background()); err != nil || !open {
		t.Errorf("while it has no name: open %v, %v", open, err)
	}
	begun("red")
	e.write(func(tx *replica.Tx) { tx.Delete(cluster.Network{Name: provisional + "there"}.Key()) })
	e.look()
	if n := e.rig.core.local.networks[id]; n.Name != "red" || n.Conflict != "" {
		t.Errorf("it is %+v", n)
	}
	if got := e.rig.records(); !strings.Contains(got, "on red [10.9.0.2]") || !strings.Contains(got, "use red/") || strings.Contains(got, provisional) {
		t.Errorf("records are\n%s", got)
	}
}

func TestReplicaOptionIsTheAgents(t *testing.T) {
	e := newEngine(t)
	_, err := e.create(dockernet.CreateRequest{Name: "red", CreateOptions: dockernet.CreateOptions{Options: map[string]string{"replica": "true"}}})
	if err == nil || !strings.Contains(err.Error(), "leave it out") {
		t.Errorf("given by a user: %v", err)
	}
}

// A container has routes to the subnets that its network got after it was started.
func TestRoutesToNewSubnets(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	e.look()
	check(t, e.rig.endpoints.setJoined(e.run(id, "web"), true, "/sandbox"))
	put := func() {
		e.write(func(tx *replica.Tx) {
			_ = tx.Put(cluster.Subnet{Prefix: netip.MustParsePrefix("10.9.0.0/24"), Network: "blue", Gateway: netip.MustParseAddr("10.9.0.1"), Home: self})
		})
	}
	put()
	e.rig.machine.absent = true
	if open, err := e.rig.mirror.look(context.Background()); err != nil || !open {
		t.Errorf("while Docker may be setting routes: open %v, %v", open, err)
	}
	e.rig.now = e.rig.now.Add(settling)
	if open, err := e.rig.mirror.look(context.Background()); err != nil || !open {
		t.Errorf("while there is no sandbox: open %v, %v", open, err)
	}
	e.rig.machine.absent = false
	e.look()
	if got := e.rig.machine.routes["/sandbox"]; len(got) != 1 || got[0].Prefix.String() != "10.9.0.0/24" || got[0].Gateway.String() != "10.128.0.1" {
		t.Errorf("routes are %v", got)
	}
	e.write(func(tx *replica.Tx) { tx.Delete(cluster.Subnet{Prefix: netip.MustParsePrefix("10.9.0.0/24")}.Key()) })
	e.look()
	if got := e.rig.machine.routes["/sandbox"]; len(got) != 0 {
		t.Errorf("routes to a subnet that is gone: %v", got)
	}
	put()
	e.look()
	if got := e.rig.machine.routes["/sandbox"]; len(got) != 1 {
		t.Errorf("routes are %v", got)
	}
}

// Docker fails to start a container if a route that it is to set is there already.
func TestRoutesThatDockerSets(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	e.look()
	e.write(func(tx *replica.Tx) {
		_ = tx.Put(cluster.Subnet{Prefix: netip.MustParsePrefix("10.9.0.0/24"), Network: "blue", Gateway: netip.MustParseAddr("10.9.0.1"), Home: self})
	})
	ep := e.run(id, "web")
	reply, err := e.rig.Join(context.Background(), &network.JoinRequest{NetworkID: id, EndpointID: ep, SandboxKey: "/sandbox"})
	check(t, err)
	if len(reply.StaticRoutes) != 1 {
		t.Fatalf("routes for docker are %v", reply.StaticRoutes)
	}
	e.look()
	e.rig.now = e.rig.now.Add(settling)
	e.look()
	if got, set := e.rig.machine.routes["/sandbox"]; set {
		t.Errorf("the agent sets %v, which docker sets", got)
	}
	// Nor when another one comes and Docker has still not got there, on a host that is very busy.
	e.write(func(tx *replica.Tx) {
		_ = tx.Put(cluster.Subnet{Prefix: netip.MustParsePrefix("10.9.1.0/24"), Network: "blue", Gateway: netip.MustParseAddr("10.9.1.1"), Home: self})
	})
	e.look()
	if got := e.rig.machine.routes["/sandbox"]; len(got) != 1 || got[0].Prefix.String() != "10.9.1.0/24" {
		t.Errorf("the agent sets %v", got)
	}
}
