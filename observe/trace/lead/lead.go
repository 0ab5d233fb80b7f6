// Package lead says where a connection is led before its packets are on their way: from a service's address, or a port
// of a host, to containers; and with which address it leaves for the outside. It is pure.
package lead

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress"
	"github.com/grapevine-net/grapevine/service"
	"github.com/grapevine-net/grapevine/service/expose"
)

// Outside is a word for an address beyond the cluster, and outside4, outside6 are those that stand for it: addresses
// that nobody has (RFC 5737, RFC 3849).
const Outside = "outside"

var outside4, outside6 = netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1")

// Facts are what is known.
type Facts struct {
	Snap     *cluster.Snapshot
	Services []api.Service
	Egresses []api.Egress
	Stand    service.Hosts // nil: all answer
	// Door asks a host who has a port of an address of it.
	Door func(host cluster.Node, at netip.AddrPort, proto string) (expose.Door, error)
}

// Of says where a connection is led.
func Of(f Facts, r api.TraceRequest) api.Lead {
	l := f.of(r)
	slices.SortFunc(l.Backs, func(a, b api.LeadBack) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.Addr.Compare(b.Addr)) })
	return l
}

func (f Facts) of(r api.TraceRequest) api.Lead {
	l := api.Lead{From: r.From, Port: r.Port, Proto: strings.ToLower(r.Proto)}
	if l.Proto == "" && r.Port != 0 {
		l.Proto = "tcp"
	}
	from, _ := view.EndpointsOf(f.Snap, r.From) // none: an address outside
	if s, at, ok := f.service(r.To, from); ok {
		return f.ofService(l, s, at, from)
	}
	host, at, ok := f.host(r.To)
	if r.From == Outside {
		l.From = outside4.String()
		if a, _ := netip.ParseAddr(r.To); a.Unmap().Is6() || at.Is6() {
			l.From = outside6.String()
		}
		l.Notes = append(l.Notes, fmt.Sprintf("%s stands for the outside: name an address in its place to see what a policy says of that one", l.From))
	}
	if ok {
		return f.ofHost(l, host, at, len(from) > 0)
	}
	f.egress(&l, from, r.To)
	return l
}

// service is the one that a text means to containers: its address, its name on one of their networks, or, if no
// container is called so, its name.
func (f Facts) service(text string, from []cluster.Endpoint) (s api.Service, at netip.Addr, ok bool) {
	addr, _ := netip.ParseAddr(text)
	addr = addr.Unmap().WithZone("")
	_, err := view.EndpointsOf(f.Snap, text)
	var named []api.Service
	for _, s := range f.Services {
		near := slices.ContainsFunc(from, func(e cluster.Endpoint) bool { return e.Network == s.Network })
		switch {
		case addr.IsValid() && slices.Contains(s.Addrs, addr):
			return s, addr, true
		case strings.EqualFold(text, s.String()), near && strings.EqualFold(text, s.Name):
			named = append([]api.Service{s}, named...)
		case err != nil && strings.EqualFold(text, s.Name):
			named = append(named, s)
		}
	}
	if len(named) == 0 || len(named[0].Addrs) == 0 {
		return s, at, false
	}
	return named[0], slices.MinFunc(named[0].Addrs, netip.Addr.Compare), true
}

// ofService says who is behind a service's address.
func (f Facts) ofService(l api.Lead, s api.Service, at netip.Addr, from []cluster.Endpoint) api.Lead {
	l.Kind, l.Name, l.Addr, l.Notes = api.LeadService, "service "+s.String(), at, s.Notes
	wrong := func(do, format string, args ...any) api.Lead {
		l.Wrong, l.Do = fmt.Sprintf(format, args...), do
		return l
	}
	target, has := targetOf(s, l.Port, l.Proto)
	for _, r := range s.Replicas {
		if i := slices.IndexFunc(r.Addrs, func(a netip.Addr) bool { return a.Is4() == at.Is4() }); i >= 0 && has {
			l.Backs = append(l.Backs, api.LeadBack{Name: r.Name, Network: s.Network, Host: r.Host, Addr: r.Addrs[i], Port: target, In: r.In, Why: r.Why})
		}
	}
	show := "grapevine service show " + s.String()
	switch {
	case len(from) == 0:
		return wrong("from outside, a port of every host: grapevine service expose "+s.String()+", and then trace HOST:PORT", "the address of %s is for containers on network %s alone", l.Name, s.Network)
	case !slices.ContainsFunc(from, func(e cluster.Endpoint) bool { return e.Network == s.Network }):
		return wrong(fmt.Sprintf("docker network connect %s %s, if it is to reach it", s.Network, l.From), "%s is for containers on network %s alone, and %s is not on it", l.Name, s.Network, l.From)
	case !f.ofNetwork(s.Network, at):
		return wrong(fmt.Sprintf("grapevine service remove %s, and create it again", s), "%s is no address of network %s any more", at, s.Network)
	case !has:
		return wrong("connect to one that it has, or create it anew with that one", "%s has no port %d/%s, only %s: a connection to it is refused", l.Name, l.Port, l.Proto, strings.Join(s.Ports, ", "))
	case len(s.Replicas) == 0:
		return wrong(show, "no container is behind %s: a connection to it is refused", l.Name)
	case len(l.Backs) == 0:
		return wrong(show, "no container behind %s has an address of the family of %s", l.Name, at)
	case !slices.ContainsFunc(l.Backs, func(b api.LeadBack) bool { return b.In }):
		return wrong(show, "no container behind %s that has an address of the family of %s gets new connections", l.Name, at)
	}
	if s.Affinity {
		l.Notes = append(slices.Clone(l.Notes), "each container stays with one of them")
	}
	return l
}

