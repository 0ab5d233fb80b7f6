package docker

import (
	"context"

	"github.com/docker/docker/client"
)

// Plugin is a managed plugin.
type Plugin struct {
	// Name is what Docker knows it by on this host, with the tag.
	Name string
	// Reference is where it was installed from, "" if it was made on this host.
	Reference string
}

// Plugin returns the managed plugin of that ID.
func (c *Client) Plugin(ctx context.Context, id string) (p Plugin, err error) {
	err = c.do(ctx, "find this plugin's name", func(ctx context.Context, cli *client.Client) error {
		found, _, err := cli.PluginInspectWithRaw(ctx, id)
		if err == nil {
			p = Plugin{Name: found.Name, Reference: found.PluginReference}
		}
		return err
	})
	return p, err
}
