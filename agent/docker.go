package agent

import (
	"context"
	"path/filepath"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/driver/problems"
	"github.com/grapevine-net/grapevine/driver/publish"
	"github.com/grapevine-net/grapevine/edge"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/plugin"
	"github.com/grapevine-net/grapevine/ipam"
)

// engineOf is this host's Docker; nil: it has none.
func engineOf(cfg config.Config) *docker.Client {
	if cfg.Edge() {
		return nil
	}
	return docker.New(cfg.Docker)
}

// openEdge is in the place of openDriver on a host without Docker: what would wait for Docker's word has it.
func (a *Agent) openEdge() {
	a.reached.SetNetworks(nil, nil)
	a.plane.Guard().Listed(nil)
	a.edge = edge.New(edge.Config{Settings: a.cfg, Snapshot: a.replica.Snapshot, Resolver: a.naming.resolver, Attached: a.member.Attached})
}

// openDriver makes the drivers and the server of Docker's calls.
func (a *Agent) openDriver() (err error) {
	name := a.cfg.DriverName
	if name == "auto" {
		name = "" // package driver's word for it
	}
	log := a.log.With("room", "driver")
	ports := publish.Ports{Exposed: a.exposes.Holder, Log: a.log.With("room", "overlay")}
	ports.Sockets, ports.NAT, ports.Proxy = a.plane.Published()
	a.driver, err = driver.New(driver.Config{
		Self: a.self(), Replicate: a.cfg.Replicate, DriverName: name, PluginID: a.installed.ID, Socket: a.cfg.PluginSocket,
		MTU: a.wire().MTU, OpenPorts: publish.Open, Renewed: a.member.Renewed(), Settled: a.replica.Settled, Listed: a.plane.Guard().Listed, Now: time.Now, Log: log,
		Answered: a.naming.resolver.Await, Networks: a.reached.SetNetworks, Barred: a.reached.Barred, CannotEncrypt: a.cannotEncrypt, Encap: a.cfg.Encap, Kept: docker.NewKept(filepath.Join(a.cfg.State, docker.RootFile)),
	}, a.replica, a.alloc, a.plane.Overlay(), a.plane.Links(), ports, a.groups, a.docker, a.db)
	if err != nil {
		return err
	}
	a.plugin = plugin.New(a.log.With("room", "plugin"))
	ipam.NewDriver(a.alloc, a.driver.Reannounce, a.driver.MayLease).Register(a.plugin)
	a.driver.Register(a.plugin)
	return nil
}

func (a *Agent) driverProblems(ctx context.Context, snap *cluster.Snapshot) []api.Problem {
	return append(a.swarm.Problems(ctx, a.cfg.VXLANPort), problems.Of(a.driver, snap, a.self())...)
}
