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
	"github.com/grapevine-net/grapevine/replica"
)

// look lets the watcher look once.
func (e *engine) look() {
	e.t.Helper()
	if _, err := e.rig.mirror.look(context.Background()); err != nil {
		e.t.Fatal(err)
	}
}

// want compares the live records.
func (e *engine) want(lines ...string) {
	e.t.Helper()
	if got, want := e.rig.records(), strings.Join(lines, "\n"); got != want {
		e.t.Fatalf("records are\n%s\nwant\n%s", got, want)
	}
}

// write makes records, as if they came from elsewhere.
func (e *engine) write(f func(tx *replica.Tx)) {
	e.t.Helper()
	_, err := e.rig.replica.Update(func(tx *replica.Tx) error { f(tx); return nil })
	check(e.t, err)
}

func (e *engine) user(name string) string {
	e.t.Helper()
	id, err := e.create(dockernet.CreateRequest{Name: name, CreateOptions: dockernet.CreateOptions{Labels: map[string]string{"a": "b"}}})
	check(e.t, err)
	return id
}

func TestLifeOfANetwork(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	e.want("network "+provisional+id+" vnid 1", "subnet 10.128.0.0/22 of "+provisional+id+" gateway 10.128.0.1")
	ep := e.run(id, "web") // before the name is known
	e.look()
	use := "use blue/" + string(self)
	e.want("network blue vnid 1", "subnet 10.128.0.0/22 of blue gateway 10.128.0.1",
		fmt.Sprintf("endpoint %.12s on blue [10.128.0.2] 02:42:0a:80:00:02 web", ep), use)
	if n, _ := cluster.Get[cluster.Network](e.rig.replica.Snapshot(), "blue"); n.Labels["a"] != "b" {
		t.Errorf("labels are %v", n.Labels)
	}
	if got := e.rig.machine.String(); got != "link gv000000000000 gc000000000000 02:42:0a:80:00:02 mtu 1450\nport 000000000000 gv000000000000" {
		t.Errorf("the machine has\n%s", got)
	}
	e.stop(id, "web", ep)
	e.look()
	e.want("network blue vnid 1", "subnet 10.128.0.0/22 of blue gateway 10.128.0.1", use) // stopped, but configured
	e.rm("web")
	e.look()
	e.want("network blue vnid 1", "subnet 10.128.0.0/22 of blue gateway 10.128.0.1")
	e.remove(id)
	e.want("")
	e.look()
	e.want("")
	if got := e.rig.machine.String(); got != "" {
		t.Errorf("the machine still has\n%s", got)
	}
}

// While Docker removes a network it is not listed any more, but not lost either.
func TestRemovalIsTheUsers(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	e.look()
	e.rig.now = e.rig.now.Add(time.Hour)
	n := e.networks[id]
	delete(e.networks, id)
	e.look()
	e.networks[id] = n
	e.remove(id)
	e.look()
	e.want("")
}

func (e *engine) red(removed bool) {
	e.write(func(tx *replica.Tx) {
		_ = tx.Put(cluster.Network{Name: "red", VNID: 7, Labels: map[string]string{"l": "v"}, Options: map[string]string{"mtu": "1400"}, MTU: 1400, Removed: removed})
		_ = tx.Put(cluster.Subnet{Prefix: netip.MustParsePrefix("10.9.0.0/24"), Network: "red", Gateway: netip.MustParseAddr("10.9.0.5"), Home: self, Range: netip.MustParsePrefix("10.9.0.64/26")})
	})
}

