package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

// thing is what is known of something by name: one of the fields is there.
type thing struct {
	Container *containerThing `json:"container,omitempty"`
	Network   *networkThing   `json:"network,omitempty"`
	Host      *hostThing      `json:"host,omitempty"`
	Address   *addressThing   `json:"address,omitempty"`
}

type containerThing struct {
	Name   string      `json:"name"`
	ID     string      `json:"id"`
	Host   api.Node    `json:"host"`
	State  string      `json:"state"`
	Places []container `json:"places"` // one a network
}

type networkThing struct {
	api.Network
	Containers []container `json:"containers"`
	Pools      []api.Pool  `json:"pools"` // who owns the addresses
}

type hostThing struct {
	api.Node
	Containers []container `json:"containers"`
	Networks   []string    `json:"networks"`
	Pools      []api.Pool  `json:"pools"` // what it owns, of those that it owns of
}

type addressThing struct {
	Address   netip.Addr `json:"address"`
	What      string     `json:"what"`
	Network   string     `json:"network,omitempty"`
	Owner     string     `json:"owner,omitempty"` // the host that hands it out
	Container *container `json:"container,omitempty"`
}

// all is all that the agent lists.
type all struct {
	nodes      []api.Node
	networks   []api.Network
	containers []container
	pools      []api.Pool
}

func newShow() *cobra.Command {
	return watched(verb(&cobra.Command{
		Use:     "show NAME...",
		Aliases: []string{"inspect"},
		Short:   "Say all that is known of a container, network, host or address",
		Long: `Say all that is known of a container (its name, its ID or the beginning of that), a network, a
host or an address. What is several of these is shown as each.`,
		Example: `  grapevine show db
  grapevine show blue
  grapevine show 10.128.0.77           # who has it, or who would hand it out
  grapevine show host2 -o json | jq '.[].host.networks'`,
		Args:              named("a container, network, host or address", 1, 0),
		ValidArgsFunction: complete(knownNames),
	}, patience, func(ctx context.Context, c *api.Client, names []string) ([]thing, error) {
		a, err := askAll(ctx, c)
		if err != nil {
			return nil, err
		}
		var list []thing
		for _, name := range names {
			found := a.find(name)
			if found == nil {
				known, err := knownNames(ctx, c)
				if err != nil {
					return nil, err
				}
				return nil, unknownThing(name, known)
			}
			list = append(list, found...)
		}
		return list, nil
	}, showThings))
}

func askAll(ctx context.Context, c *api.Client) (a all, err error) {
	if a.nodes, err = c.Nodes(ctx); err != nil {
		return a, err
	}
	if a.networks, err = c.Networks(ctx); err != nil {
		return a, err
	}
	if a.pools, err = c.Ring(ctx); err != nil {
		return a, err
	}
	endpoints, err := c.Endpoints(ctx)
	a.containers = containers(endpoints, a.nodes)
	return a, err
}

// unknownThing is for a name that nothing has.
func unknownThing(name string, known map[string]string) error {
	if _, err := netip.ParseAddr(name); err == nil {
		return fmt.Errorf("no container has the address %s: `grapevine show %s` says whose it is", name, name)
	}
	return unknown("container, network or host", name, slices.Collect(maps.Keys(known)))
}

// find is what a word means; nil: nothing.
func (a all) find(word string) (list []thing) {
	where := func(is func(container) bool) (picked []container) {
		for _, c := range a.containers {
			if is(c) {
				picked = append(picked, c)
			}
		}
		return picked
	}
	for _, n := range a.nodes {
		if isHost(n, word) {
			h := &hostThing{Node: n, Containers: where(func(c container) bool { return c.Host == n.Name })}
			for _, w := range a.networks {
				if slices.Contains(w.Hosts, n.Name) {
					h.Networks = append(h.Networks, w.Name)
				}
			}
			h.Pools = poolsWhere(a.pools, func(_ api.Pool, s api.Share) bool { return s.Node == n.ID })
			list = append(list, thing{Host: h})
		}
	}
	for _, n := range a.networks {
		if n.Name == word {
			list = append(list, thing{Network: &networkThing{
				Network: n, Containers: where(func(c container) bool { return c.Network == n.Name }),
				Pools: poolsWhere(a.pools, func(p api.Pool, _ api.Share) bool { return p.Network == n.Name }),
			}})
		}
	}
	byID := map[string]*containerThing{}
	for _, c := range where(func(c container) bool {
		return c.Name == word || slices.Contains(c.Aliases, word) || begins(c.Container, word) || begins(c.ID, word)
	}) {
		id := c.Container + c.Host
		if c.Container == "" {
			id = c.ID
		}
		if byID[id] == nil {
			byID[id] = &containerThing{Name: c.Name, ID: c.Container, State: c.State}
			byID[id].Host.Name = c.Host
			for _, n := range a.nodes {
				if n.Name == c.Host {
					byID[id].Host = n
				}
			}
			list = append(list, thing{Container: byID[id]})
		}
		byID[id].Places = append(byID[id].Places, c)
	}
	if addr, err := netip.ParseAddr(word); err == nil {
		list = append(list, a.address(addr.Unmap())...)
	}
	return list
}

