// Package standing says how the other hosts stand, for who leads to their containers: whether they answer, are in doubt, or are gone;
// and how soon that has to be known.
package standing

import (
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
)

// unmetGrace is how long after the agent's start a host that gossip has not met
// yet counts as alive: the names in its snapshot are of use at once.
const unmetGrace = 15 * time.Second

// Hosts are all hosts, as this one sees them.
type Hosts struct {
	Self    cluster.NodeID
	Started time.Time // this host's agent
	Gossip  *gossip.Gossip
}

// Of is how a host stands, for the names of its containers and for replicas of services there: gone if it answered
// earlier, or, once all have had the time to, if it does not.
func (h Hosts) Of(id cluster.NodeID) cluster.Standing {
	if id == h.Self {
		return cluster.Answers
	}
	m, known := h.Gossip.Member(string(id))
	return standingOf(m, known, time.Since(h.Started) > unmetGrace)
}

// Alive reports whether a host answers, without doubt.
func (h Hosts) Alive(id cluster.NodeID) bool { return h.Of(id) == cluster.Answers }

// Heard reports whether one has answered since this process was last stalled, and whether that is known.
func (h Hosts) Heard(id cluster.NodeID) (heard, known bool) {
	if id == h.Self {
		return true, true
	}
	return h.Gossip.Heard(string(id))
}

// standingOf is the standing of a member, if it is known; late: all have had the time to answer.
func standingOf(m gossip.Member, known, late bool) cluster.Standing {
	switch met := known && m.Name != ""; {
	case known && m.State == gossip.Alive && m.Doubtful:
		return cluster.Doubtful
	case known && m.State == gossip.Alive, !met && !late:
		return cluster.Answers
	}
	return cluster.Gone
}
