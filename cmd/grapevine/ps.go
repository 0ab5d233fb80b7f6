package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

// container is a line of `grapevine ps`: a container on a network.
type container struct {
	api.Endpoint
	State string `json:"state"` // "up", "paused", or how its host is
}

func newPS() *cobra.Command {
	here := false
	c := verb(&cobra.Command{
		Use:     "ps [NAME...]",
		Aliases: []string{"containers"},
		Short:   "List the containers of all hosts",
		Long: `List the containers of all hosts, a line for each network that they are on: all of them, or
those of containers, networks, hosts or addresses. A container whose host does not answer is
listed as long as the cluster knows of it. Published ports are listed on their own host.`,
		Example: `  grapevine ps
  grapevine ps db
  grapevine ps blue --here             # on this host alone
  grapevine ps -o json | jq -r '.[] | select(.state != "up") | .name'`,
		Args:              named("a container", 0, 0),
		ValidArgsFunction: complete(knownNames),
	}, patience, func(ctx context.Context, c *api.Client, names []string) ([]container, error) {
		nodes, err := c.Nodes(ctx)
		if err != nil {
			return nil, err
		}
		all, err := c.Endpoints(ctx)
		if err != nil {
			return nil, err
		}
		if all, err = endpointsOf(ctx, c, all, names); err != nil {
			return nil, err
		}
		if here {
			all = slices.DeleteFunc(all, func(e api.Endpoint) bool { return !e.Here })
		}
		return containers(all, nodes), nil
	}, showContainers)
	c.Flags().BoolVar(&here, "here", false, "only those of this host")
	return watched(c)
}

// containers adds to endpoints how their hosts are, and sorts them by name.
func containers(all []api.Endpoint, nodes []api.Node) []container {
	state := map[string]string{}
	for _, n := range nodes {
		switch {
		case n.Doubtful:
			state[n.Name] = "host doubtful"
		case n.Alive:
			state[n.Name] = "up"
		default:
			state[n.Name] = "host dead"
		}
	}
	list := []container{}
	for _, e := range all {
		at := cmp.Or(state[e.Host], "host unknown")
		if e.Paused && at == "up" {
			at = "paused"
		}
		list = append(list, container{e, at})
	}
	slices.SortStableFunc(list, func(a, b container) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Network, b.Network), cmp.Compare(a.Host, b.Host))
	})
	return list
}

func showContainers(w io.Writer, list []container) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "No containers.")
		return err
	}
	var text strings.Builder
	err := table(&text, "CONTAINER\tID\tNETWORK\tADDRESS\tHOST\tSTATE\tPORTS", func(row func(string, ...any)) {
		for _, c := range list {
			row("%s\t%s\t%s\t%s\t%s\t%s\t%s", dash(c.Name), shortID(c.Container), shortName(c.Network), dash(addresses(c.Endpoint)), c.Host, c.State, dash(ports(c.Endpoint)))
		}
	})
	if err == nil {
		_, err = io.WriteString(w, screenOf(w).cut(text.String()))
	}
	return err
}

// shortID is an ID as `docker ps` shows it.
func shortID(id string) string { return dash(id[:min(len(id), 12)]) }

// addresses are all of an endpoint.
func addresses(e api.Endpoint) string {
	var list []string
	for _, a := range slices.Concat(e.Addrs, e.LinkLocal) {
		list = append(list, a.String())
	}
	return strings.Join(list, ",")
}

func hasAddress(e api.Endpoint, word string) bool {
	addr, err := netip.ParseAddr(word)
	return err == nil && slices.Contains(slices.Concat(e.Addrs, e.LinkLocal), addr)
}

// ports are those that are published for an endpoint.
func ports(e api.Endpoint) string {
	var list []string
	for _, p := range e.Ports {
		list = append(list, p.String())
	}
	return strings.Join(list, " ")
}

// endpointsOf picks what the names are of (none: all). A network and a host need not have any.
func endpointsOf(ctx context.Context, c *api.Client, all []api.Endpoint, names []string) ([]api.Endpoint, error) {
	if len(names) == 0 {
		return all, nil
	}
	empty := map[string]bool{}
	for _, name := range names {
		if slices.ContainsFunc(all, func(e api.Endpoint) bool { return ofEndpoint(e, name) }) {
			continue
		}
		known, err := knownNames(ctx, c)
		if err != nil {
			return nil, err
		}
		if _, found := known[name]; !found {
			return nil, unknownThing(name, known)
		}
		empty[name] = true
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return empty[name] })
	picked := []api.Endpoint{}
	for _, e := range all {
		if slices.ContainsFunc(names, func(name string) bool { return ofEndpoint(e, name) }) {
			picked = append(picked, e)
		}
	}
	return picked, nil
}
