package main

import (
	"bytes"
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newMetrics() *cobra.Command {
	c := verb(&cobra.Command{
		Use:   "metrics",
		Short: "Print this host's metrics for Prometheus",
		Long: `Print this host's metrics in Prometheus' text format: hosts, networks, traffic, drops, names.
With GRAPEVINE_METRICS=:7955 Prometheus asks the agent itself; docs/operate/metrics.md has the lines.`,
		Example: `  grapevine metrics
  grapevine metrics | grep drops
  grapevine metrics > /var/lib/node_exporter/grapevine.prom    # from cron, for node_exporter's textfile collector`,
	}, patience, func(ctx context.Context, c *api.Client, _ []string) (string, error) {
		var text bytes.Buffer
		err := c.Metrics(ctx, &text)
		return text.String(), err
	}, func(w io.Writer, text string) error {
		_, err := io.WriteString(w, text)
		return err
	})
	return c
}
