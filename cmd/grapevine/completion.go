package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
)

func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print what makes a shell complete grapevine's commands",
		Long: `Print what makes a shell complete grapevine's commands and flags, and the names of
networks and hosts, which it asks the agent for. scripts/install-service installs it.`,
		Example: `  grapevine completion bash > /usr/share/bash-completion/completions/grapevine
  grapevine completion zsh > /usr/local/share/zsh/site-functions/_grapevine
  grapevine completion fish > /usr/share/fish/vendor_completions.d/grapevine.fish`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      oneOf(false, "bash", "zsh", "fish"),
		RunE: func(c *cobra.Command, args []string) error {
			root, w := c.Root(), c.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(w, true)
			case "zsh":
				return root.GenZshCompletion(w)
			}
			return root.GenFishCompletion(w, true)
		},
	}
}

// completionPatience is how long a key press may take.
const completionPatience = 2 * time.Second

// complete offers names that the agent knows and that are not on the line yet; each
// with a word about it, or none if the agent does not answer.
func complete(ask func(context.Context, *api.Client) (map[string]string, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		client, err := newClient(c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
		defer cancel()
		names, err := ask(ctx, client)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for _, used := range args {
			delete(names, used)
		}
		var list []cobra.Completion
		for name, about := range names {
			list = append(list, cobra.CompletionWithDesc(name, about))
		}
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}

func networkNames(ctx context.Context, c *api.Client) (map[string]string, error) {
	list, err := c.Networks(ctx)
	names := map[string]string{}
	for _, n := range list {
		names[n.Name] = fmt.Sprintf("VNID %d, %s", n.VNID, words.Plural(n.Endpoints, "endpoint"))
	}
	return names, err
}

func hostNames(ctx context.Context, c *api.Client) (map[string]string, error) {
	list, err := c.Nodes(ctx)
	names := map[string]string{}
	for _, n := range list {
		names[n.Name] = nodeState(n) + ", " + n.Underlay().String()
	}
	return names, err
}

// deadHosts are those that can be forgotten.
func deadHosts(ctx context.Context, c *api.Client) (map[string]string, error) {
	list, err := c.Nodes(ctx)
	names := map[string]string{}
	for _, n := range list {
		if !n.Alive {
			names[n.Name] = "does not answer, " + n.Underlay().String()
		}
	}
	return names, err
}

// only picks what is of the named networks (none named: all of it). of says which
// network a value is of. A name that nothing is of is an error if no network has it.
func only[T any](ctx context.Context, c *api.Client, list []T, names []string, of func(T) string) ([]T, error) {
	if len(names) == 0 {
		return list, nil
	}
	known, err := networkNames(ctx, c)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, name := range names {
		if _, found := known[name]; !found {
			return nil, unknown("network", name, slices.Collect(maps.Keys(known)))
		}
		wanted[name] = true
	}
	picked := []T{}
	for _, x := range list {
		if wanted[of(x)] {
			picked = append(picked, x)
		}
	}
	return picked, nil
}
