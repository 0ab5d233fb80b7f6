package agent

import (
	"context"
	"fmt"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/driver"
)

// unlinked are the containers of this host whose interfaces are gone, as far as that is the host's
// fault, and all their endpoints.
type unlinked struct {
	endpoints []string
	problems  []api.Problem
}

// unlinked asks for them. What a container may have done to itself, which nobody can tell from what
// somebody did from outside, is a note: another's container is not to make this host look ill.
func (a *Agent) unlinked(ctx context.Context) (gone unlinked, notes []string) {
	if a.driver == nil {
		return gone, nil
	}
	for _, u := range a.driver.Unlinked(ctx) {
		gone.endpoints = append(gone.endpoints, u.Endpoint)
		if u.MayItself && !a.plane.OwnGone(u.Endpoint) {
			notes = append(notes, fmt.Sprintf("container %s has deleted its interface on network %s, as it may (NET_ADMIN), and is not on the network until docker restart %s; nothing else is concerned",
				u.Container, u.Network, u.Container))
			continue
		}
		gone.problems = append(gone.problems, unlinkedProblem(u))
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
