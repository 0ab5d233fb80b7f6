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
		Long: `Take this host out of the cluster. It gives all its addresses to another host, withdraws
its records, and removes the cluster's networks from its Docker. Then it removes the bridge,
devices, rules and state that are ours, the gossip key too. The agent stays, over reboots
too: it answers what Docker removes, and makes nothing, until ` + "`grapevine join`" + `. Refused
while containers are attached.`,
		Example: `  grapevine leave
  grapevine leave --force    # containers that are attached lose their network`,
	}, 2*time.Minute, func(ctx context.Context, c *api.Client, _ []string) (api.Done, error) {
		return c.Leave(ctx, api.LeaveRequest{Force: force})
	}, showDone)
	c.Flags().BoolVar(&force, "force", false, "leave even though containers are attached, or no other host is there to take the addresses")
	return c
}
