package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newEndpoints() *cobra.Command {
	here := false
	c := verb(&cobra.Command{
		Use:   "endpoints [NAME...]",
		Short: "List the containers' places in networks",
		Long: `List the containers' places in networks, and the ports (docker run -p) that this host publishes
for its own: all of them, or those of containers, networks, hosts or addresses.`,
		Example: `  grapevine endpoints
  grapevine endpoints blue
  grapevine endpoints --here           # this host's own
  grapevine endpoints blue -o json | jq -r '.[].addrs[]'
  grapevine endpoints -o json | jq -r '.[] | select(.name == "web") | .ports[]?.host'`,
		Args:              named("a network", 0, 0),
		ValidArgsFunction: complete(knownNames),
	}, patience, func(ctx context.Context, c *api.Client, names []string) ([]api.Endpoint, error) {
		all, err := c.Endpoints(ctx)
		if err != nil {
			return nil, err
		}
		if here {
			all = slices.DeleteFunc(all, func(e api.Endpoint) bool { return !e.Here })
		}
		return endpointsOf(ctx, c, all, names)
	}, showEndpoints)
	c.Flags().BoolVar(&here, "here", false, "only those of this host")
	return watched(c)
}

func showEndpoints(w io.Writer, endpoints []api.Endpoint) error {
	if err := tabulate(w, endpoints); err != nil {
		return err
	}
	for _, line := range sharedLines(endpoints) {
		fmt.Fprintln(w, line)
	}
	return nil
}

func sharedLines(endpoints []api.Endpoint) (lines []string) {
	type name struct{ network, name string }
	hosts := map[name][]string{}
	for _, e := range endpoints {
		for _, n := range e.Shared {
			if k := (name{e.Network, n}); !slices.Contains(hosts[k], e.Host) {
				hosts[k] = append(hosts[k], e.Host)
			}
		}
	}
	type group struct{ network, hosts string }
	names := map[group][]string{}
	for k, h := range hosts {
		slices.Sort(h)
		g := group{k.network, several(h)}
		names[g] = append(names[g], k.name)
	}
	groups := slices.SortedFunc(maps.Keys(names), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.network, b.network), cmp.Compare(a.hosts, b.hosts))
	})
	const most = 20
	for i, g := range groups {
		switch {
		case i == 0:
			lines = append(lines, "")
		case i == most:
			return append(lines, fmt.Sprintf("Shared: and more, of %d other sets of hosts and networks (-o json).", len(groups)-most))
		}
		slices.Sort(names[g])
		lines = append(lines, fmt.Sprintf("Shared: containers of %s answer to %s on %s.", g.hosts, several(names[g]), g.network))
	}
	return lines
}

func tabulate(w io.Writer, endpoints []api.Endpoint) error {
	return table(w, "NETWORK\tCONTAINER\tADDRESS\tMAC\tHOST\tENDPOINT\tPORTS", func(row func(string, ...any)) {
		for _, e := range endpoints {
			row("%s\t%s\t%s\t%s\t%s\t%.12s\t%s", shortName(e.Network), dash(e.Name), dash(addresses(e)), e.MAC, e.Host, e.ID, ports(e))
		}
	})
}
