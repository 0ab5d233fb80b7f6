package problems

import (
	"fmt"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/driver"
)

// refused are networks of the cluster that this host's Docker does not make.
func refused(d *driver.Driver) (list []api.Problem) {
	for _, r := range d.Refused() {
		list = append(list, api.Problem{
			Code: api.NetworkRefused,
			What: fmt.Sprintf("the network %s of the cluster is not on this host, whose Docker does not make it: %s", r.Network, r.Why),
			Do:   fmt.Sprintf("mend what Docker says, and the network comes by itself; or remove it (`docker network rm %s`, on a host that has it), and create it as all hosts' Docker can make it", r.Network),
		})
	}
	return list
}
