package agent

import (
	"context"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
)

// missedPatience is for how long gossip may be behind what the hosts of a name have proved.
const missedPatience = 15 * time.Second

// pickDead is pickHost for who is to be forgotten. Gossip may be behind for some seconds: a host that was set up
// anew is in the records before it was met, and the one before it counts as alive until it was missed. So hosts of
// one name are asked to prove that they are there, and gossip is waited for.
func (a *Agent) pickDead(ctx context.Context, nodes []api.Node, name string) (cluster.NodeID, error) {
	nodes, same := a.askNamesakes(ctx, nodes, name)
	id, err := pickHost(nodes, name)
	if err != nil || len(same) < 2 {
		return id, err
	}
	ctx, cancel := context.WithTimeout(ctx, missedPatience)
	defer cancel()
	for !a.agrees(same) {
		select {
		case <-ctx.Done():
			return id, nil // whoever decides says what is wrong
		case <-time.After(100 * time.Millisecond):
		}
	}
	return id, nil
}

// agrees reports whether gossip has of each host what it has proved.
func (a *Agent) agrees(nodes []api.Node) bool {
	for _, n := range nodes {
		if !n.Self && a.answers(cluster.NodeID(n.ID)) != n.Alive {
			return false
		}
	}
	return true
}

// askNamesakes returns nodes, and those called name, with what these have proved just now if they are several.
func (a *Agent) askNamesakes(ctx context.Context, nodes []api.Node, name string) (all, same []api.Node) {
	var at []int
	for i, n := range nodes {
		if n.Name == name {
			at = append(at, i)
		}
	}
	all = append(all, nodes...)
	if len(at) > 1 {
		var asks sync.WaitGroup
		for _, i := range at {
			asks.Go(func() { all[i].Alive = all[i].Self || a.present(ctx, cluster.NodeID(all[i].ID)) })
		}
		asks.Wait()
	}
	for _, i := range at {
		same = append(same, all[i])
	}
	return all, same
}
