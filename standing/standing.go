// Package standing says how the other hosts stand, for who leads to their containers: whether they answer, are in doubt, or are gone;
// and how soon that has to be known.
package standing

import (
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/dns/names"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/service"
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

// Of is how a host stands, for the names of its containers: gone if it answered
// earlier, or, once all have had the time to, if it does not.
func (h Hosts) Of(id cluster.NodeID) names.Standing {
	if id == h.Self {
		return names.Answers
	}
	m, known := h.Gossip.Member(string(id))
	return standingOf(m, known, time.Since(h.Started) > unmetGrace)
}

// Alive reports whether a host answers, without doubt.
func (h Hosts) Alive(id cluster.NodeID) bool { return h.Of(id) == names.Answers }

// Heard reports whether one has answered since this process was last stalled, and whether that is known.
func (h Hosts) Heard(id cluster.NodeID) (heard, known bool) {
	if id == h.Self {
		return true, true
	}
	return h.Gossip.Heard(string(id))
}

// Serving is how a host stands, for the replicas of services that it has.
func (h Hosts) Serving(id cluster.NodeID) service.Standing {
	switch h.Of(id) {
	case names.Answers:
		return service.Answers
	case names.Doubtful:
		return service.Doubtful
	}
	return service.Gone
}

// standingOf is the standing of a member, if it is known; late: all have had the time to answer.
func standingOf(m gossip.Member, known, late bool) names.Standing {
	switch met := known && m.Name != ""; {
	case known && m.State == gossip.Alive && m.Doubtful:
		return names.Doubtful
	case known && m.State == gossip.Alive, !met && !late:
		return names.Answers
	}
	return names.Gone
}
