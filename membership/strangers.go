package membership

import (
	"fmt"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
)

// Strangers are the problems of hosts that have another gossip key; set is how one sets a key on a host like this one.
func (m *Member) Strangers(snap *cluster.Snapshot, set func() string) []api.Problem {
	strangers := m.gossip.Strangers()
	if len(strangers) == 0 {
		return nil
	}
	// Nobody joins a host without Docker; one that knows of others has their key.
	alone := m.cfg.Edge()
	for n := range cluster.All[cluster.Node](snap) {
		alone = alone && n.ID == m.Self()
	}
	return strangerProblems(strangers, m.gossip.ClusterID() != "" && !alone, m.cfg.Port, set(), time.Now())
}

// strangerProblems say who it is, since when, and what sets it right: on that host, if this one
// has a cluster, else here.
func strangerProblems(strangers []gossip.Stranger, member bool, port uint16, set string, now time.Time) (list []api.Problem) {
	for _, s := range strangers {
		since := fmt.Sprintf("since %s, last %s ago", s.Since.Local().Format("15:04:05"), now.Sub(s.Last).Round(time.Second))
		if member {
			list = append(list, api.Problem{
				Code: api.GossipKey,
				What: fmt.Sprintf("a host at %s is kept out, since it has another gossip key (%s)", s.Addr, since),
				Do:   fmt.Sprintf("if it is to be of this cluster, on that host: %s; the KEY is in what `grapevine join-command` prints here. If it is nobody's that you know, keep it from port %d", set, port),
			})
			continue
		}
		list = append(list, api.Problem{
			Code: api.GossipKey,
			What: fmt.Sprintf("the host at %s does not let this one in, which has another gossip key (%s)", s.Addr, since),
			Do:   fmt.Sprintf("here: %s; the KEY is in what `grapevine join-command` prints there", set),
		})
	}
	return list
}
