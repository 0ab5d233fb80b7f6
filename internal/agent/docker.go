package agent

import (
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/internal/ovs"
	"github.com/grapevine-net/grapevine/internal/plugin"
	"github.com/grapevine-net/grapevine/ipam"
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
		MTU: a.underlay.MTU, OpenPorts: openPorts, Now: time.Now, Log: log,
	}, a.replica, a.alloc, a.vswitch.overlay, a.vswitch.links(), hostPorts{&a.vswitch.held, a.vswitch.nat, log}, a.names, a.docker, a.db)
	if err != nil {
		return err
	}
	a.plugin = plugin.New(a.log.With("room", "plugin"))
	ipam.NewDriver(a.alloc).Register(a.plugin)
	a.driver.Register(a.plugin)
	return nil
}

func (a *Agent) driverProblems() []api.Problem { return a.portProblems() }

// links makes containers' interfaces as this host's datapath wants them.
func (v *vswitch) links() driver.Links {
	if v.bridge.Datapath == ovs.Kernel {
		return driver.HostLinks{}
	}
	return userspaceLinks{tso: v.embedded != nil && v.embedded.UserspaceTSO}
}
