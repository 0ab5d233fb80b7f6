package agent

import (
	"fmt"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/driver"
)

// untold are aliases of this host's containers that the other hosts are not told.
func (a *Agent) untold() (list []api.Problem) {
	if a.driver == nil {
		return nil
	}
	for _, u := range a.driver.Untold() {
		list = append(list, untoldProblem(u))
	}
	return list
}

func untoldProblem(u driver.Untold) api.Problem {
	const shown = 3
	names := u.Aliases[:min(shown, len(u.Aliases))]
	what := fmt.Sprintf("%q", names[0])
	for _, n := range names[1:] {
		what += fmt.Sprintf(", %q", n)
	}
	if more := len(u.Aliases) - len(names); more > 0 {
		what += fmt.Sprintf(" and %d more", more)
	}
	return api.Problem{
		What: fmt.Sprintf("container %s has aliases on the network %s that the other hosts do not know: %s", u.Container, u.Network, what),
		Do:   "give it fewer or shorter ones, of characters that can be printed: those of one container on one network may have 28 kB",
	}
}
