package agent

import (
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/egress/edit"
	"github.com/grapevine-net/grapevine/egress/hold"
)

// leaving is what this host does about the addresses by which networks reach the outside.
type leaving struct{ agent *Agent }

// keeper makes what holds them here.
func (l leaving) keeper() *hold.Keeper {
	a := l.agent
	return hold.New(hold.Config{Self: a.self(), Replica: a.replica, Alive: a.naming.hosts.Alive, Hear: a.naming.hosts.Heard, Routed: a.announcer.Routed, Log: a.log.With("room", "egress")})
}

// desk is what people do with them here.
func (l leaving) desk() edit.Desk {
	a := l.agent
	return edit.Desk{Self: a.self(), Name: a.cfg.Name, Replica: a.replica, Alive: a.naming.hosts.Alive, Hear: a.naming.hosts.Heard, Notes: a.egress.Notes, Published: driver.Published}
}
