package driver

import (
	"context"
	"slices"

	"github.com/grapevine-net/grapevine/internal/docker"
)

// lookForSwarm notes whether this host is part of a Docker swarm: it then has the overlay
// network ingress. Docker is asked for more when that changes only, as it has much to say.
func (d *Driver) lookForSwarm(ctx context.Context, networks []docker.Network) error {
	active := slices.ContainsFunc(networks, func(n docker.Network) bool { return n.Driver == "overlay" })
	if d.Swarm().Active == active {
		return nil
	}
	var s docker.Swarm
	if active {
		var err error
		if s, err = d.docker.Swarm(ctx); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.swarm = s
	return nil
}

// Swarm returns this host's part in a Docker swarm, as it was seen last.
func (d *Driver) Swarm() docker.Swarm {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.swarm
}
