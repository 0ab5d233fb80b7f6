package driver

import (
	"net/netip"
	"testing"
	"time"

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
		p := decide(v)
		if (len(p.remove) > 0) != c.gives {
			t.Errorf("%s: it is removed here: %v", what, p.remove)
		}
		if barred := what == "somebody is on it"; (len(p.barred) > 0) != barred || barred && (p.barred[0].Network != "shop" || p.barred[0].Containers[0] != "app" || p.barred[0].Tasks[0] != "web.1") {
			t.Errorf("%s: %+v is said to be in the way", what, p.barred)
		}
	}
}

// TestBarred: a task that waits is said to when it has waited for a while, however often it was looked at.
func TestBarred(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	var d bars
	for range 3 {
		d.note([]Barred{{Network: "shop", since: at}})
		if list := d.lasting(at); len(list) > 0 {
			t.Fatalf("%v are said at once", list)
		}
		at = at.Add(time.Second)
	}
	d.note([]Barred{{Network: "shop", since: at}})
	if list := d.lasting(at); len(list) != 1 {
		t.Errorf("it waits, and %v are said", list)
	}
	d.note(nil)
	d.note([]Barred{{Network: "shop", since: at}})
	if list := d.lasting(at); len(list) > 0 {
		t.Errorf("another one waits, and %v are said at once", list)
	}
}
