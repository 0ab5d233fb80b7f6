package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
)

// wanted says which connections are asked for; of what is empty, all are.
type wanted struct {
	ends       []string // containers' names or addresses: the connection has all of them
	network    string
	port       uint16
	unanswered bool
	outside    bool
}

func newTraffic() *cobra.Command {
	var all, follow, top bool
	var w wanted
	most := 0
	c := verb(&cobra.Command{
		Use:   "traffic [NAME [NAME]]",
		Short: "Say who talks to whom: containers, ports, bytes, and whether anybody answers",
		Long: `Say who talks to whom on this host, or with --all on all hosts: each connection, the newest first, with what
went each way and how it stands. A NAME is a container or an address: its connections alone; of two NAMEs, those between them.

What containers send is counted in the kernel, each packet once, with the fast path and without. Counting begins with the first
question and ends an hour after the last (GRAPEVINE_TRAFFIC=on: it always runs). BACK is known of ends on this host and outside the
cluster, and with --all of all. With --top it is what passes now: packets and bytes a second, seen for two, the most first. The
last line says since when, and how many packets were not counted: there is room for 16384 directions of connections at once.

STATE: opening, open, closed, reset; refused: nobody listens there; unanswered: nothing came back for 3 s, as when a firewall
drops it. Of what has no connections, such as UDP: sent, answered, unanswered.`,
		Example: `  grapevine traffic
  grapevine traffic web db --all
  grapevine traffic --top --all                 # what fills the line? (with -w: again and again)
  grapevine traffic --unanswered                # a firewall, there or on the way?
  grapevine traffic --all -o json | jq '[.connections[].bytes] | add'
  timeout --preserve-status 3 grapevine traffic -f -o json     # a line of JSON for each change
  timeout --preserve-status 3 grapevine traffic -f     # as it happens; else Ctrl-C ends it`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 2 {
				return fmt.Errorf("`grapevine traffic` takes the names of two ends, not %d", len(args))
			}
			return nil
		},
		ValidArgsFunction: complete(containerNames),
	}, patience, func(ctx context.Context, c *api.Client, args []string) (api.Traffic, error) {
		var err error
		if w.ends, err = unaliased(ctx, c, args); err != nil {
			return api.Traffic{}, err
		}
		t, err := c.Traffic(ctx, w.question(all))
		if err == nil && top {
			t, err = passingNow(ctx, c, w.question(all), t)
		}
		if err == nil {
			err = w.known(ctx, c, t.Connections)
		}
		t.Connections = w.of(t.Connections)
		return t, err
	}, func(out io.Writer, t api.Traffic) error { return showTraffic(out, t, most, top) })
	once := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case most < 0:
			return fmt.Errorf("--most takes a number of lines, and not %d (0: all)", most)
		case follow && top:
			return errors.New("--follow says each change, and --top what passes a second: use one of them (--top -w shows it again and again)")
		case !follow:
			return once(c, args)
		}
		format, client, err := asking(c)
		if err != nil {
			return err
		}
		if w.ends, err = unaliased(c.Context(), client, args); err != nil {
			return err
		}
		return followTraffic(c.Context(), client, c.OutOrStdout(), all, w, format == "json")
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "on all hosts")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "say it as it happens, a line for each change")
	c.Flags().BoolVar(&top, "top", false, "what passes now, a second, the most first")
	c.Flags().StringVar(&w.network, "network", "", "of containers on this network alone")
	c.Flags().Uint16Var(&w.port, "port", 0, "to this port alone")
	c.Flags().BoolVar(&w.unanswered, "unanswered", false, "what nobody answered, or refused, alone")
	c.Flags().BoolVar(&w.outside, "outside", false, "with the hosts and the outside alone")
	c.Flags().IntVar(&most, "most", 50, "so many lines; 0: all")
	return watched(c)
}

// unaliased puts a container's name in place of an alias, by which who counts does not know it.
func unaliased(ctx context.Context, c *api.Client, names []string) ([]string, error) {
	if len(names) == 0 {
		return names, nil
	}
	endpoints, err := c.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	return namesOf(endpoints, names), nil
}

