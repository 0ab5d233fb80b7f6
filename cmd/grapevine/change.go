package main

import (
	"context"
	"fmt"
	"io"
	"strings"
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

func newJoin() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "join",
		Short: "Bring a host back that has left",
		Long: `Bring a host back that has left: it joins the cluster that its settings name, as a new host.
So it does by itself when it is started with another GRAPEVINE_JOIN or GRAPEVINE_KEY than
before, and when the plugin is installed anew.`,
		Example: "  grapevine join",
	}, patience, list((*api.Client).Join), showDone)
}

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

func newFastPath() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "fastpath on|off|auto|look|direct",
		Short: "Switch this host's fast path, with no packet lost",
		Long: `Switch the tc programs that carry what needs no switch on or off, with no packet
lost. It holds until the agent is started again: GRAPEVINE_FASTPATH says what then.
Direct is on, and between hosts past the VXLAN device, this host's firewall and
conntrack: see docs/design/fastpath.md first. Look is direct while the agent finds
nothing on this host that would do more to these packets than let them pass and count
them, and on otherwise; it says which rule that is.`,
		Example: `  grapevine fastpath off     # every packet visits Open vSwitch
  grapevine fastpath auto    # with the userspace datapath, if the kernel compiles the programs: direct where nothing is passed by, else on
  grapevine fastpath direct  # on, and past the VXLAN device
  grapevine fastpath look    # direct, while no rule of this host is passed by that matters
  grapevine status           # says which, and why`,
		ValidArgs: []string{"on", "off", "auto", "look", "direct"},
		Args:      oneOf(false, "on", "off", "auto", "look", "direct"),
	}, patience, func(ctx context.Context, c *api.Client, args []string) (api.Done, error) {
		return c.FastPath(ctx, api.FastPathRequest{Mode: args[0]})
	}, showDone)
}

func showDone(w io.Writer, d api.Done) error {
	_, err := fmt.Fprintln(w, d.Text)
	return err
}

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

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  grapevine version -o json",
		Args:    noNames,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flag("output").Value.String() == "json" {
				return printJSON(c.OutOrStdout(), map[string]string{"version": programVersion()})
			}
			return printVersion(c)
		},
	}
}

func printVersion(c *cobra.Command) error {
	_, err := fmt.Fprintln(c.OutOrStdout(), "grapevine", programVersion())
	return err
}
