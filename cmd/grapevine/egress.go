package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

func newEgress() *cobra.Command {
	c := verb(&cobra.Command{
		Use:   "egress",
		Short: "Give networks one address for the outside, held by one of several hosts",
		Long: `An egress is an address of the hosts' LAN. All that containers of its networks send to the outside, from
whichever hosts, leaves with it: by the gateway that holds it. If that host dies, another gateway takes it within
about two seconds. Without one that holds it nothing of those networks leaves. With --label it is of some of their containers.
docs/use/egress.md has more.`,
		Example: `  grapevine egress create mail --network blue --address 192.0.2.25 --gateways host1,host2
  grapevine egress create smtp --network blue --label role=smtp --address 192.0.2.26
  grapevine egress list
  grapevine egress show mail
  grapevine egress set mail --gateways host2,host3
  grapevine egress remove mail`,
	}, patience, list(of((*api.Client).Egresses, api.EgressCalls.List)), showEgresses)
	c.AddCommand(newEgressCreate(), newEgressSet(), newEgressList(), newEgressShow(), newEgressRemove())
	return c
}

func newEgressCreate() *cobra.Command {
	var r api.CreateEgressRequest
	c := verb(&cobra.Command{
		Use:   "create NAME --network NETWORK [--label ROLE=MAIL] --address ADDRESS [--gateways HOST|LABEL=VALUE,...]",
		Short: "Create an egress",
		Long: `Create an egress: an address from which all that containers of a network send to the outside leaves, or one of IPv4 and
one of IPv6. Without one of a family nothing leaves by that. The
address is free on the LAN of the gateways, and within the subnet of an interface of theirs. The gateway that holds it
adds it there, and takes it away when it is another one's; where an administrator has given it to a host, it is taken
as it is, and stays. What containers send to each other, and to hosts of the cluster, goes as ever.

With --label only those containers of the networks leave by it that have the label: role=mail, role!=mail, role, !role,
"role in (mail,smtp)" or "role notin (mail,smtp)". Said several times, all have to be met. Such an egress comes before one
of the whole network. Of several that ask for a container's labels, the one with the most --label counts, and of those with
as many the first by name. A container whose labels are not known leaves by none of them, and not by its own host.`,
		Example: `  grapevine egress create mail --network blue --address 192.0.2.25
  grapevine egress create mail --network blue --address 192.0.2.25 --gateways host1,host2,host3 --quorum
  grapevine egress create mail --network blue --address 192.0.2.25 --address 2001:db8::25
  grapevine egress create smtp --network blue --label role=smtp --address 192.0.2.26`,
		Args: named("an egress", 1, 1),
	}, patience, func(ctx context.Context, c *api.Client, names []string) (api.Done, error) {
		r.Name = names[0]
		return c.Egresses().Create(ctx, r)
	}, showDone)
	f := c.Flags()
	f.StringArrayVar(&r.Networks, "network", nil, "a network whose containers leave by it; may be said several times")
	f.StringArrayVar(&r.Labels, "label", nil, "only containers with this label leave by it; may be said several times, and all have to be met")
	f.StringSliceVar(&r.Addresses, "address", nil, "the address; may be said twice, for one of IPv4 and one of IPv6")
	f.StringSliceVar(&r.Gateways, "gateways", nil, "the hosts that may hold it, by name, or by a label of their Docker engine, as role=edge (default: all hosts)")
	f.BoolVar(&r.Quorum, "quorum", false, "only a host that sees more than half of the gateways holds it: in a partition at most one does")
	return c
}

func newEgressSet() *cobra.Command {
	var r api.SetEgressRequest
	var quorum bool
	c := verb(&cobra.Command{
		Use:   "set NAME [--gateways HOST|LABEL=VALUE,...] [--address ADDRESS] [--network NETWORK] [--label ROLE=MAIL] [--quorum[=false]]",
		Short: "Change an egress",
		Long: `Change an egress. What is not said stays as it is; a list that is said is the whole new one. At no moment do containers
of its networks leave by the addresses of their own hosts. The holder stays the holder if it is among the gateways:
then connections to the outside stay open. With another address, or another holder, they end.`,
		Example: `  grapevine egress set mail --gateways host2,host3
  grapevine egress set mail --all-gateways --quorum
  grapevine egress set mail --address 192.0.2.26
  grapevine egress set mail --network blue --network red`,
		Args:              named("an egress", 1, 1),
		ValidArgsFunction: complete(egressNames),
	}, patience, func(ctx context.Context, c *api.Client, names []string) (api.Done, error) {
		r.Name = names[0]
		return c.Egresses().Set(ctx, r)
	}, showDone)
	f := c.Flags()
	f.StringArrayVar(&r.Networks, "network", nil, "a network whose containers leave by it; may be said several times")
	f.StringArrayVar(&r.Labels, "label", nil, "only containers with this label leave by it; may be said several times, and all have to be met")
	f.StringSliceVar(&r.Addresses, "address", nil, "the address; may be said twice, for one of IPv4 and one of IPv6")
	f.StringSliceVar(&r.Gateways, "gateways", nil, "the hosts that may hold it, by name, or by a label of their Docker engine, as role=edge")
	f.BoolVar(&r.AllGateways, "all-gateways", false, "all hosts may hold it")
	f.BoolVar(&quorum, "quorum", false, "only a host that sees more than half of the gateways holds it: in a partition at most one does")
	c.PreRun = func(*cobra.Command, []string) {
		if f.Changed("quorum") {
			r.Quorum = &quorum
		}
	}
	return c
}

