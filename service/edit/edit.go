// Package edit is what people do with services: create, list and remove, on what this host knows. Any host may change
// any service.
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
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/service"
	"github.com/grapevine-net/grapevine/service/expose"
)

// Replica is the agent's copy of the cluster's state; *replica.Replica is one.
type Replica interface {
	Snapshot() *cluster.Snapshot
	Update(func(*replica.Tx) error) (rev uint64, err error)
}

// Desk is where services are changed and looked at.
type Desk struct {
	Name    string // of this host
	Replica Replica
	// Addresses leases an address of each subnet and calls write with them; what it has not written is free again
	// (ipam.Allocator.ServiceAddresses).
	Addresses func(ctx context.Context, subnets []netip.Prefix, write func([]netip.Addr) error) error
	// Published reports whether labels with a key are told to other hosts.
	Published func(key string) bool
	Hosts     service.Hosts
	// Self is this host, and Heeds reports whether it answers a port of all hosts.
	Self  cluster.NodeID
	Heeds func(expose.Exposure) bool
	// Reserved are ports that all hosts have for themselves, as 4789/udp, and what for.
	Reserved map[string]string
	// Lacks is what this host's kernel lacks to lead connections to services, "" if nothing.
	Lacks string
}

// Create makes a service. It leases its addresses out of the network's.
func (d Desk) Create(ctx context.Context, r api.CreateServiceRequest) (api.Done, error) {
	s, err := d.read(r)
	if err != nil {
		return api.Done{}, api.Errorf(http.StatusBadRequest, "service %.80s: %v", r.Name, err)
	}
	if r.Replace {
		return d.replace(s)
	}
	subnets, err := d.free(d.Replica.Snapshot(), s)
	if err != nil {
		return api.Done{}, err
	}
	err = d.Addresses(ctx, subnets, func(addrs []netip.Addr) error {
		s.Addrs = addrs
		if err := cluster.Validate(s); err != nil {
			return api.Errorf(http.StatusBadRequest, "service %.80s: %v", r.Name, err)
		}
		_, err := d.Replica.Update(func(tx *replica.Tx) error {
			if _, err := d.free(tx.Snapshot(), s); err != nil {
				return err // somebody made one meanwhile
			}
			return tx.Put(s)
		})
		return err
	})
	switch _, said := errors.AsType[*api.Error](err); {
	case said:
		return api.Done{}, err
	case err != nil:
		return api.Done{}, fmt.Errorf("create service %s of network %s: %w", s.Name, s.Network, err)
	}
	lines := []string{fmt.Sprintf("service %s of network %s has the address %s", s.Name, s.Network, texts(s.Addrs))}
	if listed, ok := d.find(s.Network + "/" + s.Name); ok && len(listed.Replicas) == 0 {
		lines = append(lines, "no container is behind it yet: it has those "+selection(s))
	}
	if d.Lacks != "" {
		lines = append(lines, "containers of this host get the replicas' own addresses instead: "+d.Lacks)
	}
	return api.Done{Text: strings.Join(lines, "\n")}, nil
}

// replace makes another service of one that is there, which keeps its addresses, and the ports of hosts that lead to it.
func (d Desk) replace(s cluster.Service) (api.Done, error) {
	_, err := d.Replica.Update(func(tx *replica.Tx) error {
		old, had := alike(tx.Snapshot(), s)
		if !had {
			return api.Errorf(http.StatusNotFound, "there is no service %.80s/%.80s to replace: leave out --replace", s.Network, s.Name)
		}
		s.Name, s.Addrs, s.Exposed = old.Name, old.Addrs, old.Exposed
		if !has(tx.Snapshot(), old) {
			return api.Errorf(http.StatusConflict, "service %s: its address is not of the network any more: leave out --replace, and it gets another one", s.Key().ID)
		}
		for _, x := range s.Exposed {
			if !slices.ContainsFunc(s.Ports, func(p cluster.ServicePort) bool { return p.Proto == x.Proto && p.Port == x.Target }) {
				return api.Errorf(http.StatusConflict, "service %s: port %d/%s of all hosts leads to its port %d/%s: say that one as well, or first: grapevine service unexpose %s %d",
					s.Key().ID, x.Port, x.Proto, x.Target, x.Proto, s.Key().ID, x.Port)
			}
		}
		if err := cluster.Validate(s); err != nil {
			return api.Errorf(http.StatusBadRequest, "service %.80s: %v", s.Name, err)
		}
		return tx.Put(s)
	})
	switch _, said := errors.AsType[*api.Error](err); {
	case said:
		return api.Done{}, err
	case err != nil:
		return api.Done{}, fmt.Errorf("replace service %s of network %s: %w", s.Name, s.Network, err)
	}
	var ports []string
	for _, p := range s.Ports {
		ports = append(ports, service.PortText(p))
	}
	return api.Done{Text: fmt.Sprintf("service %s of network %s has the ports %s now, and its address %s as before", s.Name, s.Network, strings.Join(ports, ", "), texts(s.Addrs))}, nil
}

