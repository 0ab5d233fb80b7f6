package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newPolicyLearn() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "learn NETWORK",
		Short: "Write the policies that let through what was seen on a network, and nothing else",
		Long: `Write, as YAML, the policies that let through what was seen on a network, and nothing else: one for each service of
Compose on it and each container of none that had a connection, in both directions. It applies nothing.

What was seen is what ` + "`grapevine traffic --all --network NETWORK`" + ` lists: so let it count for as long as it takes until all that
is to pass has been there once (GRAPEVINE_TRAFFIC=on: it always does). What nobody answered is left out, and so are pings, which a
NetworkPolicy cannot name, and containers that have gone; comments in the YAML say of each. An address outside is in it by its number: where
it is known by a name that may get others, write a name in its place (docs/use/policy.md). Without -o json the YAML is on the standard output.`,
		Example:           `  grapevine policy learn blue > learned.yaml`,
		Args:              named("a network", 1, 1),
		ValidArgsFunction: complete(networkNames),
	}, patience, func(ctx context.Context, c *api.Client, names []string) (api.Learned, error) {
		return c.Policies().Learn(ctx, names[0])
	}, func(w io.Writer, l api.Learned) error {
		_, err := io.WriteString(w, l.Text)
		return err
	})
}