func newEgressList() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "list",
		Short: "List the egresses",
		Example: `  grapevine egress list
  grapevine egress list -o json | jq -r '.[] | select(.holder == null) | .name'`,
		Args: noNames,
	}, patience, list(of((*api.Client).Egresses, api.EgressCalls.List)), showEgresses)
}

func showEgresses(w io.Writer, all []api.Egress) error {
	return table(w, "EGRESS\tADDRESS\tNETWORKS\tHOLDER\tNOTE", func(row func(string, ...any)) {
		for _, e := range all {
			row("%s\t%s\t%s\t%s\t%s", e.Name, egressAddrs(e.Addrs), egressOf(e, " "), dash(e.Holder), dash(strings.Join(e.Notes, "; ")))
		}
	})
}

// egressOf says whose egress one is.
func egressOf(e api.Egress, between string) string {
	networks := strings.Join(e.Networks, between)
	if len(e.Labels) == 0 {
		return networks
	}
	return networks + " with " + strings.Join(e.Labels, " and ")
}

func egressAddrs(addrs []netip.Addr) string { return addrTexts(api.Service{Addrs: addrs}) }

func newEgressShow() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "show NAME...",
		Short: "Show who holds an egress, and who may",
		Long: `Show egresses: who holds the address, and the gateways in the order in which they take it. Names are those of the hosts.
Of an egress with --label it shows which containers leave by it.`,
		Example: `  grapevine egress show mail
  grapevine egress show mail -o json`,
		Args:              named("an egress", 1, 0),
		ValidArgsFunction: complete(egressNames),
	}, patience, func(ctx context.Context, c *api.Client, names []string) ([]api.Egress, error) {
		all, err := c.Egresses().List(ctx)
		if err != nil {
			return nil, err
		}
		return pick("egress", all, names, func(e api.Egress, name string) bool { return e.Name == name }, func(e api.Egress) string { return e.Name })
	}, showEgressDetails)
}

func egressNames(ctx context.Context, c *api.Client) (map[string]string, error) {
	all, err := c.Egresses().List(ctx)
	names := map[string]string{}
	for _, e := range all {
		names[e.Name] = egressAddrs(e.Addrs)
	}
	return names, err
}

func showEgressDetails(w io.Writer, list []api.Egress) error {
	var errs []error
	for i, e := range list {
		if i > 0 {
			fmt.Fprintln(w)
		}
		quorum := ""
		if e.Quorum {
			quorum = ", only with a quorum"
		}
		fmt.Fprintf(w, "%s: %s for %s%s, created on host %s\n", e.Name, egressAddrs(e.Addrs), egressOf(e, ", "), quorum, e.Author)
		if e.Holder == "" {
			fmt.Fprintln(w, "held by nobody")
		} else {
			fmt.Fprintf(w, "held by host %s\n", e.Holder)
		}
		for _, n := range e.Notes {
			fmt.Fprintln(w, n)
		}
		if len(e.Labels) > 0 {
			errs = append(errs, showLeaving(w, e.Containers))
		}
		errs = append(errs, table(w, "GATEWAY\tHOLDS IT\tANSWERS", func(row func(string, ...any)) {
			for _, g := range e.Gateways {
				holds, answers := "-", "yes"
				if g.Host == e.Holder {
					holds = "yes"
				}
				switch {
				case !g.Known:
					answers = "there is no such host"
				case !g.Alive:
					answers = "no"
				}
				row("%s\t%s\t%s", g.Host, holds, answers)
			}
		}))
	}
	return errors.Join(errs...)
}

// showLeaving lists the containers that leave by an egress with labels.
func showLeaving(w io.Writer, list []api.EgressContainer) error {
	if len(list) == 0 {
		fmt.Fprintln(w, "no container has these labels")
		return nil
	}
	return table(w, "CONTAINER\tNETWORK\tHOST\tNOTE", func(row func(string, ...any)) {
		for _, c := range list {
			note := "-"
			if len(c.Also) > 0 {
				note = "comes before " + strings.Join(c.Also, ", ")
			}
			row("%s\t%s\t%s\t%s", c.Name, c.Network, c.Host, note)
		}
	})
}

func newEgressRemove() *cobra.Command {
	return verb(&cobra.Command{
		Use: "remove NAME", Aliases: []string{"rm", "delete"},
		Short: "Remove an egress",
		Long: `Remove an egress. Its networks' containers leave by the addresses of their own hosts again; open connections to the outside end.
Those of an egress with --label leave by that of their network, if it has one.`,
		Example:           `  grapevine egress remove mail`,
		Args:              named("an egress", 1, 1),
		ValidArgsFunction: complete(egressNames),
	}, patience, func(ctx context.Context, c *api.Client, names []string) (api.Done, error) {
		return c.Egresses().Remove(ctx, api.RemoveEgressRequest{Name: names[0]})
	}, showDone)
}
