package agent

import (
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/dns/names"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/egress/edit"
	"github.com/grapevine-net/grapevine/egress/hold"
)

// leaving is what this host does about the addresses by which networks reach the outside.
type leaving struct{ agent *Agent }

// keeper makes what holds them here.
func (l leaving) keeper() *hold.Keeper {
	a := l.agent
	return hold.New(hold.Config{Self: a.self(), Replica: a.replica, Alive: l.alive, Hear: l.hear, Routed: a.announcer.routed, Log: a.log.With("room", "egress")})
}

// alive reports whether a host answers, without doubt.
func (l leaving) alive(id cluster.NodeID) bool { return l.agent.naming.standing(id) == names.Answers }

// hear reports whether one has answered since this process was last stalled, and whether that is known.
func (l leaving) hear(id cluster.NodeID) (heard, known bool) {
	if id == l.agent.self() {
		return true, true
	}
	return l.agent.gossip.Heard(string(id))
}

// desk is what people do with them here.
func (l leaving) desk() edit.Desk {
	a := l.agent
	return edit.Desk{Self: a.self(), Name: a.cfg.Name, Replica: a.replica, Alive: l.alive, Hear: l.hear, Notes: a.egress.Notes, Published: driver.Published}
}