// targetOf is the replicas' port behind one of a service; of a ping there is none.
func targetOf(s api.Service, port uint16, proto string) (uint16, bool) {
	if port == 0 {
		return 0, proto == "" || proto == "icmp"
	}
	for _, text := range s.Ports {
		if p, err := service.ParsePort(text); err == nil && p.Port == port && p.Proto == proto {
			return p.Target, true
		}
	}
	return 0, false
}

func (f Facts) ofNetwork(network string, at netip.Addr) bool {
	for sub := range cluster.All[cluster.Subnet](f.Snap) {
		if sub.Network == network && sub.Prefix.Contains(at) {
			return true
		}
	}
	return false
}

// host is the one that a text means, by its address or by its name.
func (f Facts) host(text string) (host cluster.Node, at netip.Addr, ok bool) {
	addr, _ := netip.ParseAddr(text)
	addr = addr.Unmap()
	_, none := view.EndpointsOf(f.Snap, text)
	for n := range cluster.All[cluster.Node](f.Snap) {
		if v := n.Address().Unmap(); v.IsValid() && (v == addr || n.Name == text && none != nil) {
			return n, v, true
		}
	}
	return host, at, false
}

// ofHost says who is behind a port of a host.
func (f Facts) ofHost(l api.Lead, host cluster.Node, at netip.Addr, container bool) api.Lead {
	l.Addr, l.By = at, host.Name
	is := fmt.Sprintf("%s is host %s itself", at, host.Name)
	if l.Port == 0 || l.Proto == "icmp" {
		l.Notes = append(l.Notes, is)
		return l
	}
	door, err := f.Door(host, netip.AddrPortFrom(at, l.Port), l.Proto)
	if err != nil {
		l.Notes = append(l.Notes, fmt.Sprintf("what host %s itself says of the port is not known: %v", host.Name, err))
	}
	port := fmt.Sprintf("port %d/%s of host %s", l.Port, l.Proto, host.Name)
	exposed, all := f.exposed(l)
	published, has := cluster.Get[cluster.Endpoint](f.Snap, door.Endpoint)
	switch {
	case container && all:
		l.Kind, l.Name = api.LeadExposed, port+", exposed for "+exposed.Name()
		l.Wrong = "ports of all hosts are not for containers of the cluster"
		l.Do = "connect to " + insteadOf(exposed)
	case container && has:
		l.Notes = append(l.Notes, is+fmt.Sprintf(", where this port is published for container %s: it leads to its port %d, and who calls it from a container is somebody from outside there", cmp.Or(published.Name, published.ID), door.To.Port()))
	case container:
		l.Notes = append(l.Notes, is)
	case has:
		l.Kind, l.Name = api.LeadPublished, fmt.Sprintf("%s, published for container %s", port, cmp.Or(published.Name, published.ID))
		l.Backs = []api.LeadBack{f.back(service.Replica{Endpoint: published, In: true}, door.To)}
		if door.To.Addr().Is4() != at.Is4() {
			l.Wrong = fmt.Sprintf("the container has no address of that family: a program of host %s answers, and asks the container at %s itself", host.Name, door.To)
			l.Do = fmt.Sprintf("grapevine trace %s %s", host.Name, door.To)
		}
	case all:
		return f.ofExposed(l, exposed, host, port, door)
	case err == nil:
		l.Kind, l.Name = api.LeadPublished, port
		l.Wrong = "nothing of grapevine is behind it: no container has it published, and no service is exposed by it"
		l.Do = "grapevine ps lists published ports, on their own host; grapevine service list those of services. A program of the host itself may have the port"
	}
	return l
}

// insteadOf is what containers connect to in place of an exposed port.
func insteadOf(e expose.Exposure) string {
	if e.Service == "" {
		return fmt.Sprintf("port %d of the containers themselves", e.Target)
	}
	return "the service itself, by its name or its own address: grapevine service show " + e.Network + "/" + e.Service
}

// exposed is the exposure that has the port.
func (f Facts) exposed(l api.Lead) (expose.Exposure, bool) {
	for _, e := range expose.All(f.Snap) {
		if e.Port == (expose.Port{UDP: l.Proto == "udp", Port: l.Port}) && e.Proto() == l.Proto && e.Loses == "" {
			return e, true
		}
	}
	return expose.Exposure{}, false
}

