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
	return slices.Concat(ports(d), orphans(d), outdated(d, snap, self), unstarted(d), namesakes(d), barred(d), refused(d), untold(d, snap), borrowers(d), unlimited(d))
}

// unlimited are containers that are not kept to their limits.
func unlimited(d *driver.Driver) (list []api.Problem) {
	for _, p := range d.Unlimited() {
		list = append(list, api.Problem{Code: api.LimitFails, What: "a container's bandwidth is not limited as it should be: " + p, Do: "`tc qdisc` in the container and on the host shows what is there; `modprobe sch_tbf` if the kernel has no token bucket, and `modprobe sch_netem` if it has no delay"})
	}
	return list
}

// ports are published ports that are not ours alone.
func ports(d *driver.Driver) (list []api.Problem) {
	for _, p := range d.PortProblems() {
		list = append(list, api.Problem{Code: api.PortTaken, What: "a published port is another program's of this host as well: " + p, Do: "until then the container gets what comes for the port"})
	}
	return list
}
