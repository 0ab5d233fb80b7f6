package agent

import (
	"fmt"

	"github.com/grapevine-net/grapevine/api"
)

// unstarted are the containers that Docker could not start by itself, since this agent was not there
// or refused.
func (a *Agent) unstarted() (list []api.Problem) {
	if a.driver == nil {
		return nil
	}
	for _, u := range a.driver.Unstarted() {
		list = append(list, api.Problem{
			Code: api.ContainerUnstarted,
			What: fmt.Sprintf("container %s was to start when Docker did, and cannot: %s", u.Container, u.Why),
			Do:   "the agent tries again each half minute at least; docker start " + u.Container + " tries at once",
		})
	}
	return list
}
