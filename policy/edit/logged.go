package edit

import (
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
)

// Logged judges connections that were seen on this host, and returns those that a policy wants logged, and
// those that a policy which is only tried would deny.
func (d Desk) Logged(seen []api.Connection) []api.LoggedConnection {
	snap := d.Replica.Snapshot()
	list := append(view.Logged(snap, d.Self, d.told(), hosts(snap), seen), view.Tried(snap, d.Self, d.told(), hosts(snap), seen)...)
	slices.SortStableFunc(list, func(a, b api.LoggedConnection) int { return a.Time.Compare(b.Time) })
	return list
}
