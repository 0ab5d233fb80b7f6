package membership

import (
	"fmt"
	"net/netip"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
)

// mostNamed is how many hosts a join command names: enough that one is there.
const mostNamed = 5

// Hosts are those that a new host is told to join by, this one first, then others that are alive.
func (m *Joiner) Hosts() []string {
	at := []netip.AddrPort{m.gossip.Addr()}
	snap := m.replica.Snapshot()
	for _, id := range m.gossip.Alive() {
		if n, ok := cluster.Get[cluster.Node](snap, id); ok {
			at = append(at, n.Gossip)
		}
	}
	return named(at, m.cfg.Port)
}

// named are the first of them, without the port where it is the default.
func named(at []netip.AddrPort, port uint16) (list []string) {
	for _, a := range at[:min(len(at), mostNamed)] {
		if a.Port() == port {
			list = append(list, a.Addr().String())
		} else {
			list = append(list, a.String())
		}
	}
	return list
}

// Joined is what `grapevine join` says where there is nothing to do: of a host that is part of a cluster, or is about to be.
func (m *Joiner) Joined() api.Done {
	if id := m.gossip.ClusterID(); id != "" {
		return api.Done{Text: fmt.Sprintf("This host is part of cluster %s already. To move it to another one: `grapevine leave`, then start it with what `grapevine join-command` prints there.", id)}
	}
	return api.Done{Text: "This host joins already: `grapevine status` says what it waits for."}
}