func TestNetworkAppearsAndGoes(t *testing.T) {
	e := newEngine(t)
	e.red(false)
	e.look()
	n, ok := e.named("red")
	if !ok {
		t.Fatal("the cluster's network is not in docker")
	}
	if c := n.IPAM.Config[0]; c.Subnet != "10.9.0.0/24" || c.Gateway != "10.9.0.5" || c.IPRange != "10.9.0.64/26" || n.Labels["l"] != "v" || n.Options["mtu"] != "1400" {
		t.Errorf("it was made as %+v", n)
	}
	e.want("network red vnid 7", "subnet 10.9.0.0/24 of red gateway 10.9.0.5")
	// Deleted in the cluster while a container is on it: announced again.
	e.run(n.ID, "web")
	del := func(tx *replica.Tx) { retire(tx, "red") }
	e.write(del)
	e.look()
	if got := e.rig.records(); !strings.Contains(got, "network red vnid 7\nsubnet 10.9.0.0/24 of red") {
		t.Fatalf("a network in use is gone:\n%s", got)
	}
	e.stop(n.ID, "web", fmt.Sprintf("%064s", "web"))
	e.rm("web")
	e.look()
	e.write(del)
	e.look()
	if _, there := e.named("red"); there {
		t.Error("a network that the cluster deleted is in docker")
	}
	e.want("")
}

// What others make of a network looks as what a user has made.
func TestReplicaLooksTheSame(t *testing.T) {
	e := newEngine(t)
	six := true
	_, err := e.create(dockernet.CreateRequest{Name: "blue", CreateOptions: dockernet.CreateOptions{
		Attachable: true, EnableIPv6: &six,
		IPAM: &dockernet.IPAM{Config: []dockernet.IPAMConfig{{Subnet: "10.7.0.0/24", Gateway: "10.7.0.9"}, {Subnet: "10.6.0.0/24"}, {Subnet: "fd07::/64"}}},
	}})
	check(t, err)
	e.look()
	rec, _ := cluster.Get[cluster.Network](e.rig.replica.Snapshot(), "blue")
	dn, ok := view{snap: e.rig.replica.Snapshot(), driver: "d"}.replica(rec)
	if !ok || !dn.Attachable || fmt.Sprint(dn.Pools) != "[{10.7.0.0/24  10.7.0.9 map[]} {10.6.0.0/24   map[]} {fd07::/64   map[]}]" {
		t.Errorf("%v: %+v", ok, dn)
	}
	// It is announced again as it was.
	e.write(func(tx *replica.Tx) { retire(tx, "blue") })
	for _, n := range e.rig.core.local.networks {
		check(t, e.rig.core.noteUse(n.ID, true))
	}
	rec, _ = cluster.Get[cluster.Network](e.rig.replica.Snapshot(), "blue")
	again, _ := view{snap: e.rig.replica.Snapshot(), driver: "d"}.replica(rec)
	if fmt.Sprint(again) != fmt.Sprint(dn) {
		t.Errorf("announced again: %+v", again)
	}
	// And the gateway is the same where Docker is told none.
	if s, _ := cluster.Get[cluster.Subnet](e.rig.replica.Snapshot(), "fd07::/64"); s.Gateway != netip.MustParseAddr("fd07::1") {
		t.Errorf("gateway %s", s.Gateway)
	}
}

// A network with the cluster's name said by an option is the same there as one without.
func TestNamedByOptionLooksTheSame(t *testing.T) {
	e := newEngine(t)
	_, err := e.create(dockernet.CreateRequest{Name: "here", CreateOptions: dockernet.CreateOptions{
		Attachable: true, Labels: map[string]string{"l": "v"}, Options: map[string]string{"name": "blue"},
		IPAM: &dockernet.IPAM{Config: []dockernet.IPAMConfig{{Subnet: "10.7.0.0/24"}}},
	}})
	check(t, err)
	e.look()
	rec := e.record("blue")
	if s, _ := cluster.Get[cluster.Subnet](e.rig.replica.Snapshot(), "10.7.0.0/24"); !rec.Attachable || rec.Labels["l"] != "v" || !s.Implied {
		t.Errorf("it is %+v, %+v", rec, s)
	}
	for id := range e.rig.core.local.networks {
		if n := e.rig.core.local.networks[id]; !n.Learnt || n.Name != "blue" || n.Conflict != "" {
			t.Errorf("here it is %+v", n)
		}
	}
}

