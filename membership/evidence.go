package membership

import (
	"fmt"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
)

// mayForget says whether this host believes that heir has forgotten dead: it has
// promised so, as every host that was there then has; or, where it was not asked,
// dead does not answer: gossip alone, where any host can say that another one is dead, is
// not enough.
func (m *Forgetter) mayForget(heir, dead cluster.NodeID) bool {
	if m.alloc == nil || m.gossip == nil {
		return false // later
	}
	return m.alloc.MayForget(heir, dead, func() bool {
		return !m.Answers(dead) && m.gossip.Silent(string(dead), m.placeOf(dead))
	})
}

// promisedAway says whether another host takes over, or took over, from dead.
func (m *Forgetter) promisedAway(dead cluster.NodeID) bool {
	return m.alloc != nil && m.alloc.PromisedAway(dead)
}

const suspectAdvice = "see `grapevine status` there; if it says that all is well, its agent is broken or its key is stolen: stop it for good and `grapevine forget` it"

// Suspicions names the hosts that say what is not theirs to say.
func (m *Forgetter) Suspicions(snap *cluster.Snapshot) (list []api.Problem) {
	add := func(format string, args ...any) {
		list = append(list, api.Problem{Code: api.HostSuspect, What: fmt.Sprintf(format, args...), Do: suspectAdvice})
	}
	for _, p := range m.gossip.Suspects() {
		add("%s", p)
	}
	said := map[string]bool{} // one of a kind is enough
	for _, d := range m.replica.Pending() {
		writer := hostName(snap, d.Version.Node)
		kind := fmt.Sprint(d.Key.Kind, writer)
		if said[kind] {
			continue
		}
		said[kind] = true
		switch d.Key.Kind {
		case cluster.KindClaim:
			add("host %s gives %s away, which is not its own: host %s owns it, as far as is known here", writer, d.Key.ID, hostName(snap, d.Owner))
		case cluster.KindNode:
			add("host %s says that host %s is forgotten, which is alive and which this host was not asked about", writer, hostName(snap, cluster.NodeID(d.Key.ID)))
		default:
			add("host %s deletes %s, which belongs to another host that is not forgotten", writer, d.Key)
		}
	}
	return list
}

// hostName is a host's name and ID, for people.
func hostName(snap *cluster.Snapshot, id cluster.NodeID) string {
	if n, ok := cluster.Get[cluster.Node](snap, string(id)); ok && n.Name != "" {
		return fmt.Sprintf("%s (%s)", n.Name, id)
	}
	return string(id)
}
