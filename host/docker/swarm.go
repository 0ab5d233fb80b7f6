package docker

import (
	"context"
	"net/netip"

	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/client"
)

// Swarm is the part that this host has in a Docker swarm.
type Swarm struct {
	Active bool
	// VXLANPort is the UDP port of its overlay networks; 0: managers only are told it, and
	// this host is none.
	VXLANPort uint16
}

// Swarm asks the engine for its part in a swarm.
func (c *Client) Swarm(ctx context.Context) (s Swarm, err error) {
	err = c.do(ctx, "ask for the swarm", func(ctx context.Context, cli *client.Client) error {
		info, err := cli.Info(ctx)
		s.Active = info.Swarm.LocalNodeState == swarm.LocalNodeStateActive
		if of := info.Swarm.Cluster; of != nil {
			s.VXLANPort = uint16(of.DataPathPort)
		}
		return err
	})
	return s, err
}

// Settings are what the engine was configured with.
type Settings struct {
	// Pools is where it takes the subnets of networks from that ask for none, if it was configured; else they are Docker's
	// own defaults, and there are none here.
	Pools []netip.Prefix
	// Labels are its own, KEY=VALUE.
	Labels []string
}

// Settings asks the engine for them.
func (c *Client) Settings(ctx context.Context) (s Settings, err error) {
	if c == nil {
		return s, nil
	}
	err = c.do(ctx, "ask for its settings", func(ctx context.Context, cli *client.Client) error {
		info, err := cli.Info(ctx)
		for _, p := range info.DefaultAddressPools {
			if base, err := netip.ParsePrefix(p.Base); err == nil {
				s.Pools = append(s.Pools, base.Masked())
			}
		}
		s.Labels = info.Labels
		return err
	})
	return s, err
}