// poolsWhere keeps the shares that are, and the pools that have any.
func poolsWhere(pools []api.Pool, is func(api.Pool, api.Share) bool) (list []api.Pool) {
	for _, p := range pools {
		p.Shares = slices.DeleteFunc(slices.Clone(p.Shares), func(s api.Share) bool { return !is(p, s) })
		if len(p.Shares) > 0 {
			list = append(list, p)
		}
	}
	return list
}

// address says what an address is; nil: it is a host's, and said so already.
func (a all) address(addr netip.Addr) (list []thing) {
	for _, n := range a.nodes {
		if n.VTEP == addr || n.Underlay() == addr {
			return nil
		}
	}
	t := addressThing{Address: addr}
	for _, p := range a.pools {
		for _, s := range p.Shares {
			if slices.ContainsFunc(s.Blocks, func(b netip.Prefix) bool { return b.Contains(addr) }) {
				t.Owner = s.Host
			}
		}
	}
	for _, c := range a.containers {
		if slices.Contains(c.Addrs, addr) || slices.Contains(c.LinkLocal, addr) {
			x := t
			x.What, x.Network, x.Container = "a container has it", c.Network, &c
			list = append(list, thing{Address: &x})
		}
	}
	if list != nil {
		return list
	}
	t.What = "of no network, and not the cluster's"
	if t.Owner != "" {
		t.What = "of no network"
	}
	for _, n := range a.networks {
		for _, s := range n.Subnets {
			switch {
			case addr == s.Gateway:
				t.Network, t.What = n.Name, "the network's gateway, on every host"
			case s.Prefix.Contains(addr):
				t.Network, t.What = n.Name, "no container has it"
			}
		}
	}
	return []thing{{Address: &t}}
}

func showThings(w io.Writer, list []thing) error {
	for i, t := range list {
		if i > 0 {
			fmt.Fprintln(w)
		}
		var text strings.Builder
		var err error
		switch {
		case t.Container != nil:
			err = t.Container.show(&text)
		case t.Network != nil:
			err = t.Network.show(&text)
		case t.Host != nil:
			err = t.Host.show(&text)
		case t.Address != nil:
			err = t.Address.show(&text)
		}
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, screenOf(w).cut(text.String())); err != nil {
			return err
		}
	}
	return nil
}

func (c containerThing) show(w io.Writer) error {
	return table(w, "container\t"+dash(c.Name), func(row func(string, ...any)) {
		row("id\t%s", shortID(c.ID))
		row("host\t%s (%s)", c.Host.Name, c.Host.VTEP)
		row("state\t%s", c.State)
		for _, p := range c.Places {
			row("network\t%s", shortName(p.Network))
			row("  address\t%s", dash(addresses(p.Endpoint)))
			row("  mac\t%s", p.MAC)
			row("  endpoint\t%s", shortID(p.ID))
			if p.Egress != "" {
				row("  sends at most\t%s", p.Egress)
			}
			if p.Ingress != "" {
				row("  gets at most\t%s", p.Ingress)
			}
			if p.Delay != "" {
				row("  sends later by\t%s", p.Delay)
			}
			if p.Jitter != "" {
				row("  more or less by\t%s", p.Jitter)
			}
			if p.Loss != "" {
				row("  of that is lost\t%s", p.Loss)
			}
			if len(p.Aliases) > 0 {
				row("  also called\t%s", several(p.Aliases))
			}
			if len(p.Shared) > 0 {
				row("  shared\tcontainers of other hosts answer to %s too", several(p.Shared))
			}
			if len(p.Ports) > 0 {
				row("  ports\t%s", ports(p.Endpoint))
			}
		}
	})
}

