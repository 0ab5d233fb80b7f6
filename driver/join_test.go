package driver

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/docker/go-plugins-helpers/network"
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
	e.rig.local, err = openLocal(e.rig.local.db)
	check(t, err)
	e.rig.restore(context.Background())
	if !inside() {
		t.Fatalf("restored, and the machine has\n%s", e.rig.machine)
	}
	_, err = e.rig.Leave(context.Background(), &network.LeaveRequest{NetworkID: id, EndpointID: ep})
	check(t, err)
	if inside() {
		t.Fatal("the container has left, the resolver has not")
	}
	e.rig.restore(context.Background())
	if inside() {
		t.Fatal("the resolver is back where the container has left")
	}
}
