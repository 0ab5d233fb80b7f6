package overlay

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// Ports are the OpenFlow ports of the bridge; 0 is none. Endpoints is by endpoint ID.
type Ports struct {
	Tunnel, Gateway uint32
	GatewayMAC      net.HardwareAddr
	Endpoints       map[string]uint32
}

// Problem is a record that flows cannot be made for.
type Problem struct {
	Key cluster.Key
	Err error
}

// Plan says what the flows of host self depend on. It is pure, and its Input
// compiles whatever the snapshot holds: records that contradict others or make no
// sense are left out and returned as problems.
//
// Subnets without a known network are left out, and with them their ranges. The
// ranges are the ring's claims, cut to the subnet: of hosts with a known VTEP they
// go there, of others nowhere. In a subnet with HostBits only shares of that length,
// or parts of one, are routed: a wider claim is slots not yet handed out.
func Plan(snap *cluster.Snapshot, self cluster.NodeID, mode pipeline.TunnelMode, ports Ports) (pipeline.Input, []Problem) {
	p := &planner{snap: snap, self: self, in: pipeline.Input{
		Round: pipeline.Round, Tunnel: mode,
		TunnelPort: ports.Tunnel, GatewayPort: ports.Gateway, GatewayMAC: ports.GatewayMAC,
	}}
	p.networks()
	p.nodes()
	p.subnets()
	p.endpoints(ports.Endpoints)
	p.neighbours()
	return p.in, p.problems
}

type planner struct {
	snap     *cluster.Snapshot
	self     cluster.NodeID
	in       pipeline.Input
	problems []Problem

	network map[string]cluster.Network
	vtep    map[cluster.NodeID]netip.Addr
	subnet  []cluster.Subnet
}

func (p *planner) problem(b cluster.Body, format string, a ...any) {
	p.problems = append(p.problems, Problem{b.Key(), fmt.Errorf(format, a...)})
}

func (p *planner) networks() {
	p.network = map[string]cluster.Network{}
	for n := range cluster.All[cluster.Network](p.snap) {
		if n.VNID > pipeline.MaxVNID {
			p.problem(n, "network %s: VNID %d does not fit in 24 bits", n.Name, n.VNID)
			continue
		}
		p.network[n.Name] = n
	}
}

// nodes finds the VTEPs of the other hosts. A host that claims this one's address
// is an earlier life of it: nothing is sent there.
func (p *planner) nodes() {
	p.vtep = map[cluster.NodeID]netip.Addr{}
	me, _ := cluster.Get[cluster.Node](p.snap, string(p.self))
	for n := range cluster.All[cluster.Node](p.snap) {
		a := n.VTEP.Unmap().WithZone("")
		switch {
		case n.ID == p.self || a == me.VTEP.Unmap():
		case !a.IsValid() || a.IsUnspecified() || a.IsMulticast():
			p.problem(n, "host %s: its VTEP %s is no address to send to", n.Name, n.VTEP)
		default:
			p.vtep[n.ID] = a
		}
	}
	for a, i := range vtepIndexes(slices.Collect(maps.Values(p.vtep))) {
		p.in.VTEPs = append(p.in.VTEPs, pipeline.VTEP{Addr: a, Index: i})
	}
	slices.SortFunc(p.in.VTEPs, func(a, b pipeline.VTEP) int { return a.Addr.Compare(b.Addr) })
	p.hosts()
}

// hosts says which addresses the hosts have to speak to each other's containers from.
func (p *planner) hosts() {
	var ids []cluster.NodeID
	for n := range cluster.All[cluster.Node](p.snap) {
		ids = append(ids, n.ID)
	}
	addrs := hostAddrs(ids)
	p.in.Host = addrs[p.self]
	at := map[netip.Addr]int{}
	for i, v := range p.in.VTEPs {
		at[v.Addr] = i
	}
	slices.Sort(ids)
	for _, id := range ids {
		if i, ok := at[p.vtep[id]]; ok {
			p.in.VTEPs[i].Host = append(p.in.VTEPs[i].Host, addrs[id]...)
		}
	}
}

