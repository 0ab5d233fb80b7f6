package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/plugin"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/overlay/plane"
)

// openDriver makes the drivers and the server of Docker's calls.
func (a *Agent) openDriver() (err error) {
	name := a.cfg.DriverName
	if name == "auto" {
		name = "" // package driver's word for it
	}
	log := a.log.With("room", "driver")
	a.driver, err = driver.New(driver.Config{
		Self: a.self(), Replicate: a.cfg.Replicate, DriverName: name, PluginID: a.managed, Socket: a.cfg.PluginSocket,
		MTU: a.underlay.MTU, OpenPorts: plane.OpenPorts, Former: a.member.Renewed(), Settled: a.replica.Settled, Listed: a.plane.Guard().Listed, Now: time.Now, Log: log,
		Networks: a.reached.SetNetworks, Barred: a.reached.Barred,
	}, a.replica, a.alloc, a.plane.Overlay(), a.plane.Links(), a.plane.Ports(), a.names, a.docker, a.db)
	if err != nil {
		return err
	}
	a.plugin = plugin.New(a.log.With("room", "plugin"))
	ipam.NewDriver(a.alloc, a.driver.Keep, a.driver.MayLease).Register(a.plugin)
	a.driver.Register(a.plugin)
	return nil
}

func (a *Agent) driverProblems(ctx context.Context) []api.Problem {
	return slices.Concat(swarmProblems(a.askSwarm(ctx), a.cfg.VXLANPort), a.portProblems(), a.strangers(), a.outdated(), a.unstarted(), a.untold(), a.borrowers())
}

// strangers are what an earlier identity of this host has left in Docker.
func (a *Agent) strangers() (list []api.Problem) {
	if a.driver == nil {
		return nil
	}
	for _, s := range a.driver.Strangers() {
		list = append(list, strangerProblem(s))
	}
	return list
}

func strangerProblem(s driver.Stranger) api.Problem {
	const since, risk = "from before this host joined the cluster as a new one", "whose addresses may be other containers' by now: they reach nothing"
	names, args := strings.Join(s.Containers, ", "), strings.Join(s.Containers, " ")
	if s.Known {
		return api.Problem{
			Code: api.IdentityEarlier,
			What: fmt.Sprintf("containers on the network %s run with addresses %s (%s), which may be other containers' by now: they reach nothing", s.Network, since, names),
			Do:   "docker restart " + args + ": they get new addresses",
		}
	}
	p := api.Problem{
		Code: api.IdentityEarlier,
		What: fmt.Sprintf("Docker has the network %s %s", s.Network, since),
		Do:   "docker network rm " + s.Network + ": if the cluster has the network, it comes back by itself",
	}
	if len(s.Containers) > 0 {
		p.What += fmt.Sprintf(", and containers on it (%s), %s", names, risk)
		p.Do = fmt.Sprintf("docker rm -f %s; docker network rm %s; then make them anew on the network, which, if the cluster has it, comes back by itself", args, s.Network)
	}
	if s.Why != "" {
		p.What += "; it cannot be used here: " + s.Why
	}
	return p
}

// swarmPatience bounds the question for the swarm: a manager without a quorum takes long.
const swarmPatience = time.Second

// askSwarm returns this host's part in a Docker swarm; if Docker does not say, what it
// said last.
func (a *Agent) askSwarm(ctx context.Context) docker.Swarm {
	ctx, cancel := context.WithTimeout(ctx, swarmPatience)
	defer cancel()
	if a.docker != nil { // it is opened late
		if s, err := a.docker.Swarm(ctx); err == nil {
			a.swarm.Store(&s)
		}
	}
	if s := a.swarm.Load(); s != nil {
		return *s
	}
	return docker.Swarm{}
}

// swarmPort is the UDP port of a swarm's overlay networks, unless it was begun with
// --data-path-port.
const swarmPort = 4789

// swarmProblems are those of a host that is part of a Docker swarm as well. The kernel
// gives the port to who comes first, and the other one's containers get no interface, or
// reach no other host.
func swarmProblems(s docker.Swarm, port uint16) []api.Problem {
	said, theirs := "", s.VXLANPort
	if theirs == 0 {
		said, theirs = " (Docker tells the swarm's port on its managers only; this is taken for it)", swarmPort
	}
	if !s.Active || theirs != port {
		return nil
	}
	return []api.Problem{{
		Code: api.VXLANPortShared,
		What: fmt.Sprintf("Docker Swarm is active on this host, and its overlay networks use UDP port %d as well: only one of the two can have it%s", theirs, said),
		Do:   "set GRAPEVINE_VXLAN_PORT to another one, such as 4790, the same on every host",
	}}
}
