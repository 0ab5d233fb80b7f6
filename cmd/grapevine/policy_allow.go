package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newPolicyAllow() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "allow FROM TO[:PORT[/PROTOCOL]]",
		Short: "Let one call another, which takes calls of nobody else then",
		Long: `Write a NetworkPolicy that lets FROM call TO. TO is a container, or a Compose service, that is there (NAME
or NETWORK/NAME); FROM is the name of a container or a service on TO's network, NETWORK/NAME, KEY=VALUE of a label,
an address, a prefix, internet or any. Without a port it is about all. What no policy allows to call TO is denied
from then on: allow all that it needs. It is a policy like others, to list, get and delete.`,
		Example: `  grapevine policy allow web db:5432
  grapevine policy allow 192.168.0.0/16 shop_default/web:80
  grapevine policy allow tier=front api:8000-8099`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("`%s` wants two ends: `grapevine policy %s`", c.CommandPath(), c.Use)
			}
			return nil
		},
		ValidArgsFunction: complete(containerNames),
	}, patience, func(ctx context.Context, c *api.Client, args []string) (api.Done, error) {
		return c.Policies().Allow(ctx, api.AllowRequest{From: args[0], To: args[1]})
	}, showDone)
}
