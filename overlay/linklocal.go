package overlay

import (
	"net"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// linkPlace is a link-local address on a network: on another one it is another's.
type linkPlace struct {
	vnid uint32
	addr netip.Addr
}

// neighbours gives this host's endpoints their link-local addresses, and finds those of
// other hosts' endpoints on the same networks. Where two have one address, which users may
// ask for, the lower endpoint ID has it, on all hosts.
func (p *planner) neighbours() {
	port, here := map[string]*pipeline.Port{}, map[uint32]bool{}
	for i := range p.in.Ports {
		port[p.in.Ports[i].Endpoint] = &p.in.Ports[i]
	}
	for _, e := range p.local {
		if n, known := p.network[e.Network]; known && port[e.ID] != nil && !here[n.VNID] {
			here[n.VNID] = len(linkLocals(e, n)) > 0 // else nobody here has such a neighbour
		}
	}
	taken := map[linkPlace]string{}
	for _, e := range p.hearers {
		vnid := p.network[e.Network].VNID
		for _, a := range e.linkLocals {
			at := linkPlace{vnid, a}
			switch has := taken[at]; {
			case !here[vnid] || has == e.ID:
				continue
			case vnid == 0 && p.network[e.Network].Encrypted():
				continue // others of VNID 0, which are not encrypted, would be its neighbours
			case has != "" && e.Host == p.self:
				p.problem(e.Endpoint, "endpoint %s: its link-local address %s is that of endpoint %s as well", e.ID, a, has)
				continue
			case has != "":
				continue
			}
			taken[at] = e.ID
			if mine := port[e.ID]; mine != nil {
				mine.LinkLocal = append(mine.LinkLocal, a)
			} else if vtep := p.way(e.Endpoint); vtep.IsValid() {
				p.in.Neighbours = append(p.in.Neighbours, pipeline.Neighbour{Addr: a, VNID: vnid, Realm: p.realm[e.Network], VTEP: vtep, Multicast: p.network[e.Network].Multicast()})
			}
		}
	}
}

// way is the VTEP of another host's endpoint.
func (p *planner) way(e cluster.Endpoint) netip.Addr {
	if p.network[e.Network].Encrypted() {
		return p.secure[e.Host]
	}
	return p.vtep[e.Host]
}

// linkLocals are an endpoint's link-local addresses: those that it was given and, with one
// of IPv6 among them, the one that its kernel makes of the MAC, which it speaks from as well: so it does on a network that
// carries multicast, to groups.
func linkLocals(e cluster.Endpoint, n cluster.Network) []netip.Addr {
	if len(e.LinkLocal) == 0 && !n.Multicast() {
		return nil // the way of nearly all
	}
	speaks := n.Multicast() && !e.IsClient() && slices.ContainsFunc(e.Addrs, netip.Addr.Is6)
	out := slices.DeleteFunc(slices.Clone(e.LinkLocal), func(a netip.Addr) bool { return !a.IsLinkLocalUnicast() || a.Is4In6() })
	mac, err := net.ParseMAC(e.MAC)
	if err == nil && len(mac) == 6 && (speaks || slices.ContainsFunc(out, netip.Addr.Is6)) && !slices.Contains(out, pipeline.LinkLocal(mac)) {
		out = append(out, pipeline.LinkLocal(mac))
	}
	return out
}