// A network that was removed while no agent ran is removed, from the cluster, too. One that is missing since
// Docker's files were wiped, or since this agent was about to replace it, is made again.
func TestNetworkRemovedWithoutAgent(t *testing.T) {
	for what, stays := range map[string]bool{"removed": false, "wiped": true, "replaced": true, "made anew elsewhere": true} {
		t.Run(what, func(t *testing.T) {
			e := newEngine(t)
			id := e.user("blue")
			e.look()
			switch what {
			case "wiped":
				e.store = "2"
			case "replaced":
				e.rig.core.mu.Lock()
				check(t, e.rig.networks.noteStore(id, ""))
				e.rig.core.mu.Unlock()
			case "made anew elsewhere":
				e.write(func(tx *replica.Tx) { n := e.record("blue"); n.Made = "elsewhere"; _ = tx.Put(n) })
			}
			e.rig.restart()
			e.rig.core.cfg.DriverName = "grapevine:latest"
			delete(e.networks, id)
			for _, after := range []time.Duration{0, forgottenAfter + time.Second, e.rig.core.cfg.Grace, time.Minute, createWait, createWait} {
				e.rig.now = e.rig.now.Add(after)
				e.look()
			}
			if _, live := cluster.Get[cluster.Network](e.rig.replica.Snapshot(), "blue"); live != stays {
				t.Errorf("the cluster has it: %v", live)
			}
			if _, there := e.named("blue"); there != stays {
				t.Errorf("docker has it: %v", there)
			}
		})
	}
}

func TestRemovedWhileUsedElsewhere(t *testing.T) {
	e := newEngine(t)
	e.red(false)
	e.look()
	other := cluster.NodeID("00000000000000bb")
	use := []cluster.Record{{Key: cluster.Use{Network: "red", Host: other}.Key(), Version: cluster.Version{Counter: 100, Node: other}, Body: cluster.Use{Network: "red", Host: other}}}
	_, err := e.rig.replica.Merge(cluster.Encode(use))
	check(t, err)
	n, _ := e.named("red")
	e.remove(n.ID)
	e.look()
	if _, back := e.named("red"); back {
		t.Error("a network in use elsewhere is made again before the user could do so")
	}
	e.rig.now = e.rig.now.Add(comeBack)
	e.look()
	if _, back := e.named("red"); !back {
		t.Error("a network in use elsewhere was not made again")
	}
	use[0].Version.Counter, use[0].Prev, use[0].Body, use[0].Deleted = 200, 100, nil, 1
	_, err = e.rig.replica.Merge(cluster.Encode(use))
	check(t, err)
	e.look()
	e.look()
	if _, there := e.named("red"); there {
		t.Error("a removed network is still there although nobody uses it")
	}
	e.want("")
}

func TestReplicateOff(t *testing.T) {
	e := newEngine(t)
	e.rig.core.cfg.Replicate = false
	e.red(false)
	id := e.user("blue")
	e.look()
	if _, made := e.named("red"); made {
		t.Error("made a network in docker")
	}
	e.write(func(tx *replica.Tx) { retire(tx, "blue") })
	e.look()
	if _, there := e.networks[id]; !there {
		t.Error("removed a network from docker")
	}
}

