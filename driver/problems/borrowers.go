package problems

import (
	"fmt"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/driver"
)

// borrowers are networks of other drivers whose addresses are grapevine's.
func borrowers(d *driver.Driver) (list []api.Problem) {
	for _, b := range d.Borrowers() {
		list = append(list, borrowerProblem(b))
	}
	return list
}

func borrowerProblem(b driver.Borrower) api.Problem {
	p := api.Problem{
		Code: api.NetworkForeign,
		What: fmt.Sprintf("network %s takes its addresses from grapevine, and its driver is %s: grapevine carries nothing for it, and refuses it more containers", b.Network, b.Driver),
		Do:   "docker network rm " + b.Network,
	}
	if len(b.Containers) > 0 {
		p.What += fmt.Sprintf("; on it are %s, whose addresses are kept", strings.Join(b.Containers, ", "))
		p.Do = fmt.Sprintf("docker rm -f %s; %s", strings.Join(b.Containers, " "), p.Do)
	}
	p.Do += "; then create it with -d of grapevine as well, or without --ipam-driver"
	return p
}
