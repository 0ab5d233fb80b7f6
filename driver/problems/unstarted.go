package problems

import (
	"fmt"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/driver"
)

// unstarted are the containers that Docker could not start by itself, since this agent was not there
// or refused.
func unstarted(d *driver.Driver) (list []api.Problem) {
	for _, u := range d.Unstarted() {
		list = append(list, api.Problem{
			Code: api.ContainerUnstarted,
			What: fmt.Sprintf("container %s was to start when Docker did, and cannot: %s", u.Container, u.Why),
			Do:   "the agent tries again each half minute at least; docker start " + u.Container + " tries at once",
		})
	}
	return list
}
