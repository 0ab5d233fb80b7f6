package driver

import (
	"net/netip"
	"slices"
	"testing"

	dockernet "github.com/docker/docker/api/types/network"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// A network of the cluster whose name another one of Docker's has here is named, and stands in nothing's way: containers
// of others get their routes.
func TestNamesake(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	e.look()
	check(t, e.rig.endpoints.setJoined(e.run(id, "web"), true, "/sandbox"))
	e.rig.now = e.rig.now.Add(settling)
	e.mu.Lock()
	e.networks["x"] = dockernet.Inspect{ID: "x", Name: "red", Driver: "bridge"}
	e.mu.Unlock()
	e.red(false)
	e.write(func(tx *replica.Tx) {
		_ = tx.Put(cluster.Subnet{Prefix: netip.MustParsePrefix("10.10.0.0/24"), Network: "blue", Gateway: netip.MustParseAddr("10.10.0.1"), Home: self})
	})
	e.look()
	if list := e.rig.Namesakes(); !slices.Equal(list, []Namesake{{"red", "bridge"}}) {
		t.Errorf("namesakes are %v", list)
	}
	if got := e.rig.machine.routes["/sandbox"]; len(got) != 1 {
		t.Errorf("routes are %v", got)
	}
	e.mu.Lock()
	delete(e.networks, "x")
	e.mu.Unlock()
	e.look()
	if n, there := e.named("red"); !there || n.Driver != "grapevine:latest" || len(e.rig.Namesakes()) > 0 {
		t.Errorf("it has gone, and there is %+v, and %v", n, e.rig.Namesakes())
	}
}
