package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
)

func newPolicyLog() *cobra.Command {
	var follow bool
	c := verb(&cobra.Command{
		Use:   "log",
		Short: "Say whom policies let through or denied, connection by connection, where a policy wants that",
		Long: `Say of connections that began on this host, or came to its containers from outside, what policies say of them: who called whom,
at which port, and which rule decided. "tried" is what passed, and would have been denied by a policy that is only tried. Logged is what a policy wants that has the annotation grapevine.io/log: denied (what it denies), or
all. The agent's own log has the same.

The host where a connection begins logs it, whichever end the policy is about. What begins before the policy is there is not logged. Up to
50 connections a second are judged, and up to 20 of one sender; how many more there were the last line says. The last 1024 are
remembered, until the agent ends.`,
		Example: `  grapevine policy log
  timeout --preserve-status 3 grapevine policy log -f     # as it happens; else Ctrl-C ends it
  grapevine policy log -o json | jq '.connections[] | select(.allowed | not) | .to'`,
		Args: noNames,
	}, patience, func(ctx context.Context, c *api.Client, _ []string) (api.PolicyLog, error) {
		return c.Policies().Log(ctx, 0)
	}, func(w io.Writer, l api.PolicyLog) error {
		if err := showLogged(w, l); err != nil {
			return err
		}
		_, err := fmt.Fprintln(w, "-- "+logState(l))
		return err
	})
	once := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if !follow {
			return once(c, args)
		}
		client, err := newClient(c)
		if err != nil {
			return err
		}
		return followLog(c.Context(), client, c.OutOrStdout())
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "say it as it happens")
	return c
}

func showLogged(w io.Writer, l api.PolicyLog) error {
	for _, c := range l.Connections {
		verdict := "denied"
		switch {
		case c.Tried:
			verdict = "tried"
		case c.Allowed:
			verdict = "allowed"
		}
		to := trafficEnd(c.To, c.Proto != "icmp") + "/" + c.Proto
		if _, err := fmt.Fprintf(w, "%s  %-7s  %s -> %s  %s\n", c.Time.Local().Format(time.DateTime), verdict, trafficEnd(c.From, false), to, words.Printable(c.RuleNames())); err != nil {
			return err
		}
	}
	return nil
}

// logState says how complete it is.
func logState(l api.PolicyLog) string {
	switch {
	case l.Error != "":
		return "nothing is logged: " + words.Printable(l.Error)
	case !l.Wanted:
		return "no policy wants anything logged: give one the annotation grapevine.io/log: denied, or all"
	case l.Lost > 0:
		return fmt.Sprintf("%d connections or packets were not judged, and are not here: there were too many at once", l.Lost)
	}
	return "nothing was left out"
}

// followLog prints what is logged as it happens, until ctx ends.
func followLog(ctx context.Context, client *api.Client, w io.Writer) error {
	said := ""
	var last uint64
	ask := func(ctx context.Context) (api.PolicyLog, error) { return client.Policies().Log(ctx, last) }
	return follow(ctx, ask, func(l api.PolicyLog) error {
		last = l.Last
		if err := showLogged(w, l); err != nil {
			return err
		}
		if state := logState(l); state != said {
			said = state
			if _, err := fmt.Fprintln(w, "-- "+state); err != nil {
				return err
			}
		}
		return nil
	})
}
