// Package expose says which ports of the cluster's hosts lead to which containers, for the outside: those of services
// that are exposed, and those that containers' labels ask for. It is pure: package service/expose/hold does it.
package expose

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/service"
)

// maxPorts are those of one container's label.
const maxPorts = 16

// Label of a container names ports of it that all hosts have: PORT[:TARGET][/PROTOCOL], several by commas, TARGET being the
// container's. All containers of a network with the same one are behind it.
const Label = "grapevine.expose"

// Port is one of all hosts.
type Port struct {
	UDP  bool // else TCP
	Port uint16
}

// Text is a port as people write it.
func (p Port) Text() string { return strconv.Itoa(int(p.Port)) + "/" + p.Proto() }

// Proto is tcp or udp.
func (p Port) Proto() string {
	if p.UDP {
		return "udp"
	}
	return "tcp"
}

// Exposure leads a port of all hosts to a port of containers on a network.
type Exposure struct {
	Port
	Target  uint16
	Network string
	Service string // its name; "": containers' labels ask for it
	since   uint64 // of labels: when the first of them asked (cluster.Endpoint.Exposing)
	// Loses says who has the port instead; "": this one has.
	Loses string
	// Closed says that its network is internal: nothing of it reaches the outside.
	Closed bool
	// Replicas are all containers that it is about, whether they get connections or not. Their order is by ID once
	// somebody has asked who gets any (Choose).
	Replicas []service.Replica
}

// Name is the exposure's, for people.
func (e Exposure) Name() string {
	if e.Service == "" {
		return "the label " + Label + " on network " + e.Network
	}
	return "service " + e.Network + "/" + e.Service
}

// All returns all exposures by port, and who has a port comes before who loses it: which of two that is, is the same on
// all hosts. A service comes before labels, and of labels who asked first.
func All(snap *cluster.Snapshot) (list []Exposure) {
	list = append(ofServices(snap), ofLabels(snap)...)
	slices.SortFunc(list, func(a, b Exposure) int {
		return cmp.Or(cmp.Compare(a.Port.Port, b.Port.Port), cmp.Compare(a.Proto(), b.Proto()), cmp.Compare(a.labelled(), b.labelled()), cmp.Compare(a.since, b.since),
			cmp.Compare(a.Network, b.Network), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Target, b.Target))
	})
	for i := 1; i < len(list); i++ {
		if first := list[i-1]; first.Port == list[i].Port {
			list[i].Loses = cmp.Or(first.Loses, first.Name())
		}
	}
	return list
}

// labelled is 1 of what labels ask for: services come first.
func (e Exposure) labelled() int {
	if e.Service == "" {
		return 1
	}
	return 0
}

// Heed says which exposures a host answers: its setting GRAPEVINE_EXPOSE.
type Heed string

// The settings.
const (
	Services Heed = "services"
	Labels   Heed = "labels" // and services'
	Nothing  Heed = "off"
)

// Heeds reports whether a host answers one.
func (h Heed) Heeds(e Exposure) bool {
	return h == Labels || h == Services && e.Service != ""
}

func ofServices(snap *cluster.Snapshot) (list []Exposure) {
	replicas := map[string][]*Exposure{} // by network
	var all []*Exposure
	selects := map[*Exposure]cluster.Service{}
	for s := range cluster.All[cluster.Service](snap) {
		for _, x := range s.Exposed {
			target, ok := targetOf(s, x)
			p, known := portOf(x)
			if !ok || !known {
				continue
			}
			e := &Exposure{Port: p, Target: target, Network: s.Network, Service: s.Name, Closed: closed(snap, s.Network)}
			all, selects[e] = append(all, e), s
			replicas[s.Network] = append(replicas[s.Network], e)
		}
	}
	if len(all) > 0 {
		for at := range cluster.All[cluster.Endpoint](snap) {
			for _, e := range replicas[at.Network] {
				if service.Selects(selects[e], at) {
					e.Replicas = append(e.Replicas, service.Replica{Endpoint: at})
				}
			}
		}
	}
	for _, e := range all {
		list = append(list, *e)
	}
	return list
}

// targetOf is the replicas' port behind an exposed one.
func targetOf(s cluster.Service, x cluster.ServicePort) (uint16, bool) {
	i := slices.IndexFunc(s.Ports, func(p cluster.ServicePort) bool { return p.Proto == x.Proto && p.Port == x.Target })
	if i < 0 {
		return 0, false
	}
	return s.Ports[i].Target, true
}

func portOf(p cluster.ServicePort) (Port, bool) {
	return Port{UDP: p.Proto == "udp", Port: p.Port}, p.Proto == "tcp" || p.Proto == "udp"
}

