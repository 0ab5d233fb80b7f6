package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
)

func newPolicyTry() *cobra.Command {
	var file string
	c := verb(&cobra.Command{
		Use:   "try -f FILE",
		Short: "Say what would change if policies were applied, and change nothing",
		Long: `Say what would pass, or not pass any more, if the policies of a file were applied, and change nothing.
It asks for connections of the containers that the policies select: with the other containers of their
network, and with the outside; at the ports that the policies name, at one of TCP that they do not (other
ports), and for a ping. It asks policies alone, as they are known here now, and not who talks to whom.`,
		Example: `  grapevine policy try -f db.yaml
  grapevine policy get | grapevine -H ssh://host7 policy try -f -    # in another cluster`,
		Args: noNames,
	}, patience, func(ctx context.Context, c *api.Client, _ []string) (api.Trial, error) {
		text, err := readPolicies("try", file)
		if err != nil {
			return api.Trial{}, err
		}
		return c.Try(ctx, api.ApplyRequest{Text: text})
	}, showTrial)
	c.Flags().StringVarP(&file, "filename", "f", "", "the file; - is the standard input")
	return c
}

// mostShown is how many changes are shown; all are in JSON.
const mostShown = 50

func showTrial(w io.Writer, t api.Trial) error {
	for _, c := range t.Changes[:min(mostShown, len(t.Changes))] {
		verdict := "would not pass any more"
		if c.Allowed {
			verdict = "would pass"
		}
		fmt.Fprintf(w, "%s to %s: %s: %s\n", peerWords(c.From), peerWords(c.To), strings.Join(c.What, ", "), verdict)
		for _, r := range c.Rules {
			fmt.Fprintf(w, "    %s (%s)\n", r.Rule, r.Action)
		}
	}
	if more := len(t.Changes) - mostShown; more > 0 {
		fmt.Fprintf(w, "... and %s (all: -o json)\n", words.Plural(more, "more change"))
	}
	if len(t.Changes) == 0 {
		fmt.Fprintln(w, "Nothing would change between the containers that there are now.")
	}
	fmt.Fprintf(w, "Asked for %s; nothing was applied.\n", words.Plural(t.Asked, "connection"))
	for _, n := range t.Notes {
		fmt.Fprintln(w, n)
	}
	return nil
}
