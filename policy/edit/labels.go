package edit

import (
	"fmt"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy/plain"
)

// misread are this host's containers whose labels say nothing that can be read: those that ran already, since no other starts.
func (d Desk) misread(snap *cluster.Snapshot) (list []api.Problem) {
	for e := range cluster.All[cluster.Endpoint](snap) {
		if e.Host != d.Self {
			continue
		}
		if err := plain.Check(e.Labels); err != nil {
			list = append(list, api.Problem{
				Code: api.PolicyUnread,
				What: fmt.Sprintf("container %s on the network %s lets nobody through: %v", e.Name, e.Network, err),
				Do:   "make the container again with a label that can be read (docs/use/policy.md)",
			})
		}
	}
	return list
}
