package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/dns"
	"github.com/grapevine-net/grapevine/dns/names"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/service"
	"github.com/grapevine-net/grapevine/service/edit"
	"github.com/grapevine-net/grapevine/service/inside"
)

// openServices finds out whether this kernel can lead containers' connections to services.
func (a *Agent) openServices() {
	if err := inside.Can(); err != nil {
		a.unserved = err.Error()
		a.log.Warn("names of services have their replicas' own addresses here", "error", err)
	}
}

// newServices makes what leads containers' connections to services, before names tells anybody of these.
func (a *Agent) newServices(next *dns.Server) *inside.Room {
	return inside.New(inside.Config{Source: a.replica, Hosts: a.serving, Next: next, Off: a.unserved != "", Log: a.log.With("room", "services")})
}

// serving is how a host stands, for the replicas that it has.
func (a *Agent) serving(id cluster.NodeID) service.Standing {
	switch a.standing(id) {
	case names.Answers:
		return service.Answers
	case names.Doubtful:
		return service.Doubtful
	}
	return service.Gone
}

// serviceDesk is what people do with services here.
func (a *Agent) serviceDesk() edit.Desk {
	return edit.Desk{Name: a.cfg.Name, Replica: a.replica, Addresses: a.alloc.ServiceAddresses, Published: driver.Published, Hosts: a.serving, Lacks: a.unserved}
}

// serviceProblems says which containers' connections to services do not go where they should.
func (a *Agent) serviceProblems(snap *cluster.Snapshot) []api.Problem {
	failed := a.services.Failed()
	if len(failed) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(failed))
	var who []string
	for _, id := range ids {
		if e, ok := cluster.Get[cluster.Endpoint](snap, id); ok && e.Name != "" {
			who = append(who, e.Name)
		}
	}
	return []api.Problem{{
		Code: api.ServicesFail,
		What: fmt.Sprintf("connections to services do not go where they should from %s: %s", strings.Join(who, ", "), failed[ids[0]]),
		Do:   "restart the container; one with NET_ADMIN may have changed its own rules (nft list ruleset, inside)",
	}}
}
