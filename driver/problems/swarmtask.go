package problems

import (
	"fmt"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/driver"
)

// barred are tasks of Swarm's that wait for a network which Docker cannot make.
func barred(d *driver.Driver) (list []api.Problem) {
	for _, b := range d.Barred() {
		list = append(list, api.Problem{
			Code: api.SwarmBarred,
			What: fmt.Sprintf("Swarm's tasks on this host wait for network %s (%s), and dockerd tries without a pause: containers are on the one of that name which was here before (%s), and Docker makes no second one",
				b.Network, strings.Join(b.Tasks, ", "), strings.Join(b.Containers, ", ")),
			Do: fmt.Sprintf("remove these containers here, or `docker network disconnect %s` them: Swarm's network comes within a second or two, and they can be put on that one", b.Network),
		})
	}
	return list
}
