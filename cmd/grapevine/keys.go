package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newKeys() *cobra.Command {
	c := verb(&cobra.Command{
		Use:   "keys",
		Short: "Change the gossip key, or the WireGuard keys, of all hosts, while they run",
		Long: `Change the key that gossip is encrypted with, on all hosts, while they run: install a
new one everywhere, use it everywhere, remove the old one. Each step is done on all
hosts or says on which not, and can be repeated; a step that would shut a host out is
refused. Keys are named by a fingerprint, or given in full. Hosts remember the keys over
restarts, until GRAPEVINE_KEY is changed.

WireGuard keys, with which encrypted networks are, change in one step, which takes some
seconds and loses no packet: ` + "`grapevine keys wireguard`" + `.`,
		Example: `  grapevine keys install    # makes a key, and says its fingerprint
  grapevine keys list       # those in use first
  grapevine keys use $(grapevine keys list -o json | jq -r '.[1].id')
  grapevine keys remove $(grapevine keys list -o json | jq -r '.[1].id')    # the old one; then change GRAPEVINE_KEY`,
	}, time.Minute, list((*api.Client).Keys), showKeys)
	c.AddCommand(
		verb(&cobra.Command{
			Use: "list", Short: "List the keys, and how many hosts have and use them",
			Example: "  grapevine keys list -o json",
		}, time.Minute, list((*api.Client).Keys), showKeys),
		keysVerb("install [KEY]", "Give all hosts a key, a new one if none is named", named("a key", 0, 1)),
		keysVerb("use KEY", "Let all hosts encrypt with a key that they have", named("a key", 1, 1)),
		keysVerb("remove KEY", "Take a key away from all hosts", named("a key", 1, 1)),
		verb(&cobra.Command{
			Use: "wireguard", Short: "Give each host a new WireGuard key, with no packet lost",
			Long: `Give each host a new WireGuard key. It is for encrypted networks; hosts whose agents do
not run are waited for, and until then all goes on with the old keys or the new ones.
UDP port 7950 must be open between the hosts meanwhile (GRAPEVINE_WIREGUARD_PORT + 2).`,
			Example: "  grapevine keys wireguard", Args: cobra.NoArgs,
		}, time.Minute, func(ctx context.Context, c *api.Client, _ []string) (api.Done, error) {
			return c.ChangeKeys(ctx, api.KeysRequest{Verb: api.KeysWireGuard})
		}, showDone),
	)
	return c
}

func keysVerb(use, short string, args cobra.PositionalArgs) *cobra.Command {
	name, _, _ := strings.Cut(use, " ")
	return verb(&cobra.Command{Use: use, Short: short, Example: "  grapevine keys " + name + " 1a2b3c4d", Args: args}, time.Minute,
		func(ctx context.Context, c *api.Client, args []string) (api.Done, error) {
			return c.ChangeKeys(ctx, api.KeysRequest{Verb: name, Key: strings.Join(args, "")})
		}, showDone)
}

func showKeys(w io.Writer, keys []api.Key) error {
	return table(w, "KEY\tHOSTS\tUSED BY", func(row func(string, ...any)) {
		for _, k := range keys {
			row("%s\t%d of %d\t%d", k.ID, k.On, k.Hosts, k.Using)
		}
	})
}
