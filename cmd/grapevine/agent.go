package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/internal/agent"
	"github.com/grapevine-net/grapevine/internal/config"
)

func newAgent() *cobra.Command {
	var check bool
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run this host's agent",
		Long: `Run this host's agent: the Docker network and IPAM drivers, gossip, and the switch. It
runs until SIGTERM; the switch goes on forwarding without it. Every flag can also be
given as an environment variable (--vxlan-port as GRAPEVINE_VXLAN_PORT) or as a line of
the configuration file.`,
		Example: `  grapevine agent                                     # begin a cluster
  grapevine agent --join=10.0.0.1,10.0.0.2            # the key from GRAPEVINE_KEY, or the file`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Load(c.Flags(), os.Environ(), os.ReadFile)
			if err != nil {
				return err
			}
			if check {
				_, err := fmt.Fprintln(c.OutOrStdout(), "The settings are fine.")
				return err
			}
			log := newLog(cfg.LogLevel)
			if err := agent.Run(c.Context(), cfg, programVersion(), log); err != nil {
				return fmt.Errorf("agent: %w", err)
			}
			log.Info("agent stopped; the switch goes on")
			return nil
		},
	}
	config.AddFlags(c.Flags())
	c.Flags().BoolVar(&check, "check", false, "Only read the settings, and say what is wrong with them")
	return c
}

// newLog logs to standard output, which journald and dockerd keep; what a plugin
// writes to standard error is an error in dockerd's log.
func newLog(level string) *slog.Logger {
	var l slog.Level
	_ = l.UnmarshalText([]byte(level)) // config has checked it
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: l}))
	slog.SetDefault(log)
	return log
}
