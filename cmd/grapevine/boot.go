package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/overlay/guard"
)

// newBootGuard is what a unit of systemd does before the network is up (scripts/grapevine-guard.service).
func newBootGuard() *cobra.Command {
	return &cobra.Command{
		Use: "boot-guard", Short: "Keep what is for encrypted networks on this host until the agent runs", Hidden: true, Args: noNames,
		RunE: func(c *cobra.Command, _ []string) error {
			// A setting that keeps the agent from starting does not keep this from it.
			said, err := guard.Boot(config.State(c.Flags(), os.Environ(), os.ReadFile))
			if err == nil {
				_, err = fmt.Fprintln(c.OutOrStdout(), said)
			}
			return err
		},
	}
}
