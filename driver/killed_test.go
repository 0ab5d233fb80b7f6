package driver

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	dockernet "github.com/docker/docker/api/types/network"
	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store/storetest"
)

// day is what Docker does on a host: two networks and three containers come, one of the
// networks and all containers but one go. It ends at the first call that fails.
func (e *engine) day() error {
	ctx := context.Background()
	id, err := e.create(dockernet.CreateRequest{Name: "blue"})
	if err != nil {
		return err
	}
	if _, err := e.rig.mirror.look(ctx); err != nil {
		return err
	}
	web, err := e.start(id, "web")
	if err != nil {
		return err
	}
	if _, err := e.start(id, "db"); err != nil {
		return err
	}
	if _, err := e.rig.mirror.look(ctx); err != nil {
		return err
	}
	green, err := e.create(dockernet.CreateRequest{Name: "green", CreateOptions: dockernet.CreateOptions{
		IPAM: &dockernet.IPAM{Config: []dockernet.IPAMConfig{{Subnet: "10.7.0.0/24", Gateway: "10.7.0.9"}}},
	}})
	if err != nil {
		return err
	}
	job, err := e.start(green, "job") // its name is not known yet
	if err != nil {
		return err
	}
	if _, err := e.rig.mirror.look(ctx); err != nil {
		return err
	}
	if err := e.end(id, "web", web); err != nil {
		return err
	}
	if err := e.end(green, "job", job); err != nil {
		return err
	}
	if _, err := e.rig.mirror.look(ctx); err != nil {
		return err
	}
	if err := e.delete(green); err != nil {
		return err
	}
	_, err = e.rig.mirror.look(ctx)
	return err
}

// end is docker rm -f. Docker has neither the container nor its endpoint afterwards, whatever
// the driver says of it.
func (e *engine) end(networkID, name, endpoint string) error {
	ctx := context.Background()
	addr := e.rig.core.local.endpoints[endpoint].Addr
	e.rm(name)
	if _, err := e.rig.Leave(ctx, &network.LeaveRequest{NetworkID: networkID, EndpointID: endpoint}); err != nil {
		return err
	}
	if _, err := e.rig.DeleteEndpoint(ctx, &network.DeleteEndpointRequest{NetworkID: networkID, EndpointID: endpoint}); err != nil {
		return err
	}
	return e.rig.core.alloc.Release(addr)
}

// delete is docker network rm, after which Docker still has a network that the driver does not
// let go.
func (e *engine) delete(id string) error {
	e.mu.Lock()
	kept := e.networks[id]
	delete(e.networks, id)
	e.mu.Unlock()
	_, err := e.rig.DeleteNetwork(context.Background(), &network.DeleteNetworkRequest{NetworkID: id})
	if err != nil {
		e.mu.Lock()
		e.networks[id], e.undeleted = kept, id
		e.mu.Unlock()
	}
	return err
}

// settle lets all that waits for Docker's lists have its time.
func (e *engine) settle() {
	for range 6 {
		e.rig.now = e.rig.now.Add(e.rig.core.cfg.Grace + time.Second)
		e.look()
	}
}

// TestKilledAtEveryWrite ends an agent at each update of its state file during a day of Docker's,
// before the update is on the disk and after. Its Docker lives on, or the whole host has lost
// its power. The next agent has what Docker has, no more and no less, and all of it goes again.
func TestKilledAtEveryWrite(t *testing.T) {
	updates := 0
	for n, ended := 1, true; ended; n++ {
		for _, wrote := range []bool{false, true} {
			for _, power := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d, written %v, Docker too %v", n, wrote, power), func(t *testing.T) {
					ended = killedIn(t, storetest.Life{Ends: n, Wrote: wrote}, power)
				})
			}
		}
		if ended {
			updates = n
		}
	}
	if updates < 10 {
		t.Errorf("only %d updates: something else was ended", updates)
	}
	t.Logf("ended at %d updates", updates)
}

// killedIn reports whether the life did end.
func killedIn(t *testing.T, life storetest.Life, power bool) bool {
	e := newEngine(t)
	e.rig.life = life
	err := e.day()
	if !e.rig.life.Over {
		check(t, err)
		return false
	}
	if power { // Docker deletes the endpoints of containers that do not run any more as it starts
		*e.rig.machine = *newMachine()
		for _, c := range e.containers {
			for _, at := range c.NetworkSettings.Networks {
				at.EndpointID = ""
			}
		}
	}
	e.rig.restart()
	e.rig.core.cfg.DriverName = "grapevine:latest"
	e.look()
	e.settle()

	running := map[string]string{} // endpoints' networks
	for _, c := range e.containers {
		for _, at := range c.NetworkSettings.Networks {
			if at.EndpointID != "" {
				running[at.EndpointID] = at.NetworkID
			}
		}
	}
	for id, n := range e.rig.core.local.networks {
		if docker, ok := e.networks[id]; !ok || n.Name != docker.Name || n.Conflict != "" {
			t.Errorf("docker does not have network %+v", n)
		}
	}
	var leased []netip.Addr
	for _, l := range e.rig.core.alloc.Leases() {
		leased = append(leased, l.Addr)
	}
	for id, ep := range e.rig.core.local.endpoints {
		if running[id] != ep.Network || !ep.Joined || !slices.Contains(leased, ep.Addr) {
			t.Errorf("endpoint %+v; of docker's %v, leased %v", ep, running, leased)
		}
	}
	for id, n := range e.networks {
		// Of one that a user was deleting the driver may have nothing more: it is named.
		named := slices.ContainsFunc(e.rig.Orphans(), func(s Orphan) bool { return s.Network == n.Name })
		if _, ok := e.rig.core.local.networks[id]; !ok && (id != e.undeleted || !named) {
			t.Errorf("the driver does not have network %s; orphans %v", n.Name, e.rig.Orphans())
		}
	}
	if len(e.rig.core.local.endpoints) != len(running) || len(leased) != len(running) {
		t.Errorf("docker has the endpoints %v\nthe driver %v\nleases %v", running, e.rig.core.local.endpoints, leased)
	}
	said := 0
	for ep := range cluster.All[cluster.Endpoint](e.rig.replica.Snapshot()) {
		said++
		if running[ep.ID] == "" {
			t.Errorf("the cluster is told of %+v", ep)
		}
	}
	if said != len(running) {
		t.Errorf("the cluster is told of %d endpoints of %v", said, running)
	}

	for _, c := range e.containers {
		for _, at := range c.NetworkSettings.Networks {
			if at.EndpointID != "" {
				check(t, e.end(at.NetworkID, c.Names[0][1:], at.EndpointID))
			} else {
				e.rm(c.Names[0][1:])
			}
		}
	}
	for id := range e.networks {
		check(t, e.delete(id))
	}
	e.settle()
	e.want("")
	if got := e.rig.machine.String(); got != "" {
		t.Errorf("the machine still has\n%s", got)
	}
	if got := e.rig.core.alloc.Leases(); len(got) != 0 {
		t.Errorf("leases are left: %v", got)
	}
	if len(e.rig.core.local.networks)+len(e.rig.core.local.endpoints) != 0 {
		t.Errorf("left: %v, %v", e.rig.core.local.networks, e.rig.core.local.endpoints)
	}
	return true
}