// has reports whether a service has an address of its network's subnets as they are now.
func has(snap *cluster.Snapshot, s cluster.Service) bool {
	for sub := range cluster.All[cluster.Subnet](snap) {
		if sub.Network == s.Network && slices.ContainsFunc(s.Addrs, sub.Prefix.Contains) {
			return true
		}
	}
	return false
}

// longestName is how long a label of DNS may be (RFC 1035, 2.3.4).
const longestName = 63

// read returns the service that is asked for, without addresses.
func (d Desk) read(r api.CreateServiceRequest) (s cluster.Service, err error) {
	s = cluster.Service{Network: r.Network, Name: r.Name, Select: r.Select, Labels: r.Labels, Affinity: r.Affinity, Author: d.Name}
	switch {
	case r.Name == "":
		return s, errors.New("it has no name")
	case strings.ContainsAny(r.Name, "/. \t"):
		return s, errors.New("its name has a dot, a slash or a space in it: give another one")
	case len(r.Name) > longestName:
		return s, fmt.Errorf("its name has %d letters, and one of DNS %d at most: give a shorter one", len(r.Name), longestName)
	case strings.EqualFold(r.Name, "localhost"):
		return s, errors.New("localhost is each container's name for itself: give another name")
	case r.Network == "":
		return s, errors.New("it is of no network: add --network NAME")
	case len(r.Ports) == 0:
		return s, errors.New("it has no port: add --port PORT:TARGET, where TARGET is the port of its containers")
	}
	if s.Select == "" && len(s.Labels) == 0 {
		s.Select = s.Name
	}
	for key := range s.Labels {
		if !d.Published(key) {
			return s, fmt.Errorf("the label %s is told to no other host, so that nothing would be selected by it; of Compose's labels those of the project and of the service are", key)
		}
	}
	for _, text := range r.Ports {
		p, err := service.ParsePort(text)
		if err != nil {
			return s, err
		}
		if slices.ContainsFunc(s.Ports, func(o cluster.ServicePort) bool { return o.Proto == p.Proto && o.Port == p.Port }) {
			return s, fmt.Errorf("port %d/%s is there twice: name it once", p.Port, p.Proto)
		}
		s.Ports = append(s.Ports, p)
	}
	return s, nil
}

