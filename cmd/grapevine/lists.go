package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newNodes() *cobra.Command {
	return watched(verb(&cobra.Command{
		Use:     "nodes [HOST...]",
		Aliases: []string{"hosts"},
		Short:   "List the hosts of the cluster",
		Example: `  grapevine nodes
  grapevine nodes host2
  grapevine nodes -o json | jq -r '.[] | select(.alive | not) | .name'`,
		Args:              named("a host", 0, 0),
		ValidArgsFunction: complete(hostNames),
	}, patience, func(ctx context.Context, c *api.Client, args []string) ([]api.Node, error) {
		all, err := c.Nodes(ctx)
		if err != nil {
			return nil, err
		}
		return pick("host", all, args, isHost, func(n api.Node) string { return n.Name })
	}, showNodes))
}

func showNodes(w io.Writer, nodes []api.Node) error {
	return table(w, "NAME\tID\tVTEP\tSTATE\tPATH\tDATAPATH\tMTU\tVERSION", func(row func(string, ...any)) {
		for _, n := range nodes {
			row("%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s", n.Name, n.ID, n.VTEP, nodeState(n), dash(n.Path), datapath(n), n.MTU, dash(n.Version))
		}
	})
}

// datapath says of a host without Docker that it is one.
func datapath(n api.Node) string {
	if n.Edge {
		return dash(n.Datapath) + ", edge"
	}
	return dash(n.Datapath)
}

func nodeState(n api.Node) string {
	switch {
	case n.Self:
		return "this host"
	case n.Doubtful:
		return "doubtful"
	case n.Alive:
		return "alive"
	}
	return "dead"
}

func newNetworks() *cobra.Command {
	return watched(verb(&cobra.Command{
		Use:     "networks [NETWORK...]",
		Aliases: []string{"nets"},
		Short:   "List the networks of the cluster",
		Example: `  grapevine networks
  grapevine networks -o json | jq -r '.[] | "\(.vnid) \(.name)"'`,
		Args:              named("a network", 0, 0),
		ValidArgsFunction: complete(networkNames),
	}, patience, func(ctx context.Context, c *api.Client, args []string) ([]api.Network, error) {
		all, err := c.Networks(ctx)
		if err != nil {
			return nil, err
		}
		is := func(n api.Network, name string) bool { return n.Name == name }
		return pick("network", all, args, is, func(n api.Network) string { return n.Name })
	}, showNetworks))
}

func showNetworks(w io.Writer, networks []api.Network) error {
	return table(w, "NAME\tVNID\tSUBNETS\tENDPOINTS\tHOSTS\tNOTE", func(row func(string, ...any)) {
		for _, n := range networks {
			var subnets, notes []string
			for _, s := range n.Subnets {
				subnets = append(subnets, s.Prefix.String())
			}
			if n.VNID == 0 {
				notes = append(notes, "privileged")
			}
			if n.Internal {
				notes = append(notes, "internal")
			}
			if n.Global {
				notes = append(notes, "global")
			}
			if len(n.With) > 0 {
				notes = append(notes, "one with "+strings.Join(n.With, " and "))
			}
			if n.Encrypted {
				notes = append(notes, "encrypted")
			}
			if n.Removed {
				notes = append(notes, "removed: goes when no host uses it")
			}
			notes = append(notes, n.Notes...)
			row("%s\t%d\t%s\t%d\t%s\t%s", shortName(n.Name), n.VNID, dash(strings.Join(subnets, ",")), n.Endpoints,
				dash(strings.Join(n.Hosts, ",")), strings.Join(notes, ", "))
		}
	})
}

// shortName cuts the ID in the name of a network whose real name Docker has not
// told yet ("provisional/" and 64 digits) as Docker does.
func shortName(network string) string {
	if prefix, id, found := strings.Cut(network, "/"); found && len(id) == 64 {
		return prefix + "/" + id[:12]
	}
	return network
}

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

// sharedLines are what is said below the list of names that containers of several hosts answer to: a
// line for all of a network that the same hosts do, since a container may have aliases by the thousand.
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

// several joins some things for people: five at most.
func several(all []string) string {
	const most = 5
	if more := len(all) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), more)
	}
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
}

func tabulate(w io.Writer, endpoints []api.Endpoint) error {
	return table(w, "NETWORK\tCONTAINER\tADDRESS\tMAC\tHOST\tENDPOINT\tPORTS", func(row func(string, ...any)) {
		for _, e := range endpoints {
			row("%s\t%s\t%s\t%s\t%s\t%.12s\t%s", shortName(e.Network), dash(e.Name), dash(addresses(e)), e.MAC, e.Host, e.ID, ports(e))
		}
	})
}
