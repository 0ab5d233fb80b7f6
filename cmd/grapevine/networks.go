package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newNetworks() *cobra.Command {
	return watched(verb(&cobra.Command{
		Use:     "networks [NETWORK...]",
		Aliases: []string{"nets"},
		Short:   "List the networks of the cluster",
		Example: `  grapevine networks
  grapevine networks -o json | jq -r '.[] | "\(.vnid) \(.name)"'`,
		Args:              named("a network", 0, 0),
		ValidArgsFunction: complete(networkNames),
	}, patience, func(ctx context.Context, c *api.Client, args []string) ([]api.Network, error) {
		all, err := c.Networks(ctx)
		if err != nil {
			return nil, err
		}
		is := func(n api.Network, name string) bool { return n.Name == name }
		return pick("network", all, args, is, func(n api.Network) string { return n.Name })
	}, showNetworks))
}

func showNetworks(w io.Writer, networks []api.Network) error {
	return table(w, "NAME\tVNID\tSUBNETS\tENDPOINTS\tHOSTS\tNOTE", func(row func(string, ...any)) {
		for _, n := range networks {
			var subnets, notes []string
			for _, s := range n.Subnets {
				subnets = append(subnets, s.Prefix.String())
			}
			if n.VNID == 0 {
				notes = append(notes, "privileged")
			}
			if n.Internal {
				notes = append(notes, "internal")
			}
			if n.Global {
				notes = append(notes, "global")
			}
			if len(n.With) > 0 {
				notes = append(notes, "one with "+strings.Join(n.With, " and "))
			}
			if n.Encrypted || n.Encryption != "" {
				notes = append(notes, "encrypted")
			}
			if n.Removed {
				notes = append(notes, "removed: goes when no host uses it")
			}
			notes = append(notes, n.Notes...)
			row("%s\t%d\t%s\t%d\t%s\t%s", shortName(n.Name), n.VNID, dash(strings.Join(subnets, ",")), n.Endpoints,
				dash(strings.Join(n.Hosts, ",")), strings.Join(notes, ", "))
		}
	})
}

func shortName(network string) string {
	if prefix, id, found := strings.Cut(network, "/"); found && len(id) == 64 {
		return prefix + "/" + id[:12]
	}
	return network
}
