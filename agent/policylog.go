package agent

import (
	"context"
	"sync"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/observe/audit"
)

// openLog makes what logs what policies say of connections.
func (p policing) openLog() {
	a := p.agent
	var mu sync.Mutex
	var of *cluster.Snapshot
	wanted := false
	a.audit = audit.New(audit.Config{
		Log: a.log,
		Wanted: func() bool {
			mu.Lock()
			defer mu.Unlock()
			if snap := a.replica.Snapshot(); snap != of {
				of, wanted = snap, view.Logs(snap)
			}
			return wanted
		},
		Seen:  func(ctx context.Context) (api.Traffic, error) { return a.traffic.Begun(ctx) },
		Judge: func(seen []api.Connection) []api.LoggedConnection { return p.desk().Logged(seen) },
	})
}