// A name that the cluster has already: the network joins it, with its subnet.
func TestNameKnownLate(t *testing.T) {
	e := newEngine(t)
	id := e.user("red")
	e.run(id, "web")
	e.red(false)
	e.look()
	got := e.rig.records()
	for _, want := range []string{"network red vnid 7\n", "subnet 10.128.0.0/22 of red", "subnet 10.9.0.0/24 of red", "on red [10.128.0.2]", "use red/"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	// The container reaches the other subnet, whatever its default route.
	reply, err := e.rig.Join(context.Background(), &network.JoinRequest{NetworkID: id, EndpointID: fmt.Sprintf("%064s", "web")})
	check(t, err)
	if len(reply.StaticRoutes) != 1 || reply.StaticRoutes[0].Destination != "10.9.0.0/24" || reply.StaticRoutes[0].NextHop != "10.128.0.1" {
		t.Errorf("routes: %+v", reply.StaticRoutes)
	}
}

// The subnet of another network must not be a door into it.
func TestSubnetOfAnotherNetwork(t *testing.T) {
	e := newEngine(t)
	e.rig.core.cfg.Replicate = false
	e.red(false)
	id, err := e.create(dockernet.CreateRequest{Name: "green", CreateOptions: dockernet.CreateOptions{
		IPAM: &dockernet.IPAM{Config: []dockernet.IPAMConfig{{Subnet: "10.9.0.0/24"}}},
	}})
	check(t, err)
	e.run(id, "web")
	e.look()
	if got := e.rig.machine.String(); strings.Contains(got, "port") {
		t.Errorf("a container of green is in red:\n%s", got)
	}
	_, err = e.rig.CreateEndpoint(context.Background(), &network.CreateEndpointRequest{
		NetworkID: id, EndpointID: strings.Repeat("e", 64), Interface: &network.EndpointInterface{Address: "10.9.0.9/24"},
	})
	if err == nil || !strings.Contains(err.Error(), "network green has the subnet 10.9.0.0/24 of network red") {
		t.Errorf("another container: %v", err)
	}
}

func TestGarbage(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	ep := e.run(id, "web")
	e.look()
	e.rm("web")
	e.starting = []string{ep} // on a slow host this takes its time
	e.look()
	e.rig.now = e.rig.now.Add(2 * time.Minute)
	e.look()
	if n := len(e.rig.core.alloc.Leases()); n != 1 {
		t.Fatalf("%d leases while the container starts", n)
	}
	e.starting = nil // Docker has forgotten it, and has not told
	if n := len(e.rig.core.alloc.Leases()); n != 1 {
		t.Fatalf("%d leases at once", n)
	}
	e.rig.now = e.rig.now.Add(2 * time.Minute)
	e.look()
	e.rig.now = e.rig.now.Add(2 * time.Minute)
	e.look()
	e.want("network blue vnid 1", "subnet 10.128.0.0/22 of blue gateway 10.128.0.1")
	if n := len(e.rig.core.alloc.Leases()); n != 0 || e.rig.machine.String() != "" {
		t.Errorf("%d leases and\n%s", n, e.rig.machine)
	}
}

// Docker deletes an endpoint though its call to say so did not reach the agent, and repeats
// the call without its body: what Docker no longer has is collected soon then.
func TestLostDelete(t *testing.T) {
	e := newEngine(t)
	post := servePlugin(t, e.rig)
	id := e.user("blue")
	e.run(id, "web")
	e.look()
	e.rm("web")
	e.look()
	e.rig.now = e.rig.now.Add(2 * forgottenAfter)
	e.look()
	if n := len(e.rig.core.alloc.Leases()); n != 1 {
		t.Fatalf("%d leases before anything was lost", n)
	}
	if got := post("/NetworkDriver.DeleteEndpoint", ""); !strings.HasPrefix(got, "400") {
		t.Fatal(got)
	}
	e.rig.now = e.rig.now.Add(time.Second)
	e.look()
	if n := len(e.rig.core.alloc.Leases()); n != 0 {
		t.Errorf("%d leases", n)
	}
}

func TestLostEndpoint(t *testing.T) {
	now := time.Unix(1e9, 0)
	ago := func(s int) time.Time { return now.Add(-time.Duration(s) * time.Second) }
	var never time.Time
	for _, c := range []struct {
		name                         string
		missing, created             time.Time
		deleteLost, dockerBegan      time.Time
		unplugged, endpoint, network bool // want
	}{
		{"missing for long", ago(40), ago(50), never, never, false, true, true},
		{"may be about to be listed", ago(4), ago(5), never, never, false, false, false},
		{"a call to delete one was lost", ago(4), ago(5), ago(4), never, false, true, false},
		{"a call was lost before it was made", ago(4), ago(5), ago(6), never, false, false, false},
		{"a call was lost long ago", ago(4), ago(90), ago(80), never, false, false, false},
		{"without an interface", ago(4), ago(5), never, never, true, true, false},
		{"without an interface, just now", ago(1), ago(5), never, never, true, false, false},
		{"Docker was started after it was made", ago(4), ago(8), never, ago(5), false, true, true},
		{"Docker was started after it was made, just now", ago(1), ago(8), never, ago(5), false, false, false},
		{"Docker was started before it was made", ago(4), ago(5), never, ago(6), false, false, false},
		{"Docker was started long ago", ago(4), ago(90), never, ago(80), false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := view{
				now: now, grace: 30 * time.Second, missing: map[string]time.Time{"a": c.missing},
				deleteLost: c.deleteLost, dockerBegan: c.dockerBegan, unplugged: map[string]bool{"a": c.unplugged},
			}
			if got := v.lostEndpoint(localEndpoint{ID: "a", Created: c.created}); got != c.endpoint {
				t.Errorf("it is %v that the endpoint is lost", got)
			}
			if got := v.lostNetwork(localNetwork{ID: "a", Created: c.created}); got != c.network {
				t.Errorf("it is %v that the network is lost", got)
			}
		})
	}
	if (view{now: now}).lostEndpoint(localEndpoint{ID: "a"}) {
		t.Error("one is lost that is not missing")
	}
}

