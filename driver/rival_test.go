package driver

import (
	"strings"
	"testing"
	"time"

	dockernet "github.com/docker/docker/api/types/network"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
)

// A network with the subnet of another one that this host has is refused; where that is not
// known in time it takes nothing from that one: neither the network, nor its name, nor its
// containers.
func TestRival(t *testing.T) {
	e := newEngine(t)
	var rivals []docker.Network
	e.rig.core.cfg.Networks = func(_, r []docker.Network) { rivals = r }
	e.red(false)
	e.look()
	e.look()
	red, made := e.named("red")
	if !made {
		t.Fatal("the network of the cluster is not here")
	}
	two := func() (string, error) {
		return e.create(dockernet.CreateRequest{Name: "two", CreateOptions: dockernet.CreateOptions{IPAM: &dockernet.IPAM{
			Config: []dockernet.IPAMConfig{{Subnet: red.IPAM.Config[0].Subnet}},
		}}})
	}
	id, err := two() // at the same moment, so that it may be the same network
	check(t, err)
	ep := e.run(id, "web")
	e.look()
	if len(rivals) != 1 || rivals[0].Name != "two" { // who is to say so hears it with the look that finds it: the next one may be in half a minute
		t.Errorf("rivals are %v at first", rivals)
	}
	e.look()
	e.look()
	if n, there := e.named("red"); !there || n.ID != red.ID {
		t.Errorf("the first network is %v, %v", n, there)
	}
	if n := e.rig.core.local.networks[id]; n.Conflict == "" || n.Name == "red" {
		t.Errorf("the second one is %+v", n)
	}
	if _, live := cluster.Get[cluster.Endpoint](e.rig.replica.Snapshot(), ep); live {
		t.Error("its container is one of the first network's still")
	}
	if len(rivals) != 1 || rivals[0].Name != "two" {
		t.Errorf("rivals are %v", rivals)
	}
	_, err = e.start(id, "another")
	if err == nil || !strings.Contains(err.Error(), "of network red, which is another one") {
		t.Errorf("a container of it: %v", err)
	}
	e.run(red.ID, "db") // the first one goes on
	e.rm("web")
	e.remove(id)
	e.look()
	if _, live := cluster.Get[cluster.Network](e.rig.replica.Snapshot(), "red"); !live {
		t.Error("its end took the first network away")
	}
	e.rig.now = e.rig.now.Add(time.Minute)
	if _, err := two(); err == nil || !strings.Contains(err.Error(), "is used by network red") {
		t.Errorf("with the subnet of a network that has been here: %v", err)
	}
}
