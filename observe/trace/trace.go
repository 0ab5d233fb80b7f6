// Package trace follows a packet through the switches of the cluster: each host says what its own would do, and the
// one that is asked joins that to a way there and back.
package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/overlay/walk"
)

// methodStep asks another host what it would do with a packet.
const methodStep = "trace.step"

// callPatience bounds a call to another host.
const callPatience = 5 * time.Second

// Config of a Desk.
type Config struct {
	Self     cluster.NodeID
	Snapshot func() *cluster.Snapshot
	// Call asks another host (gossip.Gossip.Call).
	Call func(ctx context.Context, node, method string, body []byte) ([]byte, error)
	// Walk asks this host's switch.
	Walk func(context.Context, walk.Packet) (walk.Path, error)
	// Explain finds both ends, and says what ought to be.
	Explain func(context.Context, api.ExplainRequest) (api.Explanation, error)
	// Wires are for a real packet.
	Wires Wires
	Leads Leads
}

// Desk is where traces are asked for.
type Desk struct {
	cfg  Config
	runs *runs
}

// New makes a Desk.
func New(cfg Config) *Desk {
	return &Desk{cfg, &runs{wires: cfg.Wires, snap: cfg.Snapshot, self: cfg.Self, all: map[seat]*run{}}}
}

// Methods answer other hosts.
func (d *Desk) Methods() map[string]func(ctx context.Context, from string, body []byte) ([]byte, error) {
	methods := d.runs.methods()
	methods[methodDoor] = d.answerDoor
	methods[methodStep] = func(ctx context.Context, _ string, body []byte) ([]byte, error) {
		var p walk.Packet
		if err := cbor.Unmarshal(body, &p); err != nil {
			return nil, fmt.Errorf("read the packet: %w", err)
		}
		path, err := d.cfg.Walk(ctx, p)
		if err != nil {
			return nil, err
		}
		return cbor.Marshal(path)
	}
	return methods
}

// Trace answers POST /v1/trace.
func (d *Desk) Trace(ctx context.Context, r api.TraceRequest) (api.Trace, error) {
	snap := d.cfg.Snapshot()
	c, err := d.connection(ctx, snap, r)
	if err != nil {
		return api.Trace{}, err
	}
	var out api.Trace
	there, end := d.follow(ctx, snap, c.start, c.packet)
	out.There = there
	if end.arrived {
		back := c.packet.Back()
		back.Endpoint = end.endpoint
		if r.By != "" && c.from.ID == "" { // it answers by the host that was asked
			back.Via = end.via
		}
		out.Back, _ = d.follow(ctx, snap, end.host, back)
	}
	if !r.Dry {
		out.Packet = d.does(ctx, snap, c)
	}
	return out, nil
}

// connection is what a trace is about.
type connection struct {
	packet   walk.Packet
	from, to cluster.Endpoint // empty: none
	start    cluster.NodeID   // the host where the packet comes in
	source   uint16           // port, or of ICMP the identifier
}

var protocols = map[string]uint8{"tcp": walk.TCP, "udp": walk.UDP, "sctp": walk.SCTP, "icmp": walk.ICMP}

// firstPort is the first of the source ports of traced packets, above those that programs get.
const firstPort = 61000

func (d *Desk) connection(ctx context.Context, snap *cluster.Snapshot, r api.TraceRequest) (c connection, err error) {
	e, err := d.cfg.Explain(ctx, api.ExplainRequest{From: r.From, To: r.To, Proto: r.Proto, Port: r.Port})
	if err != nil {
		return c, err
	}
	if !e.From.Addr.IsValid() || !e.To.Addr.IsValid() {
		return c, &api.Error{Status: http.StatusBadRequest, Message: "trace a packet: " + cmp.Or(e.To.Name, r.To) + " is a name outside the cluster: give one of its addresses"}
	}
	switch a := e.To.Addr; {
	case a.IsLoopback():
		return c, api.Errorf(http.StatusBadRequest, "trace a packet: %v is each machine's own, and no packet to it leaves a container: give another address", a)
	case a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || a.IsUnspecified():
		return c, api.Errorf(http.StatusBadRequest, "trace a packet: %v is of many, and a trace goes to one: give the address of one", a)
	}
	c.from, c.to = endpointOf(snap, e.From), endpointOf(snap, e.To)
	proto := strings.ToLower(r.Proto)
	if proto == "" {
		if proto = "tcp"; r.Port == 0 {
			proto = "icmp"
		}
	}
	c.packet = walk.Packet{Src: e.From.Addr, Dst: e.To.Addr, Proto: protocols[proto], To: r.Port, Endpoint: c.from.ID}
	c.source = uint16(firstPort + rand.IntN(4000))
	if c.packet.From = c.source; c.packet.Proto == walk.ICMP {
		c.packet.From = 0
		if c.packet.Src.Is6() {
			c.packet.Proto = walk.ICMPv6
		}
	}
	by, known := hostNamed(snap, r.By)
	switch {
	case c.from.ID != "":
		c.start = c.from.Host
	case r.By != "" && !known:
		return c, api.Errorf(http.StatusBadRequest, "trace a packet: there is no host %.80s: see `grapevine nodes`", r.By)
	case r.By != "":
		c.start = by.ID
	case c.to.ID != "":
		c.start = c.to.Host // it comes in by that host's gateway
	default:
		return c, api.Errorf(http.StatusBadRequest, "trace a packet: neither %s nor %s is a container's address: name a container", r.From, r.To)
	}
	return c, nil
}

