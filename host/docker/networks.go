package docker

import (
	"context"
	"fmt"
	"strings"

	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
)

// IPAM is one address pool of a network, as the user gave it or Docker got it:
// texts of a prefix, a prefix, an address, and addresses by name; "" for unset.
type IPAM struct {
	Subnet, Range, Gateway string
	Aux                    map[string]string
}

// Network is a Docker network on this host.
type Network struct {
	ID, Name, Driver string
	Internal         bool
	Attachable       bool
	// ConfigOnly networks are drafts of others (--config-only): nothing is on them.
	ConfigOnly bool
	// Swarm networks are of the whole swarm (--scope swarm). Its managers list them where nothing of them is yet.
	Swarm           bool
	Options, Labels map[string]string
	IPAMDriver      string
	IPAMOptions     map[string]string
	Pools           []IPAM
}

// Networks lists all networks of the host, of all drivers.
func (c *Client) Networks(ctx context.Context) ([]Network, error) {
	var out []Network
	err := c.do(ctx, "list networks", func(ctx context.Context, cli *client.Client) error {
		list, err := cli.NetworkList(ctx, network.ListOptions{})
		for _, n := range list {
			out = append(out, fromDocker(n))
		}
		return err
	})
	return out, err
}

func fromDocker(n network.Summary) Network {
	out := Network{
		ID: n.ID, Name: n.Name, Driver: n.Driver, Internal: n.Internal, Attachable: n.Attachable, ConfigOnly: n.ConfigOnly, Swarm: n.Scope == "swarm",
		Options: n.Options, Labels: n.Labels,
		IPAMDriver: n.IPAM.Driver, IPAMOptions: n.IPAM.Options,
	}
	for _, p := range n.IPAM.Config {
		out.Pools = append(out.Pools, IPAM{Subnet: p.Subnet, Range: p.IPRange, Gateway: p.Gateway, Aux: p.AuxAddress})
	}
	return out
}

// Attached lists a network's containers, each with its endpoint there alone: also those that
// are only just starting, or whose state Docker could not write to its disk, of which the list
// of containers does not tell that.
func (c *Client) Attached(ctx context.Context, id string) (list []Container, err error) {
	err = c.do(ctx, "inspect network "+id, func(ctx context.Context, cli *client.Client) error {
		n, err := cli.NetworkInspect(ctx, id, network.InspectOptions{})
		for container, e := range n.Containers {
			list = append(list, Container{ID: container, Name: e.Name, Networks: []Attachment{{Network: n.Name, NetworkID: n.ID, EndpointID: e.EndpointID}}})
		}
		return err
	})
	return list, err
}

// CreateNetwork creates n (its ID is ignored) and returns the new ID. A network
// of that name, of any driver, is ErrConflict.
func (c *Client) CreateNetwork(ctx context.Context, n Network) (id string, err error) {
	// Engines before API 1.44 allow duplicate names unless they are told to check.
	ipam := &network.IPAM{Driver: n.IPAMDriver, Options: n.IPAMOptions}
	var v4, v6 bool
	for _, p := range n.Pools {
		if strings.Contains(p.Subnet, ":") {
			v6 = true
		} else {
			v4 = true
		}
		ipam.Config = append(ipam.Config, network.IPAMConfig{Subnet: p.Subnet, IPRange: p.Range, Gateway: p.Gateway, AuxAddress: p.Aux})
	}
	err = c.do(ctx, "create network "+n.Name, func(ctx context.Context, cli *client.Client) error {
		if v6 && !v4 {
			if err := canLeaveIPv4Out(ctx, cli); err != nil {
				return err
			}
		}
		resp, err := cli.NetworkCreate(ctx, n.Name, network.CreateOptions{
			Driver: n.Driver, IPAM: ipam, Internal: n.Internal, Attachable: n.Attachable, Options: n.Options, Labels: n.Labels,
			EnableIPv4: onlyIf(v6 && !v4, false), EnableIPv6: onlyIf(v6, true),
		})
		id = resp.ID
		return err
	})
	return id, err
}

// canLeaveIPv4Out says whether the engine can make a network without IPv4: older ones
// would add an IPv4 subnet unasked.
func canLeaveIPv4Out(ctx context.Context, cli *client.Client) error {
	const since = "1.48"
	cli.NegotiateAPIVersion(ctx)
	if v := cli.ClientVersion(); versions.LessThan(v, since) {
		return fmt.Errorf("it has IPv6 only, which this host's Docker (API %s) cannot make: upgrade it to 28.0 or later (API %s), or add an IPv4 subnet to the network", v, since)
	}
	return nil
}

// onlyIf returns a pointer to value, or nil, for a field that is to be left out.
func onlyIf(cond, value bool) *bool {
	if !cond {
		return nil
	}
	return &value
}

// RemoveNetwork removes the network of that ID: ErrConflict if containers are
// attached to it, nil if it is gone already.
func (c *Client) RemoveNetwork(ctx context.Context, id string) error {
	return notFoundOK(c.do(ctx, "remove network "+id, func(ctx context.Context, cli *client.Client) error {
		return cli.NetworkRemove(ctx, id)
	}))
}
