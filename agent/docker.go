package agent

import (
	"context"
	"path/filepath"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/driver/problems"
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
		Self: a.self(), Replicate: a.cfg.Replicate, DriverName: name, PluginID: a.installed.ID, Socket: a.cfg.PluginSocket,
		MTU: a.wire().MTU, OpenPorts: plane.OpenPorts, Former: a.member.Renewed(), Settled: a.replica.Settled, Listed: a.plane.Guard().Listed, Now: time.Now, Log: log,
		Networks: a.reached.SetNetworks, Barred: a.reached.Barred, CannotEncrypt: a.cannotEncrypt, Encap: a.cfg.Encap, Kept: docker.NewKept(filepath.Join(a.cfg.State, docker.RootFile)),
	}, a.replica, a.alloc, a.plane.Overlay(), a.plane.Links(), a.plane.Ports(), a.groups, a.docker, a.db)
	if err != nil {
		return err
	}
	a.plugin = plugin.New(a.log.With("room", "plugin"))
	ipam.NewDriver(a.alloc, a.driver.Reannounce, a.driver.MayLease).Register(a.plugin)
	a.driver.Register(a.plugin)
	return nil
}

// lookAtDocker has the driver look what it can make now.
func lookAtDocker(d *driver.Driver) {
	if d != nil {
		d.Look()
	}
}

func (a *Agent) driverProblems(ctx context.Context, snap *cluster.Snapshot) []api.Problem {
	return append(a.swarm.Problems(ctx, a.cfg.VXLANPort), problems.Of(a.driver, snap, a.self())...)
}