// ofExposed says to which containers a host leads an exposed port.
func (f Facts) ofExposed(l api.Lead, e expose.Exposure, host cluster.Node, port string, door expose.Door) api.Lead {
	l.Kind, l.Name = api.LeadExposed, port+", exposed for "+e.Name()
	answers := func(id cluster.NodeID) bool {
		n, _ := cluster.Get[cluster.Node](f.Snap, string(id))
		return n.Exposes
	}
	chosen := e.Choose(expose.Hosts{Self: host.ID, Stand: f.Stand, Answers: answers}, l.Addr.Is6())
	for _, r := range e.Replicas {
		for _, a := range r.Named() {
			if a.Is6() != l.Addr.Is6() {
				continue
			}
			to := netip.AddrPortFrom(a, e.Target)
			r.In = slices.Contains(chosen.To, to)
			b := f.back(r, to)
			switch {
			case b.In:
			case r.Host != host.ID && !answers(r.Host):
				b.Why = "its host's agent or switch cannot answer by another host"
			case slices.Contains(chosen.Ready, to):
				b.Why = "host " + host.Name + " leads to its own while it has some"
			case r.Unready:
				b.Why = "it is paused, being stopped, or not healthy"
			default:
				b.Why = "its host is in doubt, or does not answer"
			}
			l.Backs = append(l.Backs, b)
			break
		}
	}
	wrong := func(do, format string, args ...any) api.Lead {
		l.Wrong, l.Do = fmt.Sprintf(format, args...), do
		return l
	}
	switch {
	case e.Closed:
		return wrong("put the containers on another network", "network %s is internal, and has no way to the outside", e.Network)
	case door.Refuses != "":
		return wrong("grapevine status on host "+host.Name+"; the other hosts answer it", "host %s does not answer it: %s", host.Name, door.Refuses)
	case f.Stand != nil && f.Stand(host.ID) == cluster.Gone:
		return wrong("grapevine status", "host %s does not answer", host.Name)
	case len(e.Replicas) == 0:
		return wrong("grapevine service list", "no container is behind it: a connection to it is refused")
	case len(chosen.To) == 0:
		return wrong("grapevine service list", "none of its containers can be reached by host %s over this family of addresses", host.Name)
	}
	return l
}

func (f Facts) back(r service.Replica, to netip.AddrPort) api.LeadBack {
	return api.LeadBack{Name: cmp.Or(r.Name, r.ID), Network: r.Network, Host: f.Snap.HostName(r.Host), Addr: to.Addr(), Port: to.Port(), In: r.In}
}

// egress says with which address what endpoints send to an address outside leaves, if that is not their own host's.
func (f Facts) egress(l *api.Lead, from []cluster.Endpoint, text string) {
	addr, err := netip.ParseAddr(text)
	addr = addr.Unmap()
	if err != nil || addr.IsLinkLocalUnicast() || f.ofCluster(addr) {
		return
	}
	all := egress.All(f.Snap)
	choice := egress.NewChoice(f.Snap, all)
	for _, e := range from {
		by, known := choice.Of(e)
		i := slices.IndexFunc(all, func(l egress.Listed) bool { return l.Name == by })
		n, _ := cluster.Get[cluster.Network](f.Snap, e.Network)
		if i < 0 || n.Internal || n.VNID == 0 {
			continue
		}
		listed := all[i]
		out := &api.LeadEgress{Name: listed.Name, Network: e.Network, Addr: listed.Addr(addr.Is6())}
		l.Egress = out
		var notes []string
		if i := slices.IndexFunc(f.Egresses, func(o api.Egress) bool { return o.Name == listed.Name }); i >= 0 {
			out.Holder, notes = f.Egresses[i].Holder, f.Egresses[i].Notes
		}
		switch {
		case !known:
			out.Wrong = "it asks for labels, and those of the container are not known, so that it does not leave"
			out.Do = "grapevine egress show " + listed.Name
		case !out.Addr.IsValid():
			out.Wrong = fmt.Sprintf("it has no address of the family of %s, and so nothing leaves for there", addr)
			out.Do = fmt.Sprintf("grapevine egress set %s --address ADDRESS --address ADDRESS, one of each family", listed.Name)
		case out.Holder == "":
			out.Wrong = cmp.Or(strings.Join(notes, "; "), "no gateway holds its address, and so nothing leaves for the outside")
			out.Do = "grapevine egress show " + listed.Name
		default:
			l.Notes = append(l.Notes, notes...)
		}
		return
	}
}

// ofCluster says that an address is of a network's subnet.
func (f Facts) ofCluster(a netip.Addr) bool {
	for sub := range cluster.All[cluster.Subnet](f.Snap) {
		if sub.Prefix.Contains(a) {
			return true
		}
	}
	return false
}