// namesOf is pure: an alias that one container has alone is replaced by that one's name.
func namesOf(endpoints []api.Endpoint, names []string) []string {
	names = slices.Clone(names)
	for i, name := range names {
		if slices.ContainsFunc(endpoints, func(e api.Endpoint) bool { return e.Name == name || e.Network+"/"+e.Name == name }) {
			continue
		}
		var meant []string
		for _, e := range endpoints {
			if slices.Contains(e.Aliases, name) && e.Name != "" && !slices.Contains(meant, e.Name) {
				meant = append(meant, e.Name)
			}
		}
		if len(meant) == 1 {
			names[i] = meant[0]
		}
	}
	return names
}

// question is what the agents are asked for: what they know to be none of it they leave out.
func (w wanted) question(all bool) api.TrafficOf {
	return api.TrafficOf{All: all, Ends: w.ends, Network: w.network, Port: w.port}
}

func (w wanted) of(list []api.Connection) []api.Connection {
	out := []api.Connection{}
	for _, c := range list {
		switch {
		case !w.question(false).Has(c.From, c.To): // of an agent before this one
		case w.port != 0 && c.To.Port != w.port:
		case w.unanswered && c.State != "unanswered" && c.State != "refused":
		case w.outside && c.From.Host != "" && c.To.Host != "":
		default:
			out = append(out, c)
		}
	}
	return out
}

// known says of a name that it is nobody's: who asks for it would wait for ever. What was seen had its name.
func (w wanted) known(ctx context.Context, client *api.Client, seen []api.Connection) error {
	strange := slices.DeleteFunc(slices.Clone(w.ends), func(name string) bool {
		if addr, err := netip.ParseAddr(name); err == nil && addr.IsValid() {
			return true
		}
		return slices.ContainsFunc(seen, func(c api.Connection) bool { return c.From.Is(name) || c.To.Is(name) })
	})
	if len(strange) == 0 && w.network == "" {
		return nil
	}
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return err
	}
	endpoints, err := client.Endpoints(ctx)
	if err != nil {
		return err
	}
	networks, err := client.Networks(ctx)
	if err != nil {
		return err
	}
	var names, called []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	for _, e := range endpoints {
		if e.Name != "" {
			names, called = append(names, e.Name), append(called, e.Network+"/"+e.Name)
		}
	}
	for _, name := range strange {
		if !slices.Contains(names, name) && !slices.Contains(called, name) {
			return unknown("container or host", name, names)
		}
	}
	if w.network == "" {
		return nil
	}
	_, err = pick("network", networks, []string{w.network}, func(n api.Network, name string) bool { return n.Name == name }, func(n api.Network) string { return n.Name })
	return err
}

func trafficEnd(e api.TrafficEnd, port bool) string {
	text := words.Printable(e.Name)
	switch {
	case e.Host != "":
		text += "@" + words.Printable(e.Host)
	case text == "":
		text = e.Addr.String()
	}
	if port && e.Port != 0 {
		if e.Name == "" {
			return net.JoinHostPort(text, strconv.Itoa(int(e.Port)))
		}
		text += ":" + strconv.Itoa(int(e.Port))
	}
	return text
}

// trafficNetworks are those of the ends.
func trafficNetworks(c api.Connection) string {
	list := slices.Compact([]string{c.From.Network, c.To.Network})
	for i, n := range list {
		if n == "" {
			list[i] = "outside"
		}
	}
	return words.Printable(strings.Join(list, ">"))
}

func trafficBytes(packets, bytes uint64) string {
	const kilo = 1000
	switch {
	case packets == 0:
		return "-"
	case bytes < kilo:
		return fmt.Sprintf("%d B", bytes)
	case bytes < kilo*kilo:
		return fmt.Sprintf("%.1f kB", float64(bytes)/kilo)
	case bytes < kilo*kilo*kilo:
		return fmt.Sprintf("%.1f MB", float64(bytes)/kilo/kilo)
	}
	return fmt.Sprintf("%.1f GB", float64(bytes)/kilo/kilo/kilo)
}

