package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newFastPath() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "fastpath on|off|auto|look|direct",
		Short: "Switch this host's fast path, with no packet lost",
		Long: `Switch the tc programs that carry what needs no switch on or off, with no packet
lost. It holds until the agent is started again: GRAPEVINE_FASTPATH says what then.
Direct is on, and between hosts past the VXLAN device, this host's firewall and
conntrack: see docs/design/fastpath.md first. Look is direct while the agent finds
nothing on this host that would do more to these packets than let them pass and count
them, and on otherwise; it says which rule that is. Auto is look with the userspace
datapath, and with the kernel's it carries encrypted networks alone.`,
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
