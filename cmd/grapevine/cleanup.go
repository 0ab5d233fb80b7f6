package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/cleanup"
	"github.com/grapevine-net/grapevine/config"
)

func newCleanup() *cobra.Command {
	var purge bool
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what an agent that is gone has left on this host",
		Long: `Remove what an agent that is gone has left on this host: interfaces, the bridge, routes and their
rules, rules of iptables, processes and files of Open vSwitch, and sockets. It needs no agent
and no registry, and is refused while an agent runs. What this host knows is kept, so that
an agent that is installed again goes on where it was, unless --purge is given.

To take a host out of its cluster for good, ` + "`grapevine leave`" + ` comes before that.`,
		Example: `  grapevine cleanup            # after docker plugin rm -f
  grapevine cleanup --purge    # its identity, its gossip key, and the plugin's command line, too`,
		Args: noNames,
		RunE: func(c *cobra.Command, _ []string) error {
			format, err := outputFormat(c)
			if err != nil {
				return err
			}
			cfg, err := config.Load(c.Flags(), os.Environ(), os.ReadFile)
			if err != nil {
				return err
			}
			if os.Geteuid() != 0 {
				return fmt.Errorf("clean up: only root may remove interfaces and rules: run this with sudo")
			}
			ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
			defer cancel()
			did, kept, err := cleanup.Host(ctx, cfg, purge)
			if format == "json" {
				if printed := printJSON(c.OutOrStdout(), map[string][]string{"removed": append([]string{}, did...), "kept": append([]string{}, kept...)}); err == nil {
					err = printed
				}
				return err
			}
			for _, what := range did {
				fmt.Fprintln(c.OutOrStdout(), "removed", what)
			}
			for _, what := range kept {
				fmt.Fprintln(c.OutOrStdout(), "kept", what)
			}
			if len(did) == 0 && err == nil {
				fmt.Fprintln(c.OutOrStdout(), "Nothing that grapevine makes on a host was left.")
			}
			return err
		},
	}
	config.AddFlags(c.Flags(), "state", "plugin-socket")
	c.Flags().BoolVar(&purge, "purge", false, "what this host knows, its gossip key, and the command line that the plugin has put there, too")
	return c
}