// wantForgotten: the only endpoint, which Docker does not list, is kept at first and then collected.
func (e *engine) wantForgotten() {
	e.t.Helper()
	e.look()
	if n := len(e.rig.core.alloc.Leases()); n != 1 {
		e.t.Errorf("%d leases at once: Docker may be about to list it", n)
	}
	e.rig.now = e.rig.now.Add(2 * forgottenAfter)
	e.look()
	if n := len(e.rig.core.alloc.Leases()); n != 0 {
		e.t.Errorf("%d leases", n)
	}
}

// Docker removed containers while there was no agent: their names go at the first look of the next
// one. What Docker is just making, or still has, stays.
func TestRemovedWithoutAgent(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	gone, left := e.run(id, "web"), e.run(id, "db")
	stopped, stays := e.run(id, "job"), e.run(id, "app")
	e.look()
	coming, err := e.endpoint(id, "new") // Docker is about to list it
	check(t, err)
	e.rm("web")
	e.rm("db")
	e.starting = []string{left} // Docker has its endpoint, and is to call for its end
	e.container(id, "job", "")
	e.rig.restart()
	e.rig.core.cfg.DriverName = "grapevine:latest"
	e.look()
	for ep, want := range map[string]bool{gone: false, left: true, stopped: false, stays: true, coming: true} {
		if _, live := cluster.Get[cluster.Endpoint](e.rig.replica.Snapshot(), ep); live != want {
			t.Errorf("it is %v that endpoint %s has a record", live, strings.TrimSpace(ep))
		}
	}
	if n := len(e.rig.core.alloc.Leases()); n != 3 {
		t.Errorf("%d leases", n)
	}
}

// Docker was killed between its calls to make an endpoint and to join it, and has not stored it.
func TestDockerKilledAtCreate(t *testing.T) {
	e := newEngine(t)
	post := servePlugin(t, e.rig)
	id := e.user("blue")
	_, err := e.endpoint(id, "web")
	check(t, err)
	e.look()
	e.rig.now = e.rig.now.Add(time.Second)
	if got := post("/NetworkDriver.GetCapabilities", ""); !strings.HasPrefix(got, "200") {
		t.Fatal(got)
	}
	e.wantForgotten()
	e.look()
	e.want("network blue vnid 1", "subnet 10.128.0.0/22 of blue gateway 10.128.0.1")
}

// The host lost its power while Docker deleted an endpoint: Docker does not have it, nor is
// there an interface any more.
func TestPowerLostAtDelete(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	ep := e.run(id, "web")
	e.look()
	e.rm("web")
	host, _ := ifnames(ep)
	check(t, e.rig.machine.Delete(host))
	e.wantForgotten()
}

