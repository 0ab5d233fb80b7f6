package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
)

func newPolicyCount() *cobra.Command {
	var all bool
	c := verb(&cobra.Command{
		Use:   "count [NAME...]",
		Short: "Say what each rule of policies let through, and what it denied",
		Long: `Say what each rule of policies let through or denied on this host, or with --all on all hosts: connections, packets and
bytes. Of a rule that accepts these are all packets of the connections that it let begin, both ways. What policies isolate from has a
line for each container: what no rule let it send, or be sent. WouldDeny is what a policy would have denied that is only tried. With NAMEs (NETWORK/NAME, or NAME of a ClusterNetworkPolicy): of these policies
alone.

A rule counts at the container that it is about. Its counters begin when the rule comes to be or changes, and when Open vSwitch
starts anew. One line stands for equal rules of several policies, which it names. Who asks again within a second is told the same.`,
		Example: `  grapevine policy count
  grapevine policy count shop_default/db --all
  grapevine policy count --all -o json | jq '.rules[] | select(.packets == 0) | .rule'   # rules that nobody uses`,
		Args:              named("a policy", 0, 0),
		ValidArgsFunction: complete(policyNames),
	}, patience, func(ctx context.Context, c *api.Client, names []string) (api.RuleCounts, error) {
		counts, err := c.Policies().Counts(ctx, all)
		if err != nil || len(names) == 0 {
			return counts, err
		}
		known, err := c.Policies().List(ctx)
		if err != nil {
			return counts, err
		}
		is := func(p api.Policy, name string) bool { return p.String() == name }
		if _, err := pick("policy", known.Policies, names, is, api.Policy.String); err != nil {
			return counts, err
		}
		counts.Rules = slices.DeleteFunc(counts.Rules, func(r api.RuleCount) bool { return !slices.ContainsFunc(names, r.Of) })
		return counts, nil
	}, showRuleCounts)
	c.Flags().BoolVarP(&all, "all", "a", false, "on all hosts")
	return watched(c)
}

func showRuleCounts(w io.Writer, counts api.RuleCounts) error {
	if len(counts.Rules) == 0 {
		fmt.Fprintln(w, "No rule has counted anything: no policy selects a container here.  (--all: on all hosts)")
	} else if err := table(w, "RULE\tACTION\tCONNECTIONS\tPACKETS\tBYTES\tHOSTS", func(row func(string, ...any)) {
		for _, r := range counts.Rules {
			connections := "-"
			if r.Action == "Accept" || r.Action == api.WouldDeny {
				connections = fmt.Sprint(r.Connections)
			}
			row("%s\t%s\t%s\t%d\t%s\t%d", ruleOf(r), r.Action, connections, r.Packets, trafficBytes(r.Packets, r.Bytes), r.Hosts)
		}
	}); err != nil {
		return err
	}
	for _, n := range counts.Notes {
		fmt.Fprintln(w, words.Printable(n))
	}
	return nil
}

// ruleOf says what counted: a rule, or that no rule matched.
func ruleOf(r api.RuleCount) string {
	switch {
	case r.Container != "":
		return words.Printable(fmt.Sprintf("no rule, %s of %s/%s (%s)", r.Direction, r.Network, r.Container, some(r.Policies)))
	case len(r.Also) > 0:
		return words.Printable(fmt.Sprintf("%s (and %s)", r.First(), some(r.Also)))
	}
	return words.Printable(r.Rule)
}

// some are the first of a list; all are in JSON.
func some(list []string) string {
	const shown = 3
	text := strings.Join(list[:min(shown, len(list))], ", ")
	if more := len(list) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
