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
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/service"
	"github.com/grapevine-net/grapevine/service/edit"
	"github.com/grapevine-net/grapevine/service/inside"
)

// lead makes what leads containers' connections to services, before the resolver tells anybody of these.
func (n *naming) lead(next *dns.Server) {
	n.services = inside.New(inside.Config{Source: n.replica, Hosts: n.serving, Next: next, Off: n.unserved != "", Log: n.log.With("room", "services")})
}

// serving is how a host stands, for the replicas that it has.
func (n *naming) serving(id cluster.NodeID) service.Standing {
	switch n.standing(id) {
	case names.Answers:
		return service.Answers
	case names.Doubtful:
		return service.Doubtful
	}
	return service.Gone
}

// desk is what people do with services here.
func (n *naming) desk(alloc *ipam.Allocator) edit.Desk {
	return edit.Desk{Name: n.host, Replica: n.replica, Addresses: alloc.ServiceAddresses, Published: driver.Published, Hosts: n.serving, Lacks: n.unserved, Reserved: n.reserved, Self: n.self, Heeds: n.heed.Heeds}
}

// problems says which containers' connections to services do not go where they should.
func (n *naming) problems(snap *cluster.Snapshot) []api.Problem {
	failed := n.services.Failed()
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
