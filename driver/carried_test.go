package driver

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	dockernet "github.com/docker/docker/api/types/network"
	dockeripam "github.com/docker/go-plugins-helpers/ipam"
	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/replica"
)

// The agent is a new host's, and Docker, which answers nobody yet, starts the containers that it has:
// their networks go on by what the host before had noted, whether the cluster has them or not.
func TestFormerNetworksAtBoot(t *testing.T) {
	e := newEngine(t)
	ids := map[string]string{}
	for name, subnet := range map[string]string{"blue": "10.129.0.0/24", "red": "10.129.2.0/24", "gone": "10.129.3.0/24"} {
		id, err := e.create(dockernet.CreateRequest{Name: name, CreateOptions: dockernet.CreateOptions{
			Labels: map[string]string{"l": name}, IPAM: &dockernet.IPAM{Config: []dockernet.IPAMConfig{{Subnet: subnet}}},
		}})
		check(t, err)
		ids[name] = id
	}
	e.look()
	had, err := CarriedNetworks(e.rig.core.local.db)
	check(t, err)
	e.write(func(tx *replica.Tx) { retire(tx, "red"); retire(tx, "gone") }) // while this host was off
	for id := range e.rig.core.local.networks {
		check(t, e.rig.core.local.dropNetwork(id))
	}
	check(t, had.Save(e.rig.core.local.db))
	e.rig.reopen()
	e.rig.core.cfg.Renewed = true
	for name, subnet := range map[string]string{"blue": "10.129.0.0/24", "red": "10.129.2.0/24"} {
		id := ipam.PoolID{Prefix: netip.MustParsePrefix(subnet)}
		addr, err := e.rig.ipam.RequestAddress(context.Background(), &dockeripam.RequestAddressRequest{PoolID: id.String()})
		check(t, err)
		_, err = e.rig.CreateEndpoint(context.Background(), &network.CreateEndpointRequest{
			NetworkID: ids[name], EndpointID: strings.Repeat(name[:1], 64), Interface: &network.EndpointInterface{Address: addr.Address},
		})
		check(t, err)
		if rec := e.record(name); rec.Labels["l"] != name {
			t.Errorf("%s is %+v", name, rec)
		}
	}
	if n := e.rig.core.local.networks[ids["red"]]; n.Name != "red" || !n.Learnt {
		t.Errorf("red is %+v", n)
	}
	e.rig.core.cfg.DriverName = "grapevine:latest"
	delete(e.networks, ids["gone"])
	e.look()
	if again, err := CarriedNetworks(e.rig.core.local.db); err != nil || len(e.rig.core.local.carried) != 0 || len(again.networks) != 2 {
		t.Errorf("left of what was: %v, %v, %v", e.rig.core.local.carried, again, err)
	}
}

// What the cluster has goes on before anybody asks for it.
func TestFormerNetworksTheClusterHas(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	e.look()
	had, err := CarriedNetworks(e.rig.core.local.db)
	check(t, err)
	check(t, e.rig.core.local.dropNetwork(id))
	check(t, had.Save(e.rig.core.local.db))
	e.rig.reopen()
	e.rig.networks.takeUpKnown(context.Background())
	if n := e.rig.core.local.networks[id]; n.Name != "blue" || !n.Learnt {
		t.Errorf("it is %+v", n)
	}
	if _, live := cluster.Get[cluster.Network](e.rig.replica.Snapshot(), "blue"); !live {
		t.Error("the cluster has it no more")
	}
}
