// Package problems is what is wrong with the networks and containers that this host's Docker has of
// grapevine, for people.
package problems

import (
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver"
)

// Of lists what the driver has found; nil: there is none yet.
func Of(d *driver.Driver, snap *cluster.Snapshot, self cluster.NodeID) []api.Problem {
	if d == nil {
		return nil
	}
	return slices.Concat(ports(d), strangers(d), outdated(d, snap, self), unstarted(d), untold(d, snap), borrowers(d))
}

// ports are published ports that are not ours alone.
func ports(d *driver.Driver) (list []api.Problem) {
	for _, p := range d.PortProblems() {
		list = append(list, api.Problem{Code: api.PortTaken, What: "a published port is another program's of this host as well: " + p, Do: "until then the container gets what comes for the port"})
	}
	return list
}
