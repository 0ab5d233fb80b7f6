// Package edit is what people do with egresses: create, list and remove, on what this host knows. Any host may change
// any egress.
package edit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress"
	"github.com/grapevine-net/grapevine/egress/hold"
	"github.com/grapevine-net/grapevine/replica"
)

// Replica is the agent's copy of the cluster's state; *replica.Replica is one.
type Replica interface {
	Snapshot() *cluster.Snapshot
	Update(func(*replica.Tx) error) (rev uint64, err error)
}

// Desk is where egresses are changed and looked at.
type Desk struct {
	Self    cluster.NodeID
	Name    string // of this host
	Replica Replica
	Alive   func(cluster.NodeID) bool
	Hear    func(cluster.NodeID) (heard, known bool) // as hold.Config has it
	Notes   func() map[string]hold.Note              // of this host, by egress
	// Published reports whether labels with a key are told to other hosts.
	Published func(key string) bool
	// Lacks is what this host's switch lacks to track connections; "": nothing, or it is not known yet.
	Lacks func() string
}

// Create makes an egress.
func (d Desk) Create(_ context.Context, r api.CreateEgressRequest) (api.Done, error) {
	e, err := d.read(r)
	if err == nil {
		err = cluster.Validate(e.Body())
	}
	if err != nil {
		return api.Done{}, api.Errorf(http.StatusBadRequest, "egress %.80s: %v", r.Name, err)
	}
	_, err = d.Replica.Update(func(tx *replica.Tx) error {
		if err := fits(tx.Snapshot(), e, cluster.Egress{}); err != nil {
			return err
		}
		return tx.Put(e.Body())
	})
	switch {
	case said(err):
		return api.Done{}, err
	case err != nil:
		return api.Done{}, fmt.Errorf("create egress %s: %w", e.Name, err)
	}
	first := fmt.Sprintf("containers of %s reach the outside from %s, as soon as a gateway holds it: `grapevine egress show %s`", whose(e), addresses(e), e.Name)
	return api.Done{Text: strings.Join(slices.Concat([]string{first}, d.shut(e), d.unaware(e.Networks)), "\n")}, nil
}

// said reports whether an error is for people as it is.
func said(err error) bool {
	_, is := errors.AsType[*api.Error](err)
	return is
}

// read returns the egress that is asked for.
func (d Desk) read(r api.CreateEgressRequest) (e cluster.Egress, err error) {
	e = cluster.Egress{Name: r.Name, Networks: names(r.Networks), Gateways: names(r.Gateways), Quorum: r.Quorum, Author: d.Name}
	switch {
	case r.Name == "":
		return e, errors.New("it has no name")
	case strings.ContainsAny(r.Name, "/ \t"):
		return e, errors.New("its name has a slash or a space in it: give another one")
	case len(r.Networks) == 0:
		return e, errors.New("it is of no network: add --network NAME")
	case len(r.Addresses) == 0:
		return e, errors.New("it has no address: add --address ADDRESS, which is free and in a subnet of its gateways' interfaces")
	}
	if e.Labels, err = d.terms(r.Labels); err != nil {
		return e, err
	}
	e.Addrs, err = parse(r.Addresses)
	return e, err
}

// parse reads an egress' addresses. That of IPv4 comes first.
func parse(texts []string) (list []netip.Addr, err error) {
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		a = a.Unmap()
		switch {
		case err != nil:
			return nil, fmt.Errorf("%.60q is no address: give one like 192.0.2.25 or 2001:db8::25, without a prefix length", text)
		case !a.IsGlobalUnicast() || a.Zone() != "":
			return nil, fmt.Errorf("%v is no address that a machine can have on a LAN and that can move: give another one", a)
		}
		list = append(list, a)
	}
	slices.SortFunc(list, netip.Addr.Compare)
	if len(list) > 2 || len(list) == 2 && list[0].Is4() == list[1].Is4() {
		return nil, fmt.Errorf("it has the addresses %s: give one, or one of each family", strings.Join(texts, ", "))
	}
	return list, nil
}

// addresses are those of an egress, for people.
func addresses(e cluster.Egress) string {
	var texts []string
	for _, a := range e.Addrs {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, " and ")
}

