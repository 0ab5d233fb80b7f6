package membership

import (
	"fmt"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/gossip"
)

// Strangers are the problems of hosts that have another gossip key; alone says that this host has never met another one
// and is not one that others join; set is how one sets a key on a host like this one.
func Strangers(g *gossip.Gossip, alone bool, port uint16, set func() string) []api.Problem {
	strangers := g.Strangers()
	if len(strangers) == 0 {
		return nil
	}
	return strangerProblems(strangers, g.ClusterID() != "" && !alone, port, set(), time.Now())
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
