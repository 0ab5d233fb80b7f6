package driver

import (
	"cmp"
	"context"
	"slices"
)

// Unlinked is a container that runs and has lost its interface on a network.
type Unlinked struct {
	Container, Network, Endpoint string
	// MayItself says that the container may change its interfaces (NET_ADMIN).
	MayItself bool
}

// Unlinked is Driver.Unlinked.
func (d *mirror) Unlinked(ctx context.Context) (list []Unlinked) {
	bare := map[string]bool{}
	d.core.mu.Lock()
	for id, e := range d.core.local.endpoints {
		if host, _ := ifnames(id); e.Joined && !d.core.links.Exists(host) {
			bare[id] = true
		}
	}
	d.core.mu.Unlock()
	if len(bare) == 0 {
		return nil
	}
	containers, err := d.core.docker.Containers(ctx)
	if err != nil {
		return nil
	}
	for _, c := range containers {
		for _, at := range c.Networks {
			if !bare[at.EndpointID] || ended(c) {
				continue
			}
			u := Unlinked{Container: c.Name, Network: at.Network, Endpoint: at.EndpointID}
			if details, err := d.core.docker.Inspect(ctx, c.ID); err == nil {
				u.MayItself = details.NetAdmin
			}
			list = append(list, u)
		}
	}
	slices.SortFunc(list, func(a, b Unlinked) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.Network, b.Network))
	})
	return list
}
