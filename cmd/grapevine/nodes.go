package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newNodes() *cobra.Command {
	return watched(verb(&cobra.Command{
		Use:     "nodes [HOST...]",
		Aliases: []string{"hosts"},
		Short:   "List the hosts of the cluster",
		Example: `  grapevine nodes
  grapevine nodes host2
  grapevine nodes -o json | jq -r '.[] | select(.alive | not) | .name'`,
		Args:              named("a host", 0, 0),
		ValidArgsFunction: complete(hostNames),
	}, patience, func(ctx context.Context, c *api.Client, args []string) ([]api.Node, error) {
		all, err := c.Nodes(ctx)
		if err != nil {
			return nil, err
		}
		return pick("host", all, args, isHost, func(n api.Node) string { return n.Name })
	}, showNodes))
}

func showNodes(w io.Writer, nodes []api.Node) error {
	return table(w, "NAME\tID\tVTEP\tSTATE\tPATH\tDATAPATH\tMTU\tVERSION", func(row func(string, ...any)) {
		for _, n := range nodes {
			row("%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s", n.Name, n.ID, n.VTEP, nodeState(n), dash(n.Path), datapath(n), n.MTU, dash(n.Version))
		}
	})
}

func datapath(n api.Node) string {
	if n.Edge {
		return dash(n.Datapath) + ", edge"
	}
	return dash(n.Datapath)
}

func nodeState(n api.Node) string {
	switch {
	case n.Self:
		return "this host"
	case n.Doubtful:
		return "doubtful"
	case n.Alive:
		return "alive"
	}
	return "dead"
}
