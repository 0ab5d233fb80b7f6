package driver

import (
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

// TestSwarmsTurn: where a task of Swarm's waits for its network, the one that this host had of the cluster gives way, and does not come
// back before Swarm's is there; unless a container is on it. What else wants a network that there is not is nothing of the kind.
func TestSwarmsTurn(t *testing.T) {
	const swarms, locals = "odruop57mhz597n6iadokafkc", "f05c87545207cf25fda4ab0684459d5c2502ac669bedb177bd25ac605a20d6df"
	self := cluster.NodeID("00000000000000aa")
	snap := replicatest.New(t, self, cluster.Network{Name: "shop", VNID: 5}, cluster.Subnet{Prefix: netip.MustParsePrefix("10.128.4.0/22"), Network: "shop"}).Snapshot()
	task := func(state, id, endpoint string) docker.Container {
		return docker.Container{ID: "c", Name: "web.1", State: state, Networks: []docker.Attachment{{Network: "shop", NetworkID: id, EndpointID: endpoint}}}
	}
	theirs := docker.Network{ID: swarms, Name: "shop", Driver: "grapevine", Swarm: true}
	app := docker.Container{ID: "d", Name: "app", State: "running", Networks: []docker.Attachment{{Network: "shop", NetworkID: locals, EndpointID: "e"}}}
	for what, c := range map[string]struct {
		containers  []docker.Container
		networks    []docker.Network
		gives, gets bool // the network away; it, where it is not here
	}{
		"nobody":                            {gets: true},
		"a task waits":                      {containers: []docker.Container{task("created", swarms, "")}, gives: true},
		"somebody is on it":                 {containers: []docker.Container{task("created", swarms, ""), app}},
		"the task has ended":                {containers: []docker.Container{task("exited", swarms, "")}, gets: true},
		"a container whose network is gone": {containers: []docker.Container{task("created", locals[:63]+"0", "")}, gets: true},
		"Swarm's is there":                  {containers: []docker.Container{task("created", swarms, "")}, networks: []docker.Network{theirs}},
	} {
		v := view{self: self, snap: snap, replicate: true, driver: "grapevine", containers: c.containers, networks: c.networks}
		if p := decide(v); (len(p.create) > 0) != c.gets && what != "somebody is on it" {
			t.Errorf("%s: it is made here: %v", what, p.create)
		}
		v.local = map[string]localNetwork{locals: {ID: locals, Name: "shop", Learnt: true, Replica: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.128.4.0/22")}, Gateways: []netip.Addr{netip.MustParseAddr("10.128.4.1")}}}
		v.networks = append(v.networks, docker.Network{ID: locals, Name: "shop", Driver: "grapevine"})
		if p := decide(v); (len(p.remove) > 0) != c.gives {
			t.Errorf("%s: it is removed here: %v", what, p.remove)
		}
	}
}
