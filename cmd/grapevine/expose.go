package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newServiceExpose() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "expose NAME PORT[:SERVICE-PORT][/PROTOCOL]...",
		Short: "Have every host answer a port for a service",
		Long: `Have every host of the cluster lead a port of its own to a service (NETWORK/NAME, or NAME), for clients inside and
outside. A replica sees its client's own address, whichever host the client speaks to, and whichever host the replica is
on: the answer goes back by the host that was asked. A host leads to its own replicas while it has some that get new
connections, and to those of others else. A port that somebody else has on one host is named by its ` + "`grapevine status`" + `.
Containers do the same with the label grapevine.expose=PORT[:TARGET][/PROTOCOL], without a service.`,
		Example: `  grapevine service expose web 443
  grapevine service expose web 8443:443             # port 8443 of the hosts is port 443 of the service
  grapevine service expose dns 53/udp`,
		Args:              named("a service and its port", 2, 0),
		ValidArgsFunction: complete(serviceNames),
	}, patience, func(ctx context.Context, c *api.Client, names []string) (api.Done, error) {
		return c.Services().Expose(ctx, api.ExposeRequest{Name: names[0], Ports: names[1:]})
	}, showDone)
}

func newServiceUnexpose() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "unexpose NAME [PORT[/PROTOCOL]...]",
		Short: "Have no host answer a port for a service any more",
		Long: `Take back what ` + "`grapevine service expose`" + ` has said: of these ports of the hosts, or of all of the service's. What is open
by them ends.`,
		Example: `  grapevine service unexpose web 8443
  grapevine service unexpose web`,
		Args:              named("a service", 1, 0),
		ValidArgsFunction: complete(serviceNames),
	}, patience, func(ctx context.Context, c *api.Client, names []string) (api.Done, error) {
		return c.Services().Expose(ctx, api.ExposeRequest{Name: names[0], Ports: names[1:], Not: true})
	}, showDone)
}