// fits is an error if what is known speaks against an egress, that was another one before; a new one was none. What it
// had then is not judged again.
func fits(snap *cluster.Snapshot, e, was cluster.Egress) error {
	for _, o := range egress.All(snap) {
		switch both := slices.IndexFunc(e.Networks, func(n string) bool { return slices.Contains(o.Networks, n) }); {
		case o.Name == was.Name:
		case o.Name == e.Name:
			return api.Errorf(http.StatusConflict, "there is an egress %s already: give another name, or remove it first: grapevine egress remove %s", e.Name, e.Name)
		case slices.ContainsFunc(e.Addrs, func(a netip.Addr) bool { return slices.Contains(o.Addrs, a) }):
			return api.Errorf(http.StatusConflict, "egress %.80s: egress %s has the address %s: have that one for all of the networks, by --network several times", e.Name, o.Name, addresses(o.Egress))
		case both >= 0 && len(e.Labels)+len(o.Labels) > 0:
			if slices.Equal(e.Labels, o.Labels) {
				return api.Errorf(http.StatusConflict, "egress %.80s: egress %s asks for the same labels of network %s already: name other ones, or remove that first: grapevine egress remove %s", e.Name, o.Name, e.Networks[both], o.Name)
			}
		case both >= 0:
			return api.Errorf(http.StatusConflict, "egress %.80s: network %s has the egress %s already: remove that first: grapevine egress remove %s", e.Name, e.Networks[both], o.Name, o.Name)
		}
	}
	for _, name := range added(e.Networks, was.Networks) {
		n, there := cluster.Get[cluster.Network](snap, name)
		switch {
		case !there || n.Removed:
			return api.Errorf(http.StatusNotFound, "egress %.80s: there is no network %.80s: see `grapevine networks`", e.Name, name)
		case n.Internal:
			return api.Errorf(http.StatusBadRequest, "egress %.80s: network %s is internal, and its containers reach nothing outside: name another one", e.Name, name)
		case n.VNID == 0:
			return api.Errorf(http.StatusBadRequest, "egress %.80s: network %s is of all (VNID 0), and its containers leave by their own hosts: name another one", e.Name, name)
		}
	}
	for _, a := range e.Addrs {
		if err := movable(snap, e, a); err != nil && !slices.Contains(was.Addrs, a) {
			return err
		}
	}
	for _, g := range added(e.Gateways, was.Gateways) {
		switch {
		case led(snap, g):
		case strings.Contains(g, "="):
			return api.Errorf(http.StatusNotFound, "egress %.80s: no host's Docker has the label %.80s: give it to one (\"labels\" in its daemon.json, `dockerd --label`), and try again in a minute; `docker info` there shows them", e.Name, g)
		default:
			return api.Errorf(http.StatusNotFound, "egress %.80s: there is no host %.80s: see `grapevine nodes`, or name a label of hosts, as role=edge", e.Name, g)
		}
	}
	if err := holdable(snap, e); err != nil {
		return err
	}
	return knowable(snap, e)
}

// led reports whether a host has a name, or a label, of gateways.
func led(snap *cluster.Snapshot, gateway string) bool {
	for n := range cluster.All[cluster.Node](snap) {
		if (cluster.Egress{Gateways: []string{gateway}}).LedBy(n) {
			return true
		}
	}
	return false
}

// holdable is an error if an agent of a gateway cannot hold an egress' addresses.
func holdable(snap *cluster.Snapshot, e cluster.Egress) error {
	if older := unable(snap, e); len(older) > 0 {
		return api.Errorf(http.StatusConflict, "egress %.80s: gateways with an older agent cannot hold an IPv6 address: %s; upgrade their agents first, or name other --gateways", e.Name, strings.Join(older, ", "))
	}
	return nil
}

// unable names the gateways whose agents are too old to hold all addresses of an egress.
func unable(snap *cluster.Snapshot, e cluster.Egress) (names []string) {
	for _, g := range egress.Gateways(snap, e, func(cluster.NodeID) bool { return true }) {
		if n, _ := cluster.Get[cluster.Node](snap, string(g.ID)); !egress.Able(n, e) {
			names = append(names, fmt.Sprintf("%s (%s)", n.Name, n.Agent))
		}
	}
	slices.Sort(names)
	return names
}

