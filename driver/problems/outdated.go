package problems

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver"
)

// outdated are networks that were made anew while this host's Docker, or another one's, has the one
// from before: since containers are on it, or nothing may be made there.
func outdated(d *driver.Driver, snap *cluster.Snapshot, self cluster.NodeID) (list []api.Problem) {
	for _, o := range d.Outdated() {
		list = append(list, outdatedHere(o))
	}
	return append(list, outdatedElsewhere(snap, self)...)
}

func outdatedHere(o driver.Outdated) api.Problem {
	p := api.Problem{Code: api.NetworkAnew, What: fmt.Sprintf("network %s was made anew on another host, and this host has the one from before: %s", o.Network, o.Why)}
	if len(o.Containers) == 0 {
		p.Do = fmt.Sprintf("docker network rm %s: the new one comes by itself, or, with GRAPEVINE_REPLICATE=off, is for you to create", o.Network)
		return p
	}
	p.What += ". Containers are on it: " + strings.Join(o.Containers, ", ")
	p.Do = fmt.Sprintf("docker rm -f %s (or docker compose down), and make them anew when the new network is here, a second later", strings.Join(o.Containers, " "))
	return p
}

// outdatedElsewhere names what other hosts' endpoints say, a problem for each network and host.
func outdatedElsewhere(snap *cluster.Snapshot, self cluster.NodeID) (list []api.Problem) {
	type place struct{ network, host string }
	containers := map[place][]string{}
	for e := range cluster.All[cluster.Endpoint](snap) {
		if e.Outdated && e.Host != self {
			n, _ := cluster.Get[cluster.Node](snap, string(e.Host))
			at := place{e.Network, n.Name}
			containers[at] = append(containers[at], e.Name)
		}
	}
	for at, names := range containers {
		slices.Sort(names)
		list = append(list, api.Problem{
			Code: api.NetworkAnew,
			What: fmt.Sprintf("network %s was made anew, and host %s has the one from before, since containers are on it there: %s", at.network, at.host, strings.Join(names, ", ")),
			Do:   fmt.Sprintf("on %s: docker rm -f %s (or docker compose down), and make them anew when the new network is there, a second later", at.host, strings.Join(names, " ")),
		})
	}
	slices.SortFunc(list, func(a, b api.Problem) int { return strings.Compare(a.What, b.What) })
	return list
}
