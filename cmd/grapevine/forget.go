package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newForget() *cobra.Command {
	c := verb(&cobra.Command{
		Use:   "forget HOST...",
		Short: "Take over the addresses of hosts that are gone for good",
		Long: `Take over the addresses of hosts (their names, or their IDs) that are gone for good.
All other hosts must be there and agree. Never do this to a host that runs, even if it
cannot be reached: its containers' addresses would be given to others. A forgotten
host that returns must join as a new one.`,
		Example: `  grapevine nodes            # says which are dead
  grapevine forget host3`,
		Args:              named("a host", 1, 0),
		ValidArgsFunction: complete(deadHosts),
	}, 2*time.Minute, func(ctx context.Context, c *api.Client, args []string) (api.Done, error) {
		return c.Forget(ctx, api.ForgetRequest{Hosts: args})
	}, showDone)
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		fmt.Fprintln(c.ErrOrStderr(), "Asking all other hosts whether they agree, which takes some seconds ...")
		return run(c, args)
	}
	return c
}
