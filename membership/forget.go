package membership

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
)

// Forgetter forgets hosts that are gone for good, and judges what others say of that.
type Forgetter struct {
	*host
	quarantine *Quarantine
}

// Forget takes over from hosts that are gone for good.
func (m *Forgetter) Forget(ctx context.Context, r api.ForgetRequest) (api.Done, error) {
	nodes := m.Nodes(m.replica.Snapshot())
	var dead []cluster.NodeID
	for _, name := range r.Hosts {
		id, err := m.pickDead(ctx, nodes, name)
		if err != nil {
			return api.Done{}, err
		}
		dead = append(dead, id)
	}
	if len(dead) == 0 {
		return api.Done{}, &api.Error{Status: http.StatusBadRequest, Message: "no host is named: `grapevine nodes` lists them"}
	}
	if err := m.alloc.Takeover(ctx, dead...); err != nil {
		return api.Done{}, err
	}
	m.dropPeers(dead)
	return api.Done{Text: forgottenText(r.Hosts)}, nil
}

// dropPeers no longer dials hosts that are forgotten.
func (m *Forgetter) dropPeers(forgotten []cluster.NodeID) {
	for _, id := range forgotten {
		m.gossip.Forget(string(id))
	}
}

func forgottenText(hosts []string) string {
	they := "they"
	if len(hosts) == 1 {
		they = "it"
	}
	return fmt.Sprintf("Forgotten: %s. What %s owned is with whom it came from, or with this host.", strings.Join(hosts, ", "), they)
}

// missedPatience is for how long gossip may be behind what the hosts of a name have proved.
const missedPatience = 15 * time.Second

// pickDead is pickHost for who is to be forgotten. Gossip may be behind for some seconds: a host that was set up
// anew is in the records before it was met, and the one before it counts as alive until it was missed. So hosts of
// one name are asked to prove that they are there, and gossip is waited for.
func (m *Forgetter) pickDead(ctx context.Context, nodes []api.Node, name string) (cluster.NodeID, error) {
	nodes, same := m.askNamesakes(ctx, nodes, name)
	id, err := pickHost(nodes, name)
	if err != nil || len(same) < 2 {
		return id, err
	}
	ctx, cancel := context.WithTimeout(ctx, missedPatience)
	defer cancel()
	for !m.agrees(same) {
		select {
		case <-ctx.Done():
			return id, nil // whoever decides says what is wrong
		case <-time.After(100 * time.Millisecond):
		}
	}
	return id, nil
}

// agrees reports whether gossip has of each host what it has proved.
func (m *Forgetter) agrees(nodes []api.Node) bool {
	for _, n := range nodes {
		if !n.Self && m.Answers(cluster.NodeID(n.ID)) != n.Alive {
			return false
		}
	}
	return true
}

// askNamesakes returns nodes, and those called name, with what these have proved just now if they are several.
func (m *Forgetter) askNamesakes(ctx context.Context, nodes []api.Node, name string) (all, same []api.Node) {
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
			asks.Go(func() { all[i].Alive = all[i].Self || m.present(ctx, cluster.NodeID(all[i].ID)) })
		}
		asks.Wait()
	}
	for _, i := range at {
		same = append(same, all[i])
	}
	return all, same
}
