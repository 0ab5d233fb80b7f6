package driver

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// The resolver is in a container's namespace from Join to Leave, and again after the
// agent was started anew.
func TestResolverInTheSandbox(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	ep := e.run(id, "web")
	const key = "/var/run/docker/netns/0123456789ab"
	inside := func() bool {
		return strings.Contains(e.rig.machine.String(), fmt.Sprintf("resolver %.12s in %s", ep, key))
	}
	if strings.Contains(e.rig.machine.String(), "resolver") {
		t.Fatal("the resolver is in a sandbox without a key")
	}
	join := &network.JoinRequest{NetworkID: id, EndpointID: ep, SandboxKey: key}
	_, err := e.rig.Join(context.Background(), join)
	check(t, err)
	if !inside() {
		t.Fatalf("joined, and the machine has\n%s", e.rig.machine)
	}
	e.rig.machine.inside = map[string]string{} // the agent was killed
	e.rig.core.local, err = openLocal(e.rig.core.local.db, e.rig.now)
	check(t, err)
	e.rig.endpoints.restore(context.Background())
	if !inside() {
		t.Fatalf("restored, and the machine has\n%s", e.rig.machine)
	}
	_, err = e.rig.Leave(context.Background(), &network.LeaveRequest{NetworkID: id, EndpointID: ep})
	check(t, err)
	if inside() {
		t.Fatal("the container has left, the resolver has not")
	}
	e.rig.endpoints.restore(context.Background())
	if inside() {
		t.Fatal("the resolver is back where the container has left")
	}
}

// What was made while the host's clock was years ahead is not young for years.
func TestClockSetBack(t *testing.T) {
	e := newEngine(t)
	ep := e.run(e.user("blue"), "web")
	e.rig.now = e.rig.now.Add(-50 * 8766 * time.Hour)
	e.rig.reopen()
	e.rig.now = e.rig.now.Add(creationTime + time.Second)
	got, _ := e.rig.core.localEndpoint(ep)
	if age := e.rig.now.Sub(got.Created); age < settling {
		t.Errorf("the endpoint's age is %s", age)
	}
	for _, n := range e.rig.core.local.networks {
		if age := e.rig.now.Sub(n.Created); age < creationTime {
			t.Errorf("the network's age is %s", age)
		}
	}
}

// Running containers get the MTU that fits the narrowest underlay, as hosts come and go.
func TestMTUFollows(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	ep := e.run(id, "web")
	_, err := e.rig.Join(context.Background(), &network.JoinRequest{NetworkID: id, EndpointID: ep, SandboxKey: "/run/netns/web"})
	check(t, err)
	set := map[string]int{}
	node := cluster.Node{ID: self, VTEP: netip.MustParseAddr("192.0.2.1")}
	for _, c := range []struct{ underlay, want int }{{9000, 8950}, {1400, 1350}, {1500, 1450}} {
		node.MTU, e.rig.core.cfg.MTU = c.underlay, c.underlay
		_, err := e.rig.replica.Update(func(tx *replica.Tx) error { return tx.Put(node) })
		check(t, err)
		if !e.rig.mirror.fitMTUs(e.rig.replica.Snapshot(), set) || !strings.Contains(e.rig.machine.String(), fmt.Sprintf("mtu %d", c.want)) {
			t.Fatalf("underlay %d: want MTU %d, the machine has\n%s", c.underlay, c.want, e.rig.machine)
		}
	}
	_, err = e.rig.Leave(context.Background(), &network.LeaveRequest{NetworkID: id, EndpointID: ep})
	check(t, err)
	if !e.rig.mirror.fitMTUs(e.rig.replica.Snapshot(), set) || len(set) != 0 {
		t.Errorf("after it has left: %v", set)
	}
}