func (n networkThing) show(w io.Writer) error {
	return table(w, "network\t"+shortName(n.Name), func(row func(string, ...any)) {
		vnid := fmt.Sprint(n.VNID)
		if n.VNID == 0 {
			vnid = "0: it reaches all networks, and they reach it"
		}
		row("vnid\t%s", vnid)
		if n.Global {
			row("global\tit reaches all networks, and they reach it")
		}
		if len(n.With) > 0 {
			row("one with\t%s", several(n.With))
		}
		for _, s := range n.Subnets {
			row("subnet\t%s, gateway %s", s.Prefix, s.Gateway)
		}
		if n.Internal {
			row("internal\tnothing leads out of it")
		}
		if n.Encrypted && n.Encryption == "" {
			n.Encryption = "yes, or not sent; this host's agent is older than this program, and does not say by what"
		}
		row("encrypted\t%s", cmp.Or(n.Encryption, "no: what of it goes to other hosts is in the clear, since it was made without -o encrypted"))
		if n.MTU > 0 {
			row("mtu\t%d", n.MTU)
		}
		here := "this host's Docker has it"
		if !n.Here {
			here = "this host's Docker has it not, or not yet"
		}
		row("here\t%s", here)
		if n.Removed {
			row("removed\tit goes when no host uses it")
		}
		for _, note := range n.Notes {
			row("note\t%s", note)
		}
		row("hosts\t%s", dash(several(n.Hosts)))
		for _, p := range n.Pools {
			for _, s := range p.Shares {
				row("addresses\t%s of %s are %s's: %s", percent(s.Part), p.Prefix, s.Host, blocks(s))
			}
		}
		row("containers\t%d", len(n.Containers))
		someContainers(row, n.Containers, func(c container) string { return c.Host })
	})
}

func (h hostThing) show(w io.Writer) error {
	return table(w, "host\t"+h.Name, func(row func(string, ...any)) {
		row("id\t%s", h.ID)
		row("state\t%s", nodeState(h.Node))
		if h.Path != "" {
			row("path\t%s", h.Path)
		}
		row("address\t%s, of %s", h.VTEP, wrappedAt(h.Encap, h.VXLANPort, "%s (UDP port %d)"))
		if h.Encrypts {
			row("encryption\tall, to and from %s", h.Underlay())
		} else if h.EncryptsNetworks {
			row("encryption\tof encrypted networks, where there are any")
		}
		row("gossip\t%s", h.Gossip)
		row("mtu\t%d, of the underlay", h.MTU)
		row("datapath\t%s", dash(h.Datapath))
		row("agent\t%s", dash(h.Version))
		row("networks\t%s", dash(several(h.Networks)))
		for _, p := range h.Pools {
			if p.Network == "" {
				row("addresses\t%s of the cluster's %s", percent(p.Shares[0].Part), p.Prefix)
				continue
			}
			row("addresses\t%s of %s's %s", percent(p.Shares[0].Part), shortName(p.Network), p.Prefix)
		}
		row("containers\t%d", len(h.Containers))
		someContainers(row, h.Containers, func(c container) string { return shortName(c.Network) })
	})
}

// someContainers are lines, each with what of is of the container.
func someContainers(row func(string, ...any), list []container, of func(container) string) {
	const most = 20
	for _, c := range list[:min(len(list), most)] {
		row("  %s\t%s  %s  %s", dash(c.Name), dash(addresses(c.Endpoint)), of(c), c.State)
	}
	if more := len(list) - most; more > 0 {
		row("  and %d more\t(grapevine ps)", more)
	}
}

func (a addressThing) show(w io.Writer) error {
	return table(w, "address\t"+a.Address.String(), func(row func(string, ...any)) {
		row("is\t%s", a.What)
		if a.Network != "" {
			row("network\t%s", shortName(a.Network))
		}
		if c := a.Container; c != nil {
			row("container\t%s (%s)", dash(c.Name), shortID(c.Container))
			row("host\t%s", c.Host)
			row("state\t%s", c.State)
		}
		if a.Owner != "" {
			row("owner\t%s: no other host hands it out", a.Owner)
		}
	})
}
