package problems

import (
	"fmt"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/driver"
)

// namesakes are networks of the cluster in whose place Docker has another one here.
func namesakes(d *driver.Driver) (list []api.Problem) {
	for _, n := range d.Namesakes() {
		list = append(list, api.Problem{
			Code: api.NetworkNamesake,
			What: fmt.Sprintf("the network %s of the cluster is not on this host, whose Docker has one of that name with the driver %s: containers on that one reach nobody of the cluster's", n.Network, n.Driver),
			Do:   fmt.Sprintf("remove the containers that are on it here, and `docker network rm %s`: the cluster's comes by itself; or make one of the two anew under another name", n.Network),
		})
	}
	return list
}
