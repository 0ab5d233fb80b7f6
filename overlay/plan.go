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
	Inside          uint32 // the tunnel's for what encrypts, 0 if that comes by Tunnel
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
	return new(plans).plan(snap, self, mode, ports)
}

// plans makes one plan after the other, of one host, and of each only what depends on
// records that have changed. The zero value has made none.
type plans struct {
	snap     *cluster.Snapshot
	topology *topology
	mode     pipeline.TunnelMode
	ports    Ports
	in       pipeline.Input
	problems []Problem
	closed   []netip.Prefix // addresses of clients that come in by this host
	hearers  hearers
	// policies are what policies ask of the switch, unless it cannot enforce them (powerless).
	policies  enforcer
	powerless bool
	// exposed: nothing of encrypted networks goes to other hosts, since it would go in the clear.
	exposed, wasExposed bool
	reaches             func(network string) bool // this host is to; nil: all
	// unheard says with which hosts endpoints do not talk (Config.Unheard), planned with which they did not.
	unheard, unspoken map[string][]cluster.NodeID
}

// plan is Plan. What it returns is not to be changed.
func (m *plans) plan(snap *cluster.Snapshot, self cluster.NodeID, mode pipeline.TunnelMode, ports Ports) (pipeline.Input, []Problem) {
	keys, known := snap.Since(m.snap)
	var enforce pipeline.Policy
	var judged bool // by other rules than before
	if !m.powerless {
		enforce, judged = m.policies.follow(snap, self, func(endpoint string) bool {
			return m.snap == nil || slices.ContainsFunc(m.in.Ports, func(p pipeline.Port) bool { return p.Endpoint == endpoint })
		})
	}
	topology := m.topology
	switch {
	case !known:
		m.topology = newTopology(snap, self, m.exposed, m.reaches, nil, nil)
	case slices.ContainsFunc(keys, isTopology) || m.exposed != m.wasExposed:
		m.topology = newTopology(snap, self, m.exposed, m.reaches, m.topology, keys)
	case !judged && maps.EqualFunc(m.unheard, m.unspoken, slices.Equal) && mode == m.mode && ports.equal(m.ports) && !slices.ContainsFunc(keys, func(k cluster.Key) bool {
		return m.concerns(m.snap, k, self) || m.concerns(snap, k, self)
	}):
		m.snap = snap
		return m.in, m.problems
	}
	p := &planner{topology: m.topology, snap: snap, self: self, local: localEndpoints(snap, self), problems: m.topology.problems(), in: pipeline.Input{
		Round: pipeline.Round, Tunnel: mode,
		TunnelPort: ports.Tunnel, InsidePort: ports.Inside, GatewayPort: ports.Gateway, GatewayMAC: ports.GatewayMAC,
		VTEP: m.topology.self, Host: m.topology.host, VTEPs: m.topology.vteps, Subnets: m.topology.subnets, Routes: m.topology.routes, Encrypted: m.topology.secret,
	}}
	p.endpoints(ports.Endpoints)
	m.closed = closedTo(p.local)
	m.hearers.follow(snap, m.topology, p.local, keys, m.topology != topology)
	p.hearers = m.hearers.sorted()
	p.neighbours()
	p.in.Policy = enforce
	p.groups()
	p.unheard(m.unheard)
	for i := range p.in.Ports {
		port := &p.in.Ports[i]
		guarded := m.policies.guarded[port.Endpoint]
		plain := !queued(snap, port.Endpoint)
		port.Plain, port.Guarded, port.Rejects = plain && !guarded, plain && guarded, guarded && m.policies.rejects
	}
	m.snap, m.mode, m.ports, m.in, m.problems, m.wasExposed, m.unspoken = snap, mode, ports, p.in, p.problems, m.exposed, m.unheard
	return m.in, m.problems
}

// queued reports whether what an endpoint gets is limited: it waits where the switch sends it, at an
// interface that the fast path passes by.
func queued(snap *cluster.Snapshot, endpoint string) bool {
	e, there := cluster.Get[cluster.Endpoint](snap, endpoint)
	return there && snap.Limits(e).Ingress != 0
}

func (p Ports) equal(o Ports) bool {
	return p.Tunnel == o.Tunnel && p.Inside == o.Inside && p.Gateway == o.Gateway && slices.Equal(p.GatewayMAC, o.GatewayMAC) && maps.Equal(p.Endpoints, o.Endpoints)
}

// concerns reports whether a record has a say in the flows of a host beside the topology: an endpoint's on this host, or a hearer's.
func (m *plans) concerns(snap *cluster.Snapshot, k cluster.Key, self cluster.NodeID) bool {
	if k.Kind == cluster.KindNetworkLimits { // by which the fast path leaves its containers to the switch, or does not
		return true
	}
	if k.Kind == cluster.KindEndpoint {
		if e, there := cluster.Get[cluster.Endpoint](snap, k.ID); there && e.Host == self {
			return true
		}
	}
	return m.hearers.concern(snap, k)
}

// planner adds to the topology what is this host's own.
type planner struct {
	*topology
	snap     *cluster.Snapshot
	self     cluster.NodeID
	local    []cluster.Endpoint
	in       pipeline.Input
	hearers  []hearer // by ID
	problems []Problem
}

func (p *planner) problem(b cluster.Body, format string, a ...any) {
	p.problems = append(p.problems, problem(b, format, a...))
}

func (p *planner) endpoints(ofports map[string]uint32) {
	taken := map[netip.Addr]string{}
	for _, s := range p.in.Subnets {
		taken[s.Gateway] = "the gateway of " + s.Prefix.String()
	}
	usedPort := map[uint32]bool{}
	for _, e := range p.local {
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
	if err := p.left[e.Network]; err != nil {
		return pipeline.Port{}, fmt.Errorf("its %w: one of the two is to be removed, on every host", err)
	}
	if !ok {
		return pipeline.Port{}, fmt.Errorf("its network %q is not known", e.Network)
	}
	mac, err := net.ParseMAC(e.MAC)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		return pipeline.Port{}, fmt.Errorf("%q is no MAC of an interface", e.MAC)
	}
	port := pipeline.Port{OFPort: ofport, MAC: mac, VNID: n.VNID, Realm: p.realm[n.Name], Internal: n.Internal || e.IsClient(), Encrypted: n.Encrypted(), Multicast: n.Multicast(), Endpoint: e.ID}
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

// closedTo are the addresses of clients. A container of a network that is not internal reaches the outside and its host; a
// client reaches its network.
func closedTo(local []cluster.Endpoint) (list []netip.Prefix) {
	for _, e := range local {
		if e.IsClient() {
			for _, a := range e.Addrs {
				list = append(list, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	return list
}

// localEndpoints are the endpoints of host self by ID.
func localEndpoints(snap *cluster.Snapshot, self cluster.NodeID) []cluster.Endpoint {
	return slices.SortedFunc(cluster.Written[cluster.Endpoint](snap, self), func(a, b cluster.Endpoint) int { return cmp.Compare(a.ID, b.ID) })
}