func (p *planner) subnets() {
	for s := range cluster.All[cluster.Subnet](p.snap) {
		n, known := p.network[s.Network]
		switch {
		case !known:
			continue // gossip brings the network soon
		case !s.Prefix.IsValid() || s.Prefix != s.Prefix.Masked():
			p.problem(s, "subnet %s of network %s is no prefix", s.Prefix, s.Network)
			continue
		}
		if !s.Prefix.Contains(s.Gateway) {
			s.Gateway = netip.Addr{}
		}
		p.subnet = append(p.subnet, s)
		p.in.Subnets = append(p.in.Subnets, pipeline.Subnet{Prefix: s.Prefix, VNID: n.VNID, Gateway: s.Gateway})
	}
	p.routes()
}

// routes cuts the ring's claims to the subnets. Where subnets overlap, which no
// host would hand out, the narrower one has the range.
func (p *planner) routes() {
	seen := map[netip.Prefix]bool{}
	narrow := slices.Clone(p.subnet)
	slices.SortFunc(narrow, func(a, b cluster.Subnet) int { return cmp.Compare(b.Prefix.Bits(), a.Prefix.Bits()) })
	for _, s := range narrow {
		owners := p.owners(s)
		for _, prefix := range slices.SortedFunc(maps.Keys(owners), comparePrefix) {
			if !seen[prefix] {
				seen[prefix] = true
				p.in.Routes = append(p.in.Routes, pipeline.Route{
					Prefix: prefix, VNID: p.network[s.Network].VNID, VTEP: p.vtep[owners[prefix]],
				})
			}
		}
	}
}

// owners is who has which part of a subnet; the longest prefix counts.
func (p *planner) owners(s cluster.Subnet) map[netip.Prefix]cluster.NodeID {
	owners := map[netip.Prefix]cluster.NodeID{}
	for c := range p.snap.Ring().Within(s.Prefix) {
		if s.HostBits != 0 && c.Block.Bits() < s.Prefix.Addr().BitLen()-int(s.HostBits) {
			continue
		}
		block := c.Block
		if block.Bits() < s.Prefix.Bits() {
			block = s.Prefix // claims around come widest first: the last one counts
		}
		owners[block] = c.Owner
	}
	return owners
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func (p *planner) endpoints(ofports map[string]uint32) {
	taken := map[netip.Addr]string{}
	for _, s := range p.in.Subnets {
		taken[s.Gateway] = "the gateway of " + s.Prefix.String()
	}
	usedPort := map[uint32]bool{}
	for _, e := range localEndpoints(p.snap, p.self) {
		ofport := ofports[e.ID]
		if ofport == 0 || usedPort[ofport] {
			continue
		}
		port, err := p.port(e, ofport, taken)
		if err != nil {
			p.problem(e, "endpoint %s: %w", e.ID, err)
			continue
		}
		usedPort[ofport] = true
		p.in.Ports = append(p.in.Ports, port)
	}
}

func (p *planner) port(e cluster.Endpoint, ofport uint32, taken map[netip.Addr]string) (pipeline.Port, error) {
	n, ok := p.network[e.Network]
	if !ok {
		return pipeline.Port{}, fmt.Errorf("its network %q is not known", e.Network)
	}
	mac, err := net.ParseMAC(e.MAC)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		return pipeline.Port{}, fmt.Errorf("%q is no MAC of an interface", e.MAC)
	}
	port := pipeline.Port{OFPort: ofport, MAC: mac, VNID: n.VNID, Internal: n.Internal, Endpoint: e.ID}
	// There is nothing yet that the flows alone could do to its packets. What comes to be
	// (policy, services, mirrors, traces, limits) has its say here.
	port.Plain = true
	for _, a := range e.Addrs {
		a = a.Unmap().WithZone("")
		switch {
		case !a.IsValid() || a.IsUnspecified() || a.IsMulticast():
			return pipeline.Port{}, fmt.Errorf("%s is no address of an interface", a)
		case taken[a] != "":
			return pipeline.Port{}, fmt.Errorf("its address %s is that of %s", a, taken[a])
		}
		port.Addrs = append(port.Addrs, a)
	}
	if len(port.Addrs) == 0 {
		return pipeline.Port{}, errors.New("it has no address")
	}
	for _, a := range port.Addrs {
		taken[a] = "endpoint " + e.ID
	}
	return port, nil
}

// localEndpoints are the endpoints of host self by ID.
func localEndpoints(snap *cluster.Snapshot, self cluster.NodeID) []cluster.Endpoint {
	return slices.SortedFunc(cluster.Written[cluster.Endpoint](snap, self), func(a, b cluster.Endpoint) int { return cmp.Compare(a.ID, b.ID) })
}
