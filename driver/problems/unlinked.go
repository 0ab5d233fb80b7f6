package problems

import (
	"context"
	"fmt"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/driver"
)

// Gone are the containers of this host whose interfaces are gone, as far as that is the host's
// fault, and all their endpoints.
type Gone struct {
	Endpoints []string
	Problems  []api.Problem
}

// Unlinked asks for them; hostsOwn says of an endpoint that something of it is gone that no container can delete. What a container may have done to itself, which nobody can tell from what
// somebody did from outside, is a note: another's container is not to make this host look ill.
func Unlinked(ctx context.Context, d *driver.Driver, hostsOwn func(endpoint string) bool) (gone Gone, notes []string) {
	if d == nil {
		return gone, nil
	}
	for _, u := range d.Unlinked(ctx) {
		gone.Endpoints = append(gone.Endpoints, u.Endpoint)
		if u.MayItself && !hostsOwn(u.Endpoint) {
			notes = append(notes, fmt.Sprintf("container %s has deleted its interface on network %s, as it may (NET_ADMIN), and is not on the network until docker restart %s; nothing else is concerned",
				u.Container, u.Network, u.Container))
			continue
		}
		gone.Problems = append(gone.Problems, unlinkedProblem(u))
	}
	return gone, notes
}

func unlinkedProblem(u driver.Unlinked) api.Problem {
	return api.Problem{
		Code: api.InterfaceGone,
		What: fmt.Sprintf("the interface of container %s on network %s is gone: somebody on this host has deleted it", u.Container, u.Network),
		Do:   "docker restart " + u.Container,
	}
}
