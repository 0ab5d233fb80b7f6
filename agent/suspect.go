package agent

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
)

// mayForget says whether this host believes that heir has forgotten dead: it has
// promised so, as every host that was there then has; or, where it was not asked,
// dead does not answer: gossip alone, where any host can say that another one is dead, is
// not enough.
func (a *Agent) mayForget(heir, dead cluster.NodeID) bool {
	if a.alloc == nil || a.gossip == nil {
		return false // later
	}
	return a.alloc.MayForget(heir, dead, func() bool {
		return !a.answers(dead) && a.gossip.Silent(string(dead), a.placeOf(dead))
	})
}

// present asks a host to prove that it is there.
func (a *Agent) present(ctx context.Context, id cluster.NodeID) bool {
	return a.gossip.Present(ctx, string(id), a.placeOf(id))
}

// placeOf is where a host says by its signed record that it is, invalid if it is not known.
func (a *Agent) placeOf(id cluster.NodeID) netip.AddrPort {
	n, _ := cluster.Get[cluster.Node](a.replica.Snapshot(), string(id))
	return n.Gossip
}

// promisedAway says whether another host takes over, or took over, from dead.
func (a *Agent) promisedAway(dead cluster.NodeID) bool {
	return a.alloc != nil && a.alloc.PromisedAway(dead)
}

const suspectAdvice = "see `grapevine status` there; if it says that all is well, its agent is broken or its key is stolen: stop it for good and `grapevine forget` it"

// suspicions names the hosts that say what is not theirs to say.
func (a *Agent) suspicions(snap *cluster.Snapshot) (list []api.Problem) {
	add := func(format string, args ...any) {
		list = append(list, api.Problem{What: fmt.Sprintf(format, args...), Do: suspectAdvice})
	}
	for _, p := range a.gossip.Suspects() {
		add("%s", p)
	}
	said := map[string]bool{} // one of a kind is enough
	for _, d := range a.replica.Doubts() {
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
