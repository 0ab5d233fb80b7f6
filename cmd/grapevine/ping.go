package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newPing() *cobra.Command {
	count, interval := 4, time.Second
	c := &cobra.Command{
		Use:   "ping HOST",
		Short: "Send packets to another host and back, past the tunnel and through it",
		Long: `Send packets to another host of the cluster and back: through the underlay (UDP between the agents),
and through the tunnel, by both switches, as containers' packets go: a small one and one of the
largest size. Of one that is lost it is said whether it arrived there.

Exit status: 0 all came back; 1 some did not; 2 nobody could be asked.`,
		Example: `  grapevine ping host2
  grapevine ping host2 -c 1 -o json | jq '.[0].tunnel.milliseconds'`,
		Args:              named("a host", 1, 1),
		ValidArgsFunction: complete(hostNames),
		RunE: func(c *cobra.Command, args []string) error {
			format, client, err := asking(c)
			if err != nil {
				return err
			}
			w := c.OutOrStdout()
			if format == "json" {
				w = io.Discard
			}
			list, err := pingEach(c.Context(), client, w, args[0], count, interval)
			if err != nil {
				fmt.Fprintln(c.ErrOrStderr(), "grapevine:", err)
				return errNotAsked
			}
			if format == "json" {
				err = printJSON(c.OutOrStdout(), list)
			} else {
				err = showPings(w, list)
			}
			for _, p := range list {
				if p.Error != "" || p.Underlay.Lost+p.Tunnel.Lost+p.Full.Lost != "" {
					return errors.Join(err, errSomethingWrong)
				}
			}
			return err
		},
	}
	c.Flags().IntVarP(&count, "count", "c", count, "how many times; 0: until Ctrl-C")
	c.Flags().DurationVarP(&interval, "interval", "i", interval, "how long from one to the next")
	return c
}

// pingEach pings so many times, or until ctx ends, and says what came back of each.
func pingEach(ctx context.Context, client *api.Client, w io.Writer, host string, count int, interval time.Duration) (list []api.Ping, err error) {
	tick := time.NewTicker(max(interval, 10*time.Millisecond))
	defer tick.Stop()
	for n := 1; ; n++ {
		p, err := onePing(ctx, client, host)
		if ctx.Err() != nil {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		list = append(list, p)
		if n == 1 {
			fmt.Fprintf(w, "%s (%s): through the underlay, and through the tunnel as containers' packets go\n", p.Host, p.VTEP)
		}
		fmt.Fprintf(w, "%d  %s\n", n, pingLine(p))
		if n == count {
			return list, nil
		}
		select {
		case <-ctx.Done():
			return list, nil
		case <-tick.C:
		}
	}
}

func onePing(ctx context.Context, client *api.Client, host string) (api.Ping, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p, err := client.Ping(ctx, host)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Status == http.StatusNotFound {
		nodes, askErr := client.Nodes(ctx)
		if askErr == nil && len(nodes) > 0 {
			var known []string
			for _, n := range nodes {
				if !n.Self {
					known = append(known, n.Name)
				}
			}
			return p, unknown("host", host, known)
		}
	}
	return p, err
}

func pingLine(p api.Ping) string {
	if p.Error != "" {
		return p.Error
	}
	say := func(e api.Echo) string {
		if e.Lost != "" {
			return e.Lost
		}
		return fmt.Sprintf("%.2f ms", e.Milliseconds)
	}
	if lost := p.Tunnel.Lost; lost != "" && lost == p.Full.Lost {
		return fmt.Sprintf("underlay: %s, tunnel: %s", say(p.Underlay), lost)
	}
	encrypted := ""
	if p.Encrypted != "" {
		encrypted = ", what encrypted networks send: " + p.Encrypted
	}
	return fmt.Sprintf("underlay: %s, tunnel: %s, with %d bytes: %s%s", say(p.Underlay), say(p.Tunnel), p.Full.Bytes, say(p.Full), encrypted)
}

// showPings sums up, and says what to do about what was lost.
func showPings(w io.Writer, list []api.Ping) error {
	if len(list) == 0 {
		return nil
	}
	type sum struct {
		came        int
		least, most float64
	}
	var ways [3]sum
	for _, p := range list {
		for i, e := range []api.Echo{p.Underlay, p.Tunnel, p.Full} {
			if p.Error != "" || e.Lost != "" {
				continue
			}
			s := &ways[i]
			if s.came == 0 || e.Milliseconds < s.least {
				s.least = e.Milliseconds
			}
			s.came, s.most = s.came+1, max(s.most, e.Milliseconds)
		}
	}
	what := []string{"underlay", "tunnel", fmt.Sprintf("tunnel, %d bytes", list[0].Full.Bytes)}
	if list[0].Error != "" {
		what[2] = "tunnel, full size"
	}
	fmt.Fprintln(w)
	lost := 0
	err := table(w, "WAY\tCAME BACK\tLEAST\tMOST", func(row func(string, ...any)) {
		for i, s := range ways {
			lost += len(list) - s.came
			if s.came == 0 {
				row("%s\t%d of %d\t-\t-", what[i], s.came, len(list))
				continue
			}
			row("%s\t%d of %d\t%.2f ms\t%.2f ms", what[i], s.came, len(list), s.least, s.most)
		}
	})
	if err == nil && lost > 0 {
		_, err = fmt.Fprintln(w, "To find out what loses them: grapevine doctor, here and on "+list[0].Host)
	}
	return err
}
