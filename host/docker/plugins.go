package docker

import (
	"context"
	"fmt"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"
)

// Plugin is a managed plugin.
type Plugin struct {
	// Name is what Docker knows it by on this host, with the tag.
	Name string
	// Reference is where it was installed from, "" if it was made on this host.
	Reference string
	Enabled   bool
}

// Plugin returns the managed plugin of that ID.
func (c *Client) Plugin(ctx context.Context, id string) (p Plugin, err error) {
	err = c.do(ctx, "find this plugin's name", func(ctx context.Context, cli *client.Client) error {
		found, _, err := cli.PluginInspectWithRaw(ctx, id)
		if err == nil {
			p = Plugin{Name: found.Name, Reference: found.PluginReference, Enabled: found.Enabled}
		}
		return err
	})
	return p, err
}

// NetworkPlugins lists the managed plugins that are network drivers.
func (c *Client) NetworkPlugins(ctx context.Context) (list []Plugin, err error) {
	err = c.do(ctx, "list plugins", func(ctx context.Context, cli *client.Client) error {
		found, err := cli.PluginList(ctx, filters.NewArgs(filters.Arg("capability", "networkdriver")))
		for _, p := range found {
			list = append(list, Plugin{Name: p.Name, Reference: p.PluginReference, Enabled: p.Enabled})
		}
		return err
	})
	return list, err
}

// Engine is the Docker Engine of this host.
type Engine struct {
	Version string // such as "20.10.24+dfsg1"
}

// Major is the first number of the version, 0 if there is none.
func (e Engine) Major() (n int) {
	_, _ = fmt.Sscanf(e.Version, "%d.", &n) // what is no number is 0
	return n
}

// MapsIPv4 reports whether the engine, with an IPAM driver that is a plugin, writes a container's
// own IPv4 address into its /etc/hosts as ::ffff:A.B.C.D: those of 28.0 to 29.0 do (moby 80e4631998,
// mended by a2de9bb334).
func (e Engine) MapsIPv4() bool {
	var minor int
	_, _ = fmt.Sscanf(e.Version, "%d.%d", new(int), &minor) // what is no number is 0
	return e.Major() == 28 || e.Major() == 29 && minor == 0
}

// Engine asks the engine for its version.
func (c *Client) Engine(ctx context.Context) (e Engine, err error) {
	err = c.do(ctx, "ask for the engine's version", func(ctx context.Context, cli *client.Client) error {
		v, err := cli.ServerVersion(ctx)
		e.Version = v.Version
		return err
	})
	return e, err
}