// free returns a subnet of each family that the network has. It is an error if there is no such network, or if it has
// such a service. One that has no address on the network any more is none: the network was made anew.
func (d Desk) free(snap *cluster.Snapshot, s cluster.Service) (subnets []netip.Prefix, err error) {
	n, there := cluster.Get[cluster.Network](snap, s.Network)
	if !there || n.Removed {
		return nil, api.Errorf(http.StatusNotFound, "service %.80s: there is no network %.80s: see `grapevine networks`", s.Name, s.Network)
	}
	old, had := alike(snap, s)
	for sub := range cluster.All[cluster.Subnet](snap) {
		if sub.Network != s.Network || slices.Contains(n.Old, sub.Prefix) {
			continue
		}
		if had && slices.ContainsFunc(old.Addrs, sub.Prefix.Contains) {
			return nil, api.Errorf(http.StatusConflict, "network %s has a service %s already: add --replace to change it, give another name, or remove it first: grapevine service remove %s/%s", s.Network, old.Name, s.Network, old.Name)
		}
		if !slices.ContainsFunc(subnets, func(p netip.Prefix) bool { return p.Addr().Is4() == sub.Prefix.Addr().Is4() }) {
			subnets = append(subnets, sub.Prefix)
		}
	}
	if len(subnets) == 0 {
		return nil, api.Errorf(http.StatusNotFound, "service %.80s: this host knows no subnet of network %.80s yet: try again", s.Name, s.Network)
	}
	slices.SortFunc(subnets, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return subnets, nil
}

// alike returns the service of that name on that network, in capital letters or small ones: DNS does not tell them apart.
func alike(snap *cluster.Snapshot, s cluster.Service) (cluster.Service, bool) {
	for o := range cluster.All[cluster.Service](snap) {
		if o.Network == s.Network && strings.EqualFold(o.Name, s.Name) {
			return o, true
		}
	}
	return cluster.Service{}, false
}

// Remove removes a service. Its addresses are free then.
func (d Desk) Remove(_ context.Context, r api.RemoveServiceRequest) (api.Done, error) {
	s, ok := d.find(r.Name)
	if !ok {
		return api.Done{}, d.unknown(r.Name)
	}
	_, err := d.Replica.Update(func(tx *replica.Tx) error {
		tx.Delete(s.Key())
		return nil
	})
	if err != nil {
		return api.Done{}, fmt.Errorf("remove service %s: %w", r.Name, err)
	}
	return api.Done{Text: fmt.Sprintf("service %s of network %s is removed", s.Name, s.Network)}, nil
}

// find returns the service NETWORK/NAME, or the only one NAME.
func (d Desk) find(name string) (s service.Listed, ok bool) {
	for _, one := range d.listed() {
		if name == one.Network+"/"+one.Name {
			return one, true
		}
		if name == one.Name {
			if ok {
				return s, false // two networks have one
			}
			s, ok = one, true
		}
	}
	return s, ok
}

func (d Desk) unknown(name string) error {
	var names []string
	for _, s := range d.listed() {
		if s.Name == name {
			names = append(names, s.Network+"/"+s.Name)
		}
	}
	if len(names) > 1 {
		return api.Errorf(http.StatusConflict, "several networks have a service %.80s: name one of %s", name, strings.Join(names, ", "))
	}
	return api.Errorf(http.StatusNotFound, "there is no service %.160s: see `grapevine service list`", name)
}

func (d Desk) listed() []service.Listed {
	b := service.NewBook()
	b.Advance(d.Replica.Snapshot())
	b.Look(d.Hosts)
	return b.List()
}

// List lists the services.
func (d Desk) List(context.Context) ([]api.Service, error) {
	snap := d.Replica.Snapshot()
	list := []api.Service{}
	for _, s := range d.listed() {
		one := api.Service{Network: s.Network, Name: s.Name, Addrs: s.Addrs, Select: s.Select, Labels: s.Labels, Affinity: s.Affinity, Author: s.Author, Replicas: []api.Replica{}}
		for _, p := range s.Ports {
			one.Ports = append(one.Ports, service.PortText(p))
		}
		for _, p := range s.Exposed {
			one.Exposed = append(one.Exposed, service.PortText(p))
		}
		for _, r := range s.Replicas {
			one.Replicas = append(one.Replicas, api.Replica{Endpoint: r.ID, Name: r.Name, Host: snap.HostName(r.Host), Addrs: r.Named(), In: r.In, Why: why(r)})
		}
		if note := d.note(snap, s); note != "" {
			one.Notes = append(one.Notes, note)
		}
		if d.Lacks != "" {
			one.Notes = append(one.Notes, "containers of this host get the replicas' own addresses instead: "+d.Lacks)
		}
		list = append(list, one)
	}
	return list, nil
}

// note says what is the matter with a service that leads nowhere, "" if it leads somewhere.
func (d Desk) note(snap *cluster.Snapshot, s service.Listed) string {
	n, there := cluster.Get[cluster.Network](snap, s.Network)
	switch {
	case s.Void && (!there || n.Removed):
		return fmt.Sprintf("its network is gone: grapevine service remove %s", s.Key().ID)
	case s.Void:
		return fmt.Sprintf("its address is not of the network any more: grapevine service remove %s, and create it again", s.Key().ID)
	case len(s.Replicas) == 0:
		return "no container is behind it: it has those " + selection(s.Service)
	case !slices.ContainsFunc(s.Replicas, func(r service.Replica) bool { return r.Standing != cluster.Gone }):
		return "no host of its containers answers: connections are led there all the same"
	case unreadied(s.Replicas):
		return unready(snap, s.Replicas)
	}
	return ""
}

// some are the names of containers, of which there may be many.
func some(snap *cluster.Snapshot, replicas []service.Replica) string {
	const most = 3
	var names []string
	for _, r := range replicas {
		names = append(names, r.Name+" on host "+snap.HostName(r.Host))
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// mostNotes is how many services status names that lead nowhere.
const mostNotes = 5

// Notes are what status says of services, and ports of all hosts, that lead nowhere or to containers of which none is ready. What is a
// problem (Problems), here or on the hosts that it concerns, is none of these.
func (d Desk) Notes() (notes []string) {
	snap := d.Replica.Snapshot()
	for _, s := range d.listed() {
		if note := d.note(snap, s); note != "" && (s.Void || !sick(s.Replicas)) {
			notes = append(notes, "service "+s.Key().ID+": "+note)
		}
	}
	for x := range d.labelled(snap) {
		if unreadied(x.Replicas) && !sick(x.Replicas) {
			notes = append(notes, fmt.Sprintf("port %s for %s: %s", x.Text(), x.Name(), unready(snap, x.Replicas)))
		}
	}
	if more := len(notes) - mostNotes; more > 0 {
		notes = append(notes[:mostNotes], fmt.Sprintf("and %d more that lead nowhere: grapevine service list", more))
	}
	return notes
}

// why says why a replica gets no new connections.
func why(r service.Replica) string {
	switch {
	case r.Standing == cluster.Gone:
		return "its host does not answer, or its agent alone"
	case r.In:
		return ""
	case r.Unready:
		return "it is paused, being stopped, or not healthy"
	case r.Standing == cluster.Doubtful:
		return "its host is in doubt"
	}
	return ""
}

func selection(s cluster.Service) string {
	var all []string
	if s.Select != "" {
		all = append(all, "with the name or the alias "+s.Select)
	}
	var labels []string
	for k, v := range s.Labels {
		labels = append(labels, k+"="+v)
	}
	slices.Sort(labels)
	if len(labels) > 0 {
		all = append(all, "with the label "+strings.Join(labels, " and "))
	}
	return strings.Join(all, " and ")
}

func texts(addrs []netip.Addr) string {
	var list []string
	for _, a := range addrs {
		list = append(list, a.String())
	}
	return strings.Join(list, " and ")
}
