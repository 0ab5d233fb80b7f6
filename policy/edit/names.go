package edit

import (
	"fmt"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy/answers"
)

// full are this host's containers to which no more names are answered.
func (d Desk) full(snap *cluster.Snapshot) (list []api.Problem) {
	if d.Full == nil {
		return nil
	}
	full := d.Full()
	for e := range cluster.All[cluster.Endpoint](snap) {
		open, is := full[e.ID]
		if !is || e.Host != d.Self {
			continue
		}
		what := fmt.Sprintf("asks for new names too fast (%d at once can be opened, and %d a second after that)", answers.AtOnce, answers.PerSecond)
		if open > answers.Most/2 {
			what = fmt.Sprintf("has %d addresses open by name, of %d at most, each counted for each of its names", open, answers.Most)
		}
		list = append(list, api.Problem{
			Code: api.NamesFull,
			What: fmt.Sprintf("container %s on the network %s %s: it got no answer for a name within the last minute", e.Name, e.Network, what),
			Do:   "find out what it asks for (`grapevine capture " + e.Name + " --port 53`); one that needs so many is to have prefixes, or internet, in its policy",
		})
	}
	return list
}
