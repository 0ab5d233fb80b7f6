package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newJoinCommand() *cobra.Command {
	var which string
	return verb(&cobra.Command{
		Use:   "join-command [plugin|service]",
		Short: "Print the line that adds another host to the cluster",
		Long: `Print the line that adds another host to the cluster, as a managed plugin or as a
service. It contains the gossip key, which it puts where root alone reads it: whoever has it can join.`,
		Example: `  grapevine join-command
  grapevine join-command plugin > join    # sh join, on the next host`,
		ValidArgs: []string{"plugin", "service"},
		Args:      oneOf(true, "plugin", "service"),
	}, patience, func(ctx context.Context, c *api.Client, args []string) (api.JoinCommand, error) {
		which = strings.Join(args, "")
		return c.JoinCommand(ctx)
	}, func(w io.Writer, j api.JoinCommand) (err error) {
		switch which {
		case "plugin":
			_, err = fmt.Fprintln(w, j.Plugin)
		case "service":
			_, err = fmt.Fprintln(w, j.Service)
		default:
			_, err = fmt.Fprintf(w, "# as a Docker plugin:\n%s\n# or as a service:\n%s\n", j.Plugin, j.Service)
		}
		return err
	})
}
