package overlay

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// everyone are the addresses that all of a network get, by family.
var everyone = map[bool][]netip.Addr{
	false: {netip.AddrFrom4([4]byte{255, 255, 255, 255}), netip.MustParseAddr("224.0.0.1")},
	true:  {netip.MustParseAddr("ff02::1")},
}

// audience is who gets what is for an address of a network.
type audience struct {
	ports []uint32
	hosts map[cluster.NodeID]bool
}

// party is a network that carries multicast and is on this host: who gets what, by address.
type party struct {
	cluster.Network
	all  []netip.Addr // what everyone gets
	gets map[netip.Addr]*audience
}

func (q *party) of(a netip.Addr) *audience {
	if q.gets[a] == nil {
		q.gets[a] = &audience{hosts: map[cluster.NodeID]bool{}}
	}
	return q.gets[a]
}

// groups finds who gets what is sent to groups, and to all, on the networks of this host that carry multicast. An endpoint that
// rules guard gets nothing: rules judge connections, and there is none.
func (p *planner) groups() {
	parties := map[string]*party{}
	ports := map[string]uint32{}
	for _, port := range p.in.Ports {
		if port.Multicast {
			ports[port.Endpoint] = port.OFPort
		}
	}
	if len(ports) == 0 {
		return // and the others' endpoints are many
	}
	for _, e := range p.local {
		if ports[e.ID] != 0 && parties[e.Network] == nil {
			parties[e.Network] = p.party(e.Network)
		}
	}
	for _, g := range p.in.Policy.Guards {
		if g.Ingress {
			delete(ports, g.Endpoint)
		}
	}
	told := map[cluster.NodeID]int{} // a host that means harm tells more than others let it
	for _, e := range p.hearers {
		q := parties[e.Network]
		if q == nil || !e.casts {
			continue
		}
		of := e.groups[:min(len(e.groups), cluster.MaxGroups, cluster.MaxHostGroups-told[e.Host])]
		told[e.Host] += len(of)
		for _, a := range slices.Concat(q.all, of) {
			if port := ports[e.ID]; port != 0 {
				at := q.of(a)
				at.ports = append(at.ports, port)
			} else if e.Host != p.self {
				q.of(a).hosts[e.Host] = true
			}
		}
	}
	for _, q := range parties {
		for a, at := range q.gets {
			p.in.Groups = append(p.in.Groups, p.group(q, a, at))
		}
	}
	slices.SortFunc(p.in.Groups, func(a, b pipeline.Group) int { return cmp.Or(cmp.Compare(a.VNID, b.VNID), a.Addr.Compare(b.Addr)) })
}

// party is a network without members.
func (p *planner) party(name string) *party {
	q := &party{Network: p.network[name], gets: map[netip.Addr]*audience{}}
	families := map[bool]bool{}
	for _, s := range p.subnet {
		if s.Network != name {
			continue
		}
		families[s.Prefix.Addr().Is6()] = true
		if last := pipeline.Broadcast(s.Prefix); last.IsValid() {
			q.all = append(q.all, last)
		}
	}
	for six := range families {
		q.all = append(q.all, everyone[six]...)
	}
	return q
}

func (p *planner) group(q *party, a netip.Addr, at *audience) pipeline.Group {
	g := pipeline.Group{VNID: q.VNID, Addr: a, Ports: slices.Sorted(slices.Values(at.ports)), Encrypted: q.Encrypted()}
	for _, id := range slices.Sorted(maps.Keys(at.hosts)) {
		vtep := p.vtep[id]
		if q.Encrypted() { // there, or nowhere
			vtep = p.secure[id]
		}
		if vtep.IsValid() {
			g.VTEPs = append(g.VTEPs, vtep)
		}
	}
	slices.SortFunc(g.VTEPs, netip.Addr.Compare)
	g.VTEPs = slices.Compact(g.VTEPs)
	return g
}
