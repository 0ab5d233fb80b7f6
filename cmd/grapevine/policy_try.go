package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
)

func newPolicyTry() *cobra.Command {
	var file string
	input := sync.OnceValues(func() (string, error) { return readPolicies("try", "-") }) // --watch asks again
	c := verb(&cobra.Command{
		Use:   "try -f FILE | NAME...",
		Short: "Say what would change if policies were applied, and change nothing",
		Long: `Say what would pass, or not pass any more, if the policies of a file were applied, and change nothing.
It asks for connections of the containers that the policies select: with the other containers of their
network, and with the outside; at the ports that the policies name, at one of TCP that they do not (other
ports), and for a ping. It asks policies alone, as they are known here now. With NAMEs it asks of policies that were applied with
the annotation grapevine.io/mode: try, which every host tries all the while: see ` + "`grapevine policy list`" + `.

Then it says which connections would be cut of those that were seen on all hosts: those that are open, and those that ended of late, as
` + "`grapevine traffic --all`" + ` lists them. Counting begins with the first question (GRAPEVINE_TRAFFIC=on: it always does), so ask again later,
or with --watch: what is enforced stays as it is.`,
		Example: `  grapevine policy try -f db.yaml
  grapevine policy try -f db.yaml --watch
  grapevine policy try shop_default/db               # that is tried already
  grapevine policy get | grapevine -H ssh://host7 policy try -f -    # in another cluster`,
		Args: func(c *cobra.Command, names []string) error {
			if file != "" {
				return noNames(c, names)
			}
			return nil
		},
		ValidArgsFunction: complete(triedNames),
	}, patience, func(ctx context.Context, c *api.Client, names []string) (api.Trial, error) {
		text, err := "", error(nil)
		switch {
		case len(names) > 0:
			text, err = triedText(ctx, c, names)
		case file == "-":
			text, err = input()
		default:
			text, err = readPolicies("try", file)
		}
		if err != nil {
			return api.Trial{}, err
		}
		return c.Policies().Try(ctx, api.ApplyRequest{Text: text})
	}, showTrial)
	c.Flags().StringVarP(&file, "filename", "f", "", "the file; - is the standard input")
	return watched(c)
}

// triedPolicies are those that are only tried.
func triedPolicies(ctx context.Context, c *api.Client) ([]api.Policy, error) {
	all, err := c.Policies().List(ctx)
	return slices.DeleteFunc(all.Policies, func(p api.Policy) bool { return p.Mode != api.ModeTry }), err
}

func triedNames(ctx context.Context, c *api.Client) (map[string]string, error) {
	list, err := triedPolicies(ctx, c)
	names := map[string]string{}
	for _, p := range list {
		names[p.String()] = p.Kind + ", applied on " + p.Author
	}
	return names, err
}

// triedText is what policies say that are only tried.
func triedText(ctx context.Context, c *api.Client, names []string) (string, error) {
	list, err := triedPolicies(ctx, c)
	if err != nil {
		return "", err
	}
	is := func(p api.Policy, name string) bool { return p.String() == name }
	if list, err = pick("tried policy", list, names, is, api.Policy.String); err != nil {
		return "", err
	}
	var texts []string
	for _, p := range list {
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "---\n"), nil
}

// mostShown is how many changes are shown; all are in JSON.
const mostShown = 50

// mostNames is how many names a line has.
const mostNames = 4

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
	if t.Seen != nil {
		showReplay(w, *t.Seen)
	}
	return nil
}

// showReplay says what would have become of connections that were seen.
func showReplay(w io.Writer, r api.Replay) {
	cut, open, unsure, through := 0, 0, 0, 0
	for _, c := range r.Changes {
		switch {
		case c.Allowed:
			through += c.Connections
		case len(c.Unless) > 0:
			unsure += c.Connections
		default:
			cut, open = cut+c.Connections, open+c.Open
		}
	}
	fmt.Fprintf(w, "\nOf %s seen on all hosts, %d would be cut", words.Plural(r.Judged, "connection"), cut)
	if open > 0 {
		fmt.Fprintf(w, ", of which %d open", open)
	}
	if unsure > 0 {
		fmt.Fprintf(w, ", and %d unless it is by a name that is let through", unsure)
	}
	if through > 0 {
		fmt.Fprintf(w, "; %d that failed would pass", through)
	}
	fmt.Fprintln(w, ".")
	for _, c := range r.Changes[:min(mostShown, len(r.Changes))] {
		verdict := "would be cut"
		switch {
		case c.Allowed:
			verdict = "failed, would pass"
		case len(c.Unless) > 0:
			verdict += ", unless it was told for " + strings.Join(c.Unless[:min(mostNames, len(c.Unless))], ", ")
		}
		count := words.Plural(c.Connections, "connection")
		if c.Open > 0 {
			count += fmt.Sprintf(" (%d open)", c.Open)
		}
		fmt.Fprintf(w, "%s to %s: %s: %s: %s\n", peerWords(c.From), peerWords(c.To), c.What, count, verdict)
		for _, r := range c.Rules {
			fmt.Fprintf(w, "    %s (%s)\n", r.Rule, r.Action)
		}
	}
	if more := len(r.Changes) - mostShown; more > 0 {
		fmt.Fprintf(w, "... and %s (all: -o json)\n", words.Plural(more, "more pair"))
	}
	if r.Gone > 0 {
		fmt.Fprintf(w, "Left out: %s of containers that have gone.\n", words.Plural(r.Gone, "connection"))
	}
	if r.Left > 0 {
		fmt.Fprintf(w, "Left out: %s, since there are too many to ask for.\n", words.Plural(r.Left, "connection"))
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, n)
	}
}