func closed(snap *cluster.Snapshot, network string) bool {
	n, _ := cluster.Get[cluster.Network](snap, network)
	return n.Internal
}

func ofLabels(snap *cluster.Snapshot) (list []Exposure) {
	type key struct {
		network string
		port    cluster.ServicePort
	}
	at := map[key]int{}
	for e := range cluster.All[cluster.Endpoint](snap) {
		text := e.Labels[Label]
		if text == "" {
			continue
		}
		ports, _ := Parse(text) // what is wrong is named where the container is
		for _, p := range ports {
			port, known := portOf(p)
			if !known {
				continue
			}
			k := key{e.Network, p}
			i, there := at[k]
			if !there {
				i = len(list)
				at[k] = i
				list = append(list, Exposure{Port: port, Target: p.Target, Network: e.Network, since: e.Exposing, Closed: closed(snap, e.Network)})
			}
			list[i].since = min(list[i].since, e.Exposing)
			list[i].Replicas = append(list[i].Replicas, service.Replica{Endpoint: e})
		}
	}
	return list
}

// Parse reads what the label says.
func Parse(text string) (ports []cluster.ServicePort, err error) {
	for one := range strings.SplitSeq(text, ",") {
		p, err := service.ParsePort(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	if len(ports) > maxPorts {
		return nil, fmt.Errorf("%d ports, and all hosts give a container %d at most", len(ports), maxPorts)
	}
	return ports, nil
}

// Check says what is wrong with the label of a container, if it has it.
func Check(labels map[string]string) error {
	text, there := labels[Label]
	if !there {
		return nil
	}
	if _, err := Parse(text); err != nil {
		return fmt.Errorf("label %s: %w", Label, err)
	}
	return nil
}

// Back is where one host leads a port.
type Back struct {
	To []netip.AddrPort // new connections go to one of these
	// Ready are those that would get some if none were this host's own: datagrams to them stay.
	Ready []netip.AddrPort
	// There are the addresses of all replicas that there are: what is open to them stays.
	There []netip.Addr
}

// Equal reports whether two are the same.
func (b Back) Equal(o Back) bool {
	return slices.Equal(b.To, o.To) && slices.Equal(b.Ready, o.Ready) && slices.Equal(b.There, o.There)
}

// Hosts say what is known of the cluster's hosts.
type Hosts struct {
	Self  cluster.NodeID
	Stand service.Hosts // nil: all answer
	// Answers reports whether a host's containers answer who comes by another host (cluster.Node.Exposes).
	Answers func(cluster.NodeID) bool
}

// Choose says where a host leads the port: to replicas of its own, if it has some that get connections, and else to
// those of others. A replica on a host that cannot answer by another one gets none from it.
func (e Exposure) Choose(h Hosts, v6 bool) (b Back) {
	if e.Closed {
		return b
	}
	var able []service.Replica
	for _, r := range e.Replicas {
		if r.Host != h.Self && !h.Answers(r.Host) {
			continue
		}
		if h.Stand != nil {
			r.Standing = h.Stand(r.Host)
		}
		able = append(able, r)
	}
	own := false
	for _, r := range service.Choose(able) {
		i := slices.IndexFunc(r.Named(), func(a netip.Addr) bool { return a.Is6() == v6 })
		if i < 0 {
			continue
		}
		b.There = append(b.There, r.Addrs[i])
		if !r.In {
			continue
		}
		to, here := netip.AddrPortFrom(r.Addrs[i], e.Target), r.Host == h.Self
		b.Ready = append(b.Ready, to)
		if here && !own {
			own, b.To = true, nil
		}
		if here || !own {
			b.To = append(b.To, to)
		}
	}
	return b
}

// Stranded is an exposure that a host leads nowhere although there are containers: all are on other hosts that do not answer by it.
type Stranded struct {
	Exposure
	Hosts []cluster.NodeID // in order
}

// Strands returns those of a host that heeds what is said so.
func Strands(snap *cluster.Snapshot, self cluster.NodeID, heed Heed) (list []Stranded) {
	for _, e := range All(snap) {
		if e.Loses != "" || e.Closed || !heed.Heeds(e) {
			continue
		}
		var hosts []cluster.NodeID
		for _, r := range e.Replicas {
			n, known := cluster.Get[cluster.Node](snap, string(r.Host))
			if r.Host == self || known && n.Exposes {
				hosts = nil
				break
			}
			if known {
				hosts = append(hosts, r.Host)
			}
		}
		if len(hosts) > 0 {
			slices.Sort(hosts)
			list = append(list, Stranded{e, slices.Compact(hosts)})
		}
	}
	return list
}