// movable is an error if an address is one that cannot move from host to host.
func movable(snap *cluster.Snapshot, e cluster.Egress, a netip.Addr) error {
	for s := range cluster.All[cluster.Subnet](snap) {
		if s.Prefix.Contains(a) {
			return api.Errorf(http.StatusBadRequest, "egress %.80s: %v is in the subnet of network %s, and not an address of a LAN: give one that is in a subnet of its gateways' interfaces", e.Name, a, s.Network)
		}
	}
	for n := range cluster.All[cluster.Node](snap) {
		if n.Address() == a {
			return api.Errorf(http.StatusBadRequest, "egress %.80s: %v is how the others know host %s, and cannot move: give another one", e.Name, a, n.Name)
		}
	}
	return nil
}

// added are those of a list that another one does not have.
func added(list, was []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(was, s) })
}

// shut says which subnets of its networks have no way out, since it has no address of their family.
func (d Desk) shut(e cluster.Egress) (lines []string) {
	for s := range cluster.All[cluster.Subnet](d.Replica.Snapshot()) {
		family := "IPv4"
		if s.Prefix.Addr().Is6() {
			family = "IPv6"
		}
		if !e.Addr(s.Prefix.Addr().Is6()).IsValid() && slices.Contains(e.Networks, s.Network) {
			lines = append(lines, fmt.Sprintf("what they send by %s does not leave any more: network %s has the subnet %v, and the egress no %[1]s address", family, s.Network, s.Prefix))
		}
	}
	return lines
}

// unaware says which hosts with containers of networks do not answer, and so know nothing yet of an egress that the
// networks have from now on.
func (d Desk) unaware(networks []string) (lines []string) {
	snap := d.Replica.Snapshot()
	var silent []string
	for e := range cluster.All[cluster.Endpoint](snap) {
		n, there := cluster.Get[cluster.Node](snap, string(e.Host))
		if there && slices.Contains(networks, e.Network) && e.Host != d.Self && !d.Alive(e.Host) && !slices.Contains(silent, n.Name) {
			silent = append(silent, n.Name)
		}
	}
	slices.Sort(silent)
	for _, host := range silent {
		lines = append(lines, fmt.Sprintf("host %s has such containers and does not answer: what they send leaves by that host's own address until its agent has heard of the egress; start it (`grapevine nodes %[1]s`), or end the containers there", host))
	}
	return lines
}

// Remove removes an egress: its networks' containers reach the outside from their own hosts' addresses again.
func (d Desk) Remove(_ context.Context, r api.RemoveEgressRequest) (api.Done, error) {
	e, ok := egress.Get(d.Replica.Snapshot(), r.Name)
	if !ok {
		return api.Done{}, api.Errorf(http.StatusNotFound, "there is no egress %.80s: see `grapevine egress list`", r.Name)
	}
	_, err := d.Replica.Update(func(tx *replica.Tx) error {
		tx.Delete(e.Key())
		tx.Delete(cluster.LabelEgress(e).Key())
		tx.Delete(cluster.EgressHolder{Egress: e.Name}.Key())
		return nil
	})
	if err != nil {
		return api.Done{}, fmt.Errorf("remove egress %s: %w", e.Name, err)
	}
	return api.Done{Text: fmt.Sprintf("egress %s is removed: %s", e.Name, after(e))}, nil
}

func networks(e cluster.Egress) string {
	if len(e.Networks) == 1 {
		return "network " + e.Networks[0]
	}
	return "networks " + strings.Join(e.Networks, ", ")
}

// List lists the egresses.
func (d Desk) List(context.Context) ([]api.Egress, error) {
	snap := d.Replica.Snapshot()
	list := []api.Egress{}
	all := egress.All(snap)
	leaving := egress.NewChoice(snap, all)
	for _, l := range all {
		one := api.Egress{Name: l.Name, Networks: l.Networks, Labels: l.Labels, Containers: containers(snap, l, leaving), Addrs: l.Addrs, Quorum: l.Quorum, Author: l.Author, Gateways: []api.EgressGateway{}}
		gateways := egress.Gateways(snap, l.Egress, d.Alive)
		for _, g := range gateways {
			one.Gateways = append(one.Gateways, api.EgressGateway{Host: g.Name, Known: true, Alive: g.Alive})
		}
		for _, name := range l.Gateways {
			if !slices.ContainsFunc(gateways, func(g egress.Gateway) bool { return g.Name == name }) && !(strings.Contains(name, "=") && led(snap, name)) {
				one.Gateways = append(one.Gateways, api.EgressGateway{Host: name})
			}
		}
		st := d.state(snap, l)
		one.Holder, one.Notes = st.holder, st.notes
		list = append(list, one)
	}
	return list, nil
}
