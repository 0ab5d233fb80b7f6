package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newWait() *cobra.Command {
	c := &cobra.Command{
		Use:   "wait",
		Short: "Wait until this host has a network or knows a container",
		Long: `A network that another host makes is here some tenths of a second later. A script that
does not want to depend on that waits for it. The exit status is 0 as soon as all that is named
is there, and 1 if it is not in time.`,
		Example: `  grapevine wait network blue
  grapevine wait container db --timeout 5s`,
		Args: noNames,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		newWaitFor("network", "Wait until this host's Docker has networks", "  grapevine wait network blue", missingNetworks),
		newWaitFor("container", "Wait until this host knows containers of any host by their names", "  grapevine wait container db --timeout 5s", missingContainers),
	)
	return c
}

// waitPause is how often the agent is asked.
const waitPause = 20 * time.Millisecond

// newWaitFor makes the verb that waits until absent has nothing to return of the names.
func newWaitFor(what, short, example string, absent func(context.Context, *api.Client, []string) ([]string, error)) *cobra.Command {
	c := &cobra.Command{Use: what + " NAME...", Short: short, Example: example, Args: named("a "+what, 1, 0)}
	timeout := c.Flags().Duration("timeout", 30*time.Second, "how long to wait; 0: not at all")
	return verb(c, 24*time.Hour, func(ctx context.Context, client *api.Client, names []string) ([]string, error) {
		end := time.Now().Add(*timeout)
		for {
			rest, err := absent(ctx, client, names) // an agent that is just starting is waited for too
			switch {
			case err == nil && len(rest) == 0:
				return names, nil
			case time.Now().Before(end) && ctx.Err() == nil:
				time.Sleep(waitPause)
			case err != nil:
				return nil, err
			default:
				return nil, fmt.Errorf("%s %s is not here after %v; see `grapevine %s`, and `grapevine status`", what, rest[0], *timeout, map[string]string{"network": "networks", "container": "ps"}[what])
			}
		}
	}, func(io.Writer, []string) error { return nil })
}

func missingNetworks(ctx context.Context, c *api.Client, names []string) ([]string, error) {
	list, err := c.Networks(ctx)
	return without(names, func(name string) bool {
		return slices.ContainsFunc(list, func(n api.Network) bool { return n.Name == name && n.Here })
	}), err
}

func missingContainers(ctx context.Context, c *api.Client, names []string) ([]string, error) {
	list, err := c.Endpoints(ctx)
	return without(names, func(name string) bool {
		return slices.ContainsFunc(list, func(e api.Endpoint) bool { return e.Name == name })
	}), err
}

func without(names []string, there func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(names), there)
}
