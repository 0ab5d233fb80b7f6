package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/agent"
	"github.com/grapevine-net/grapevine/agent/idle"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/plugin"
	"github.com/grapevine-net/grapevine/leisure"
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
		Args: noNames,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Load(c.Flags(), os.Environ(), os.ReadFile)
			if check {
				if err == nil {
					_, err = fmt.Fprintln(c.OutOrStdout(), "The settings are fine.")
				}
				return err
			}
			if err != nil {
				return explain(c.Context(), config.Default(), err, 0)
			}
			leisure.Late() // begins the program anew
			log := newLog(cfg.LogLevel)
			if err := agent.Run(c.Context(), cfg, programVersion(), deputyCommand(cfg), log); err != nil {
				return explain(c.Context(), cfg, fmt.Errorf("agent: %w", err), againAfter)
			}
			log.Info("agent stopped; the switch goes on")
			return nil
		},
	}
	config.AddFlags(c.Flags())
	c.Flags().BoolVar(&check, "check", false, "Only read the settings, and say what is wrong with them")
	return c
}

// againAfter is how long a managed plugin that cannot run says why before it ends,
// upon which Docker starts it again.
const againAfter = 20 * time.Second

// explain returns the cause, at once or, if this is a managed plugin, after it has
// told Docker and the command line why no agent runs: for some time, or with 0 until
// the plugin is disabled.
func explain(ctx context.Context, cfg config.Config, cause error, during time.Duration) error {
	if id, err := plugin.ManagedID(); err != nil || id == "" {
		return cause
	}
	fmt.Fprintln(os.Stderr, "grapevine:", cause)
	if during > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, during)
		defer cancel()
	}
	return errors.Join(cause, idle.Explain(ctx, cfg, programVersion(), cause, newLog(cfg.LogLevel)))
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
