package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/membership/backup"
)

func newRestore() *cobra.Command {
	var alone bool
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make this host's state from a backup",
		Long: `Make this host's state directory from a backup of it. The agent must be stopped, and the
directory must have no state. Once the agent runs again it first asks every other host
whether it has heard more of this host than the backup has: if one has, addresses may
have been given away since, and the host has to be forgotten and to join as a new one,
as ` + "`grapevine status`" + ` then says. Until all have answered it hands out nothing. What a host says that was restored
itself proves nothing. Where there is no other host any more, or all of them were restored,
nobody can answer: restore one of them with --alone, which asks for some seconds only.`,
		Example: `  grapevine restore /root/grapevine-$(hostname).tar    # the agent is stopped, its old state moved away`,
		Args:    named("a file", 1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := config.Load(c.Flags(), os.Environ(), os.ReadFile)
			if err != nil {
				return err
			}
			f, err := os.Open(args[0])
			if err != nil {
				return fmt.Errorf("restore: %w; name a file that `grapevine backup` has made", err)
			}
			defer f.Close()
			m, err := backup.Restore(f, cfg.State, alone)
			if err != nil {
				return fmt.Errorf("restore from %s: %w", args[0], err)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "Restored host %s (%s) as it was at %s into %s. Start the agent.\n",
				m.Name, m.Node, m.Made.Format(time.RFC3339), cfg.State)
			return err
		},
	}
	config.AddFlags(c.Flags(), "state")
	c.Flags().BoolVar(&alone, "alone", false, "no other host knows more: there is none, or all were restored")
	return c
}