// The same where the disk took no writes in the end: Docker goes on listing the endpoint, of a
// container that has ended, and its network does not have it.
func TestEndpointOfAnEndedContainer(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	ep := e.run(id, "web")
	e.look()
	ended := e.containers["web"]
	ended.State = "exited"
	e.containers["web"] = ended
	kept := func(why string) {
		t.Helper()
		e.look()
		e.rig.now = e.rig.now.Add(time.Hour)
		e.look()
		if n := len(e.rig.core.alloc.Leases()); n != 1 {
			t.Fatalf("%d leases: %s", n, why)
		}
	}
	kept("there is its interface")
	host, _ := ifnames(ep)
	check(t, e.rig.machine.Delete(host))
	e.starting = []string{ep}
	e.look()
	e.rig.now = e.rig.now.Add(unlistedAfter)
	kept("Docker's network has it")
	e.starting = nil
	e.look()
	e.rig.now = e.rig.now.Add(2 * forgottenAfter)
	e.look()
	if n := len(e.rig.core.alloc.Leases()); n != 0 {
		t.Errorf("%d leases", n)
	}
	e.want("network blue vnid 1", "subnet 10.128.0.0/22 of blue gateway 10.128.0.1", "use blue/"+string(self))
}

// The same where Docker still took it out of its sandbox, and the disk took no more after that: it is
// not joined any more.
func TestLeftEndpointOfAnEndedContainer(t *testing.T) {
	e := newEngine(t)
	post := servePlugin(t, e.rig)
	id := e.user("blue")
	ep := e.run(id, "web")
	e.look()
	_, err := e.rig.Leave(context.Background(), &network.LeaveRequest{NetworkID: id, EndpointID: ep})
	check(t, err)
	ended := e.containers["web"]
	ended.State = "exited"
	e.containers["web"] = ended
	e.rig.now = e.rig.now.Add(time.Second)
	if got := post("/NetworkDriver.GetCapabilities", ""); !strings.HasPrefix(got, "200") {
		t.Fatal(got)
	}
	e.wantForgotten()
	e.want("network blue vnid 1", "subnet 10.128.0.0/22 of blue gateway 10.128.0.1", "use blue/"+string(self))
}

// A container whose end Docker did not tell has been started again: it is known by its
// new address alone, at once.
func TestReplacedEndpoint(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	e.run(id, "web")
	e.look()
	again := e.run(id, "web2")
	e.rm("web2")
	e.container(id, "web", again)
	e.look()
	e.want("network blue vnid 1", "subnet 10.128.0.0/22 of blue gateway 10.128.0.1",
		fmt.Sprintf("endpoint %.12s on blue [10.128.0.3] 02:42:0a:80:00:03 web", again), "use blue/"+string(self))
}

// A container runs whose state Docker could not write to a full disk: Docker lists it as it was, and
// only its network tells.
func TestUnlistedContainer(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	e.look()
	ep := e.run(id, "web")
	e.container(id, "web", "") // as created
	e.starting = []string{ep}
	e.look()
	e.rig.now = e.rig.now.Add(unlistedAfter)
	e.look()
	named := fmt.Sprintf("endpoint %.12s on blue [10.128.0.2] 02:42:0a:80:00:02 web", ep)
	network := []string{"network blue vnid 1", "subnet 10.128.0.0/22 of blue gateway 10.128.0.1"}
	e.want(append(network, named, "use blue/"+string(self))...)
	e.rig.now = e.rig.now.Add(time.Hour)
	e.look()
	e.want(append(network, named, "use blue/"+string(self))...)
	e.starting = nil // and now it has ended
	e.look()
	e.rig.now = e.rig.now.Add(time.Hour)
	e.look()
	e.rm("web")
	e.look()
	e.want(network...)
}

func TestFailedAttachLeavesNothing(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	ep := e.run(id, "web")
	e.stop(id, "web", ep)
	e.rig.machine.refuses = fmt.Errorf("no switch")
	_, err := e.rig.CreateEndpoint(context.Background(), &network.CreateEndpointRequest{
		NetworkID: id, EndpointID: ep, Interface: &network.EndpointInterface{Address: "10.128.0.2/22", MacAddress: "02:00:00:00:00:01"},
	})
	check(t, err)
	if _, err := e.rig.Join(context.Background(), &network.JoinRequest{NetworkID: id, EndpointID: ep}); err == nil || !strings.Contains(err.Error(), "no switch") {
		t.Errorf("join: %v", err)
	}
	if got := e.rig.machine.String(); got != "" {
		t.Errorf("left over:\n%s", got)
	}
}
