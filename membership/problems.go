package membership

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// Problems are those of this host's place in its cluster.
func (m *Member) Problems(snap *cluster.Snapshot) (list []api.Problem) {
	add := func(code api.Code, do, format string, args ...any) {
		list = append(list, api.Problem{Code: code, What: fmt.Sprintf(format, args...), Do: do})
	}
	switch err := m.replica.Trouble(); {
	case m.alloc.Leaving():
		add(api.LeaveHalf, "run `grapevine leave` again; to stay, restart the agent. Until then this host makes no networks and hands out no addresses",
			"this host is leaving its cluster, and `grapevine leave` has not come to its end")
	case errors.Is(err, cluster.ErrForgotten):
		if why := m.Rejoiner.spent.Load(); why != nil {
			add(api.HostForgotten, "this host hands out nothing until then, and then joins as a new one by itself", "the cluster has forgotten this host, and its state cannot be set aside: %v", *why)
			break
		}
		if v := m.Rejoiner.poll.Load(); v != nil && !v.proven() {
			list = append(list, v.problem(snap, m.cfg.State))
			break
		}
		add(api.HostForgotten, "wait some seconds: it sets its state aside and joins as a new host", "the cluster has forgotten this host")
	case err != nil:
		add(api.StateOld, "stop the agent, `grapevine forget` this host on another one, and start it again: it joins as a new host",
			"this host's state is older than what the others know of it: %v", err)
	}
	if m.Quarantine.unproven.Load() && m.replica.Trouble() == nil {
		add(api.StateUnproven, "start the hosts that do not answer; `grapevine forget`, on another host, those that are gone for good. If there is none, or all were restored, nobody can say: stop the agent, move "+m.cfg.State+" away, and `grapevine restore --alone` on one of them. Until then this host hands out nothing",
			"this host was restored from a backup, or its state file was damaged, and it waits for every other host to say that nothing is missing in it")
	}
	if at, ok := m.gossip.Clone(); ok {
		add(api.HostTwice, "one of the two is a copy of the other: stop that and remove "+m.cfg.State+" there. Until then neither hands out anything",
			"the host at %s has this host's ID %s", at, m.id.Node)
	}
	if what := m.waitsFor(snap); what != "" {
		do := fmt.Sprintf("start the agent there, and check that port %d is open for TCP and UDP between the hosts", m.cfg.Port)
		if len(m.gossip.Strangers()) > 0 {
			do = "give this host the cluster's gossip key, as said below"
		}
		add(api.ClusterWaits, do, "%s", what)
	}
	return list
}

// Refused are those that gossip keeps out, and why.
func (m *Member) Refused() (list []api.Problem) {
	for _, p := range m.gossip.Problems() {
		list = append(list, api.Problem{Code: api.GossipRefused, What: p, Do: "until then the two hosts' containers do not reach each other"})
	}
	return append(list, m.foreignProblems(len(m.gossip.Alive())+1)...)
}

// RefusedCounts count what gossip refused, but for what is part of every start, and the records that were.
func (m *Member) RefusedCounts() map[string]uint64 {
	counts := m.gossip.Stats()
	delete(counts, gossip.RefusedNoCluster)
	if counts == nil {
		counts = map[string]uint64{}
	}
	maps.Copy(counts, m.replica.Refused())
	return counts
}

// Alive are the addresses at which the hosts gossip that answer.
func Alive(nodes []api.Node) (at []netip.Addr) {
	for _, n := range nodes {
		if n.Alive {
			at = append(at, n.Gossip.Addr())
		}
	}
	return at
}

// waitsFor says what keeps this host from handing out addresses, "" if nothing does.
func (m *Member) waitsFor(snap *cluster.Snapshot) string {
	switch {
	case m.gossip.ClusterID() == "" && m.role == identity.Seed:
		return "this host is about to begin a cluster, and first asks the hosts of GRAPEVINE_JOIN for one, which takes a few seconds"
	case m.gossip.ClusterID() == "":
		return fmt.Sprintf("this host waits for a cluster: no host of GRAPEVINE_JOIN (%s) has let it in yet", strings.Join(joinList(m.cfg.Join), ", "))
	case snap.Ring().Len() == 0:
		return "this host waits to learn who owns which addresses from the hosts of its cluster"
	}
	return ""
}