// connectionCells are a row of the table.
func connectionCells(c api.Connection) []any {
	to := trafficEnd(c.To, c.Proto != "icmp") + "/" + c.Proto
	return []any{c.First.Local().Format("15:04:05"), trafficEnd(c.From, false), to, trafficNetworks(c), c.State, c.Packets, trafficBytes(c.Packets, c.Bytes), c.BackPackets, trafficBytes(c.BackPackets, c.BackBytes)}
}

func showTraffic(w io.Writer, t api.Traffic, most int, top bool) error {
	list := t.Connections
	if most > 0 && len(list) > most {
		list = list[:most]
	}
	var text strings.Builder
	header := "TIME\tFROM\tTO\tNETWORK\tSTATE\tPACKETS\tBYTES\tBACK\tBYTES"
	if top {
		header = "TIME\tFROM\tTO\tNETWORK\tSTATE\tPACKETS/S\tBYTES/S\tBACK/S\tBYTES/S"
	}
	err := table(&text, header, func(row func(string, ...any)) {
		for _, c := range list {
			row("%s\t%s\t%s\t%s\t%s\t%d\t%s\t%d\t%s", connectionCells(c)...)
		}
	})
	if err == nil {
		_, err = io.WriteString(w, screenOf(w).cut(text.String()))
	}
	if err == nil && len(list) < len(t.Connections) {
		_, err = fmt.Fprintf(w, "... and %d more (--most 0: all)\n", len(t.Connections)-len(list))
	}
	if err == nil {
		_, err = fmt.Fprintln(w, "-- "+countedBy(t))
	}
	return err
}

// countedBy says who counted, since when, and what was not counted.
func countedBy(t api.Traffic) string {
	var since time.Time
	var lost uint64
	var counted []string
	not := map[string][]string{} // hosts, by why
	left := 0
	for _, h := range t.Hosts {
		if h.Error != "" {
			not[h.Error] = append(not[h.Error], words.Printable(h.Name))
			continue
		}
		counted = append(counted, h.Name)
		lost, left = lost+h.Lost, left+h.Left
		if h.Since.After(since) {
			since = h.Since
		}
	}
	text := "counted on no host"
	if len(counted) > 0 {
		text = "counted on " + words.SomeHosts(counted, len(t.Hosts))
	}
	if !since.IsZero() {
		text += " since " + since.Local().Format("15:04:05")
	}
	text += fmt.Sprintf("; %s lost", words.Plural(int(lost), "packet"))
	if lost > 0 {
		text += ", of more connections at once than there is room for"
	}
	if left > 0 {
		text += fmt.Sprintf("; the oldest %d counts were left out", left)
	}
	for _, why := range slices.Sorted(maps.Keys(not)) {
		text += "; not counted on " + words.SomeHosts(not[why], len(t.Hosts)) + ": " + words.Printable(why)
	}
	return text
}

// followTraffic prints each connection when it comes, and when its state changes, until ctx ends.
func followTraffic(ctx context.Context, client *api.Client, w io.Writer, all bool, want wanted, asJSON bool) error {
	type key struct {
		from, to api.TrafficEnd
		proto    string
	}
	states := map[key]string{}
	said, first := "", true
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	ask := func(ctx context.Context) (api.Traffic, error) { return client.Traffic(ctx, want.question(all)) }
	return follow(ctx, ask, func(t api.Traffic) error {
		if err := want.known(ctx, client, t.Connections); err != nil && first {
			return err
		}
		first = false
		list := want.of(t.Connections)
		slices.Reverse(list)
		now := make(map[key]string, len(list))
		for _, c := range list {
			k := key{c.From, c.To, c.Proto}
			k.from.Name, k.to.Name = "", "" // may be known later
			now[k] = c.State
			if states[k] == c.State {
				continue
			}
			if asJSON {
				if err := lines.Encode(c); err != nil {
					return err
				}
				continue
			}
			cells := connectionCells(c)
			if _, err := fmt.Fprintf(w, "%s  %-24s %-32s %-12s %-10s %d, %s  < %d, %s\n", cells...); err != nil {
				return err
			}
		}
		states = now
		if by := countedBy(t); !asJSON && by != said && (said == "" || strings.Contains(by, "lost, of") || strings.Contains(by, "not counted on")) {
			said = by
			if _, err := fmt.Fprintln(w, "-- "+by); err != nil {
				return err
			}
		}
		return nil
	})
}
