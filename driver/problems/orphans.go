package problems

import (
	"fmt"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/driver"
)

// orphans are what an earlier identity of this host has left in Docker.
func orphans(d *driver.Driver) (list []api.Problem) {
	for _, s := range d.Orphans() {
		list = append(list, orphanProblem(s))
	}
	return list
}

func orphanProblem(s driver.Orphan) api.Problem {
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
