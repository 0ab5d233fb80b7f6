package agent

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/gossip"
)

// setCommand is how one setting of an agent like this one is changed.
func (a *Agent) setCommand(ctx context.Context, setting string) string {
	if a.managed == "" {
		return "scripts/install-service " + setting
	}
	name := cmp.Or(a.driverName(ctx), "NAME") // who knows it puts it in
	return fmt.Sprintf("docker plugin disable -f %s; docker plugin set %s %s; docker plugin enable %s", name, name, setting, name)
}

// keyProblems are those of hosts that have another gossip key.
func (a *Agent) keyProblems(ctx context.Context) []api.Problem {
	strangers := a.gossip.Strangers()
	if len(strangers) == 0 {
		return nil
	}
	return strangerProblems(strangers, a.gossip.ClusterID() != "", a.cfg.Port, a.setCommand(ctx, "GRAPEVINE_KEY=KEY"), time.Now())
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
