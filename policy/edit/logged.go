package edit

import (
	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
)

// Logged judges connections that were seen on this host, and returns those that a policy wants logged.
func (d Desk) Logged(seen []api.Connection) []api.LoggedConnection {
	snap := d.Replica.Snapshot()
	return view.Logged(snap, d.Self, d.told(), hosts(snap), seen)
}
