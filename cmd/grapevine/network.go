package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newNetwork() *cobra.Command {
	c := verb(&cobra.Command{
		Use:   "network",
		Short: "Make networks one, or part them again, or limit them",
		Long: `Containers of different networks do not reach each other. Here any host can say of networks that are there that
they do: that some are one (join), that one reaches all others (global), or that one is by itself again (isolate). No
container is touched, and what may pass before and after loses no packet. What may not pass any more ends at once, on
every host, open connections too. What each container of a network may send and get can be changed, too (limit).
Without a command it lists the networks. docs/use/join.md and docs/use/limits.md have more.`,
		Example: `  grapevine network join blue red
  grapevine network isolate red
  grapevine network global red
  grapevine network`,
	}, patience, list((*api.Client).Networks), showNetworks)
	c.AddCommand(newNetworkJoin(), newNetworkIsolate(), newNetworkGlobal(), newNetworkLimit())
	return c
}

// newRealm is a command that says something of networks.
func newRealm(c *cobra.Command, do string) *cobra.Command {
	c.ValidArgsFunction = complete(networkNames)
	return verb(c, patience, func(ctx context.Context, c *api.Client, names []string) (api.Done, error) {
		return c.ChangeRealm(ctx, api.RealmRequest{Do: do, Networks: names})
	}, showDone)
}

func newNetworkJoin() *cobra.Command {
	return newRealm(&cobra.Command{
		Use:   "join NETWORK NETWORK...",
		Short: "Make networks one: their containers reach each other",
		Long: `Make networks one: their containers reach each other by their addresses, on all hosts. Each keeps its subnets, its
VNID, its names and its policies. If one of them is joined with others already, all become one.`,
		Example: `  grapevine network join blue red`,
		Args:    named("a network", 2, 0),
	}, api.RealmJoin)
}

func newNetworkIsolate() *cobra.Command {
	return newRealm(&cobra.Command{
		Use:   "isolate NETWORK...",
		Short: "Make networks be by themselves again",
		Long: `Make each of the networks be by itself again, whether it was joined with others or global. Those that it was joined
with stay joined with each other.`,
		Example: `  grapevine network isolate red`,
		Args:    named("a network", 1, 0),
	}, api.RealmIsolate)
}

func newNetworkGlobal() *cobra.Command {
	return newRealm(&cobra.Command{
		Use:   "global NETWORK...",
		Short: "Make networks reach all others, and be reached by them",
		Long: `Make each of the networks reach all others, and be reached by them, as a network does that was created with
-o vnid=0. One that was joined with others is not joined any more: it reaches them anyway. The others reach each
other no more than before.`,
		Example: `  grapevine network global red`,
		Args:    named("a network", 1, 0),
	}, api.RealmGlobal)
}
