package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newService() *cobra.Command {
	c := verb(&cobra.Command{
		Use:   "service",
		Short: "Give containers one address that balances between them",
		Long: `A service is a name of a network with an address of its own, and a port of it leads to one of its
replicas: the containers, on whichever hosts, that have a name or labels. Each container's own kernel chooses, so
nothing is in the way of the packets, and a replica sees its client's address. docs/use/services.md has more.`,
		Example: `  grapevine service create web --network blue --port 80:8080
  grapevine service list
  grapevine service show web
  grapevine service expose web 443:80
  grapevine service remove web`,
	}, patience, list(of((*api.Client).Services, api.ServiceCalls.List)), showServices)
	c.AddCommand(newServiceCreate(), newServiceList(), newServiceShow(), newServiceExpose(), newServiceUnexpose(), newServiceRemove())
	return c
}

func newServiceCreate() *cobra.Command {
	var r api.CreateServiceRequest
	var labels []string
	c := verb(&cobra.Command{
		Use:   "create NAME --network NETWORK --port PORT[:TARGET][/PROTOCOL]",
		Short: "Create a service",
		Long: `Create a service on a network. It gets an address of the network, which no other host hands out, and an IPv6
one as well if the network has IPv6. The containers of the network find it by its name. Its replicas are the
containers on the network that have that name, as a container, a Compose service or a network alias; with
--select NAME those that have another one, with --label those that have all of these labels. With --replace a service
that is there gets the ports, replicas and affinity that are said, and keeps its address and its exposed ports.`,
		Example: `  grapevine service create web --network blue --port 80:8080                    # all replicas of Compose's service web
  grapevine service create www --network blue --port 80:8080 --select web       # the same, by another name
  grapevine service create dns --network blue --port 53:5353/udp --label tier=dns
  grapevine service create shop --network blue --port 443 --affinity            # each client stays with one replica`,
		Args: named("a service", 1, 1),
	}, patience, func(ctx context.Context, c *api.Client, names []string) (api.Done, error) {
		r.Name, r.Labels = names[0], map[string]string{}
		for _, l := range labels {
			k, v, ok := strings.Cut(l, "=")
			if !ok || k == "" {
				return api.Done{}, fmt.Errorf("create service %s: label %.80q is not KEY=VALUE", r.Name, l)
			}
			r.Labels[k] = v
		}
		return c.Services().Create(ctx, r)
	}, showDone)
	f := c.Flags()
	f.StringVar(&r.Network, "network", "", "the network that it is on")
	f.StringArrayVar(&r.Ports, "port", nil, "a port of its address, and that of its replicas if it is another one: 80:8080, 53:5353/udp; may be said several times")
	f.StringVar(&r.Select, "select", "", "the name or alias of its replicas (default: its own name)")
	f.StringArrayVar(&labels, "label", nil, "a label of its replicas, KEY=VALUE; may be said several times")
	f.BoolVar(&r.Affinity, "affinity", false, "each container stays with one replica, as long as that gets new connections")
	f.BoolVar(&r.Replace, "replace", false, "change the service of that name to what is said here; it keeps its address")
	return c
}

func newServiceList() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "list",
		Short: "List the services",
		Example: `  grapevine service list
  grapevine service list -o json | jq -r '.[] | select(.replicas == []) | .name'`,
		Args: noNames,
	}, patience, list(of((*api.Client).Services, api.ServiceCalls.List)), showServices)
}

func showServices(w io.Writer, all []api.Service) error {
	return table(w, "SERVICE\tADDRESS\tPORTS\tREPLICAS\tNOTE", func(row func(string, ...any)) {
		for _, s := range all {
			in := 0
			for _, r := range s.Replicas {
				if r.In {
					in++
				}
			}
			row("%s\t%s\t%s\t%d of %d\t%s", s, addrTexts(s), strings.Join(s.Ports, " "), in, len(s.Replicas), dash(strings.Join(s.Notes, "; ")))
		}
	})
}

func addrTexts(s api.Service) string {
	var list []string
	for _, a := range s.Addrs {
		list = append(list, a.String())
	}
	return strings.Join(list, " ")
}

func newServiceShow() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "show NAME...",
		Short: "Show who is behind a service",
		Long:  `Show services (NETWORK/NAME, or NAME), and which replicas get new connections: those that run and are healthy, on hosts that answer.`,
		Example: `  grapevine service show web
  grapevine service show blue/web -o json`,
		Args:              named("a service", 1, 0),
		ValidArgsFunction: complete(serviceNames),
	}, patience, func(ctx context.Context, c *api.Client, names []string) ([]api.Service, error) {
		all, err := c.Services().List(ctx)
		if err != nil {
			return nil, err
		}
		is := func(s api.Service, name string) bool { return s.String() == name || s.Name == name }
		return pick("service", all, names, is, api.Service.String)
	}, showServiceDetails)
}

func serviceNames(ctx context.Context, c *api.Client) (map[string]string, error) {
	all, err := c.Services().List(ctx)
	names := map[string]string{}
	for _, s := range all {
		names[s.String()] = addrTexts(s)
	}
	return names, err
}

func showServiceDetails(w io.Writer, list []api.Service) error {
	var errs []error
	for i, s := range list {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s: %s, ports %s, created on host %s\n", s, addrTexts(s), strings.Join(s.Ports, " "), s.Author)
		var of []string
		if s.Select != "" {
			of = append(of, "name "+s.Select)
		}
		for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
			of = append(of, "label "+k+"="+s.Labels[k])
		}
		if s.Affinity {
			of = append(of, "each client stays with one")
		}
		fmt.Fprintf(w, "replicas by %s\n", strings.Join(of, ", "))
		if len(s.Exposed) > 0 {
			fmt.Fprintf(w, "exposed on all hosts: %s\n", strings.Join(s.Exposed, " "))
		}
		for _, n := range s.Notes {
			fmt.Fprintln(w, n)
		}
		if len(s.Replicas) == 0 {
			continue
		}
		errs = append(errs, table(w, "REPLICA\tHOST\tADDRESS\tNEW CONNECTIONS", func(row func(string, ...any)) {
			for _, r := range s.Replicas {
				what := "yes"
				if !r.In {
					what = "no: " + r.Why
				}
				row("%s\t%s\t%s\t%s", dash(r.Name), r.Host, addrTexts(api.Service{Addrs: r.Addrs}), what)
			}
		}))
	}
	return errors.Join(errs...)
}

func newServiceRemove() *cobra.Command {
	return verb(&cobra.Command{
		Use: "remove NAME", Aliases: []string{"rm", "delete"},
		Short: "Remove a service",
		Long: `Remove a service (NETWORK/NAME, or NAME if one network only has it). Its address is free then. Its replicas
are the containers that they were, and have their own names.`,
		Example:           `  grapevine service remove web`,
		Args:              named("a service", 1, 1),
		ValidArgsFunction: complete(serviceNames),
	}, patience, func(ctx context.Context, c *api.Client, names []string) (api.Done, error) {
		return c.Services().Remove(ctx, api.RemoveServiceRequest{Name: names[0]})
	}, showDone)
}