// endpointOf is the endpoint that an end of a connection is; empty: none.
func endpointOf(snap *cluster.Snapshot, p api.Peer) cluster.Endpoint {
	if p.Network != "" {
		for e := range cluster.All[cluster.Endpoint](snap) {
			if e.Network == p.Network && slices.Contains(e.Addrs, p.Addr) {
				return e
			}
		}
	}
	return cluster.Endpoint{}
}

// arrival is where a packet's way ends, if it arrives.
type arrival struct {
	arrived  bool
	host     cluster.NodeID
	endpoint string     // empty: at the host, or outside
	via      netip.Addr // the VTEP from which it came there
}

// mostHops bounds a way: a packet crosses the underlay once.
const mostHops = 3

// follow takes a packet from host to host.
func (d *Desk) follow(ctx context.Context, snap *cluster.Snapshot, at cluster.NodeID, p walk.Packet) (hops []api.TraceHop, end arrival) {
	for len(hops) < mostHops {
		hop := api.TraceHop{Host: snap.HostName(at)}
		path, err := d.step(ctx, at, p)
		if err != nil {
			hop.Error = err.Error()
			return append(hops, hop), end
		}
		hops = append(hops, describe(snap, hop, path))
		if path.End.Endpoint != "" || path.End.Gateway {
			return hops, arrival{true, at, path.End.Endpoint, p.VTEP}
		}
		next, known := hostAt(snap, path.End.VTEP)
		if !known {
			return hops, end
		}
		self, _ := cluster.Get[cluster.Node](snap, string(at))
		p.Endpoint, p.VNID, p.VTEP, p.Via = "", path.End.VNID, self.VTEP, netip.Addr{}
		p.Plain = path.Plain
		if cluster.SecureRange.Contains(path.End.VTEP) { // it goes inside WireGuard
			p.VTEP = cluster.SecureVTEP(at)
		}
		at = next.ID
	}
	return hops, end
}

// step asks a host what it would do with a packet.
func (d *Desk) step(ctx context.Context, at cluster.NodeID, p walk.Packet) (path walk.Path, err error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	if at == d.cfg.Self {
		return d.cfg.Walk(ctx, p)
	}
	body, err := cbor.Marshal(p)
	if err != nil {
		return path, err
	}
	answer, err := d.cfg.Call(ctx, string(at), methodStep, body)
	var remote *gossip.RemoteError
	switch {
	case errors.As(err, &remote) && strings.HasPrefix(remote.Text, "unknown method"):
		return path, errors.New("its agent is of an older version, which cannot say what its switch would do")
	case remote != nil:
		return path, errors.New(remote.Text)
	case err != nil:
		return path, err
	}
	return path, cbor.Unmarshal(answer, &path)
}

// describe is a path for people.
func describe(snap *cluster.Snapshot, hop api.TraceHop, path walk.Path) api.TraceHop {
	for _, s := range path.Steps {
		hop.Steps = append(hop.Steps, api.TraceStep{Stage: s.Stage, Object: called(snap, s.Object), Flow: s.Flow})
	}
	hop.End, hop.Where = where(snap, path.End)
	switch {
	case !path.FastOn:
		hop.FastPath = "off"
	case path.Fast == nil:
		hop.FastPath = "leaves"
	case *path.Fast == path.End:
		hop.FastPath, hop.Plain = "carries", path.Plain
	default:
		hop.FastPath, hop.FastTo = "differs", "to its host, by the gateway"
		if kind, place := where(snap, *path.Fast); kind == "other" {
			hop.FastTo = place
		} else if kind != "outside" {
			hop.FastTo = "to " + kind + " " + place
		}
	}
	return hop
}

func where(snap *cluster.Snapshot, e walk.End) (kind, name string) {
	switch {
	case e.Endpoint != "":
		return "container", containerName(snap, e.Endpoint)
	case e.VTEP.IsValid():
		if n, known := hostAt(snap, e.VTEP); known {
			return "host", n.Name
		}
		return "host", e.VTEP.String()
	case e.Gateway:
		return "outside", ""
	case e.Dropped():
		return "dropped", ""
	}
	return "other", e.Other
}

// called puts a container's name in place of its endpoint's ID.
func called(snap *cluster.Snapshot, object string) string {
	if id, ok := strings.CutPrefix(object, "endpoint "); ok {
		return "container " + containerName(snap, id)
	}
	return object
}

func containerName(snap *cluster.Snapshot, endpoint string) string {
	e, _ := cluster.Get[cluster.Endpoint](snap, endpoint)
	return cmp.Or(e.Name, fmt.Sprintf("%.12s", endpoint))
}

// hostNamed is the host of a name.
func hostNamed(snap *cluster.Snapshot, name string) (cluster.Node, bool) {
	for n := range cluster.All[cluster.Node](snap) {
		if n.Name == name {
			return n, true
		}
	}
	return cluster.Node{}, false
}

// hostAt is the host of a VTEP.
func hostAt(snap *cluster.Snapshot, vtep netip.Addr) (cluster.Node, bool) {
	for n := range cluster.All[cluster.Node](snap) {
		if vtep.IsValid() && (n.VTEP == vtep || cluster.SecureVTEP(n.ID) == vtep) {
			return n, true
		}
	}
	return cluster.Node{}, false
}
