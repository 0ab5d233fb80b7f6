package agent

import (
	"cmp"
	"context"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver/ports"
)

// endpoints answers GET /v1/endpoints. Of published ports a host knows its own.
func (a *Agent) endpoints(context.Context) ([]api.Endpoint, error) {
	snap := a.replica.Snapshot()
	list := view.Endpoints(snap)
	published := a.driver.Published()
	for i, e := range list {
		where, _ := cluster.Get[cluster.Endpoint](snap, e.ID)
		list[i].Here = where.Host == a.self()
		slices.SortFunc(published[e.ID], func(a, b ports.Binding) int {
			return cmp.Or(cmp.Compare(a.To.Port(), b.To.Port()), a.Compare(b))
		})
		for _, b := range published[e.ID] {
			list[i].Ports = append(list[i].Ports, api.Port{Proto: b.Proto.String(), Host: b.Host, Container: b.To.Port(), More: b.More})
		}
	}
	return list, nil
}

// portProblems are for status.
func (a *Agent) portProblems() (list []api.Problem) {
	if a.driver == nil {
		return nil
	}
	for _, p := range a.driver.PortProblems() {
		list = append(list, api.Problem{Code: api.PortTaken, What: "a published port is another program's of this host as well: " + p, Do: "until then the container gets what comes for the port"})
	}
	return list
}
