package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newLeave() *cobra.Command {
	var force bool
	c := verb(&cobra.Command{
		Use:   "leave",
		Short: "Take this host out of the cluster",
		Long: `Take this host out of the cluster: give all its addresses to another host, withdraw
its records, remove the cluster's networks from this host's Docker, and then the bridge,
devices, rules and state that are ours, the gossip key too. The agent then answers what
Docker removes, and makes nothing, over reboots too, until ` + "`grapevine join`" + `. Refused while
containers are attached.`,
		Example: `  grapevine leave
  grapevine leave --force    # containers that are attached lose their network`,
	}, 2*time.Minute, func(ctx context.Context, c *api.Client, _ []string) (api.Done, error) {
		return c.Leave(ctx, api.LeaveRequest{Force: force})
	}, showDone)
	c.Flags().BoolVar(&force, "force", false, "leave even though containers are attached, or no other host is there to take the addresses")
	return c
}
