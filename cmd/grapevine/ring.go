package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newRing() *cobra.Command {
	return watched(verb(&cobra.Command{
		Use:   "ring [NETWORK...]",
		Short: "Draw who owns which share of the addresses",
		Long: `Draw, for each prefix, which host owns which share of its addresses. Every address
belongs to exactly one host, and only that host hands it out or gives it away.`,
		Example: `  grapevine ring
  grapevine ring blue -o json | jq '.[].shares[] | {host, part}'`,
		Args:              named("a network", 0, 0),
		ValidArgsFunction: complete(networkNames),
	}, patience, func(ctx context.Context, c *api.Client, names []string) ([]api.Pool, error) {
		all, err := c.Ring(ctx)
		if err != nil {
			return nil, err
		}
		return only(ctx, c, all, names, func(p api.Pool) string { return p.Network })
	}, showRing))
}

// barWidth is the width of a whole pool's bar in characters.
const barWidth = 40

// showRing leaves out the cluster's range of IPv6 while no network has any.
func showRing(w io.Writer, pools []api.Pool) error {
	six := slices.ContainsFunc(pools, func(p api.Pool) bool { return p.Network != "" && p.Prefix.Addr().Is6() })
	pools = slices.DeleteFunc(slices.Clone(pools), func(p api.Pool) bool { return p.Network == "" && p.Prefix.Addr().Is6() && !six })
	for i, p := range pools {
		if i > 0 {
			fmt.Fprintln(w)
		}
		title := "network " + shortName(p.Network)
		if p.Network == "" {
			title = "cluster"
		}
		fmt.Fprintf(w, "%s  %s\n", title, p.Prefix)
		err := table(w, "  HOST\tSHARE\t\tBLOCKS", func(row func(string, ...any)) {
			for _, s := range p.Shares {
				row("  %s\t%s\t%s\t%s", s.Host, bar(s.Part), percent(s.Part), blocks(s))
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// bar draws a part of 1; whoever owns anything gets at least one mark.
func bar(part float64) string {
	n := min(barWidth, int(math.Round(part*barWidth)))
	if n == 0 && part > 0 {
		n = 1
	}
	return strings.Repeat("#", n) + strings.Repeat(".", barWidth-n)
}

func percent(part float64) string {
	if part > 0 && part < 0.0005 {
		return "<0.1%"
	}
	return fmt.Sprintf("%.1f%%", part*100)
}

// blocks lists the first few blocks, and counts the others.
func blocks(s api.Share) string {
	const shown = 3
	var text []string
	for _, b := range s.Blocks[:min(shown, len(s.Blocks))] {
		text = append(text, b.String())
	}
	if more := len(s.Blocks) - shown; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(text, ", ")
}
