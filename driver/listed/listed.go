// Package listed is networks and endpoints as people list them: what the cluster knows, and what this host's Docker has of it.
package listed

import (
	"cmp"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver/ports"
)

// Desk is where people list them.
type Desk struct {
	Self     cluster.NodeID
	Snapshot func() *cluster.Snapshot
	// Note adds what is known of networks beside their records.
	Note func([]api.Network, *cluster.Snapshot) []api.Network
	// Encryption is how what a network sends to other hosts is encrypted.
	Encryption func(encrypted bool) string
	// Here are the names of the networks that this host's Docker has, and Published the ports that its containers have by -p, by endpoint.
	// Both are empty on a host without Docker.
	Here      func() map[string]bool
	Published func() map[string][]ports.Binding
}

// Networks are all networks.
func (d Desk) Networks() []api.Network {
	snap := d.Snapshot()
	list, here := d.Note(view.Networks(snap), snap), d.Here()
	for i, n := range list {
		list[i].Encryption, list[i].Here = d.Encryption(n.Encrypted), here[n.Name]
	}
	return list
}

// Endpoints are all endpoints. Of published ports a host knows its own.
func (d Desk) Endpoints() []api.Endpoint {
	snap := d.Snapshot()
	list, published := view.Endpoints(snap), d.Published()
	for i, e := range list {
		where, _ := cluster.Get[cluster.Endpoint](snap, e.ID)
		list[i].Here = where.Host == d.Self
		slices.SortFunc(published[e.ID], func(a, b ports.Binding) int {
			return cmp.Or(cmp.Compare(a.To.Port(), b.To.Port()), a.Compare(b))
		})
		for _, b := range published[e.ID] {
			list[i].Ports = append(list[i].Ports, api.Port{Proto: b.Proto.String(), Host: b.Host, Container: b.To.Port(), More: b.More})
		}
	}
	return list
}
