package agent

import (
	"context"
	"encoding/binary"
	"net/netip"
	"path/filepath"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	clients "github.com/grapevine-net/grapevine/clients/edit"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/driver/listed"
	"github.com/grapevine-net/grapevine/driver/ports"
	egresses "github.com/grapevine-net/grapevine/egress/edit"
	"github.com/grapevine-net/grapevine/membership"
	"github.com/grapevine-net/grapevine/observe/audit"
	"github.com/grapevine-net/grapevine/observe/capture"
	"github.com/grapevine-net/grapevine/observe/counts"
	"github.com/grapevine-net/grapevine/observe/ipfix"
	"github.com/grapevine-net/grapevine/observe/metrics"
	"github.com/grapevine-net/grapevine/observe/mirror"
	"github.com/grapevine-net/grapevine/observe/rulecount"
	"github.com/grapevine-net/grapevine/observe/taps"
	"github.com/grapevine-net/grapevine/observe/trace"
	"github.com/grapevine-net/grapevine/observe/traffic"
	"github.com/grapevine-net/grapevine/overlay"
	"github.com/grapevine-net/grapevine/overlay/counter"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/plane"
	"github.com/grapevine-net/grapevine/overlay/walk"
	policies "github.com/grapevine-net/grapevine/policy/edit"
	"github.com/grapevine-net/grapevine/realm"
	"github.com/grapevine-net/grapevine/service/expose"
)

// desks are where people look at what is here, and change it.
type desks struct {
	*place
	*rooms
	metricsPort *metrics.Port
	exporter    *metrics.Exporter
	captures    *capture.Desk
	mirrors     *mirror.Desk
	traces      *trace.Desk
	ruleCounts  *rulecount.Desk
	audit       *audit.Log
	traffic     *traffic.Desk
	flows       *ipfix.Exporter
}

// open makes those that stay. What they look at is made later, some of it.
func (d *desks) open() {
	d.captures = capture.New(capture.Config{Self: d.self(), Version: d.version, Consent: d.cfg.Capture, Log: d.log, Snapshot: d.replica.Snapshot, Call: d.gossip.Call, Open: d.taps().Capture})
	d.mirrors = mirror.New(mirror.Config{Self: d.self(), Snapshot: d.replica.Snapshot, Open: d.taps().Mirror, Log: d.log})
	d.openTraffic()
	d.openTrace()
	d.ruleCounts = rulecount.New(rulecount.Config{
		Self: d.self(), Snapshot: d.replica.Snapshot, Alive: d.gossip.Alive, Call: d.gossip.Call,
		Count: func(ctx context.Context) ([]api.RuleCount, error) { return d.counted().Here(ctx) },
	})
	var logging view.Logging
	d.audit = audit.New(audit.Config{
		Log:    d.log,
		Wanted: func() bool { return logging.Wanted(d.replica.Snapshot()) },
		Seen:   d.traffic.Begun,
		Judge:  func(seen []api.Connection) []api.LoggedConnection { return d.policies().Logged(seen) },
	})
}

// methods answer other hosts.
func (d *desks) methods() []map[string]func(context.Context, string, []byte) ([]byte, error) {
	return []map[string]func(context.Context, string, []byte) ([]byte, error){d.captures.Methods(), d.traffic.Methods(), d.traces.Methods(), d.ruleCounts.Methods()}
}

// taps are where packets are looked at here.
func (d *desks) taps() taps.Taps {
	return taps.Taps{
		Sandbox: func(endpoint string) string { return d.driver.Sandbox(endpoint) }, Client: func(endpoint string) string { return d.rooms.clients.Room(endpoint) },
		Underlay: d.underlay.Interface, Encryption: func() string { return d.plane.Encryption() },
	}
}

// openTraffic makes the desk where is asked who talks to whom.
func (d *desks) openTraffic() {
	self := cluster.SecureVTEP(d.self()).As16()
	d.flows = ipfix.New(ipfix.Config{
		Collector: d.cfg.IPFIX, Domain: binary.BigEndian.Uint32(self[12:]), Log: d.log,
		VNID: func(network string) uint32 {
			n, _ := cluster.Get[cluster.Network](d.replica.Snapshot(), network)
			return n.VNID
		},
	})
	d.traffic = traffic.New(traffic.Config{
		Self: d.self(), Mode: ipfix.Mode(d.cfg.IPFIX, d.cfg.Traffic), Export: d.flows.Look, Counter: counter.New(gateway.Port), Log: d.log,
		Snapshot: d.replica.Snapshot, Alive: d.gossip.Alive, Call: d.gossip.Call,
	})
}

// openTrace makes the desk where is asked what becomes of packets.
func (d *desks) openTrace() {
	d.traces = trace.New(trace.Config{
		Self: d.self(), Snapshot: d.replica.Snapshot, Call: d.gossip.Call,
		Walk: func(ctx context.Context, p walk.Packet) (walk.Path, error) { return d.plane.Overlay().Walk(ctx, p) },
		Explain: func(ctx context.Context, r api.ExplainRequest) (api.Explanation, error) {
			return d.policies().Explain(ctx, r)
		},
		Wires: trace.Wires{
			Container: d.taps().Trace, Underlay: d.taps().Wire, Encap: d.cfg.Encapsulation(), VXLANPort: d.cfg.VXLANPort, Send: d.taps().Send, Routed: d.taps().Routed, Closed: d.cfg.Capture == "off", Log: d.log,
		},
		Leads: trace.Leads{
			Services: func(ctx context.Context) ([]api.Service, error) { return d.naming.desk(d.alloc).List(ctx) },
			Egresses: func(ctx context.Context) ([]api.Egress, error) { return d.egresses().List(ctx) },
			Stand:    func(id cluster.NodeID) cluster.Standing { return d.naming.hosts.Of(id) },
			Door:     func(at netip.AddrPort, proto string) expose.Door { return d.exposes.Door(at, proto) },
		},
	})
}

// openMetrics prepares to be asked, if the settings say so.
func (d *desks) openMetrics(facts func() metrics.Facts) {
	d.exporter = metrics.New(facts)
	file := d.cfg.MetricsTokenFile
	secret := metrics.NewSecret(file, file == filepath.Join(d.cfg.State, "metrics-token"))
	d.metricsPort = metrics.NewPort(d.cfg.Metrics, secret, d.exporter, func() []netip.Addr { return membership.Alive(d.nodes()) })
}

// listed is where networks and endpoints are listed.
func (d *desks) listed() listed.Desk {
	return listed.Desk{
		Self: d.self(), Snapshot: d.replica.Snapshot, Note: d.reached.Note, Encryption: func(encrypted bool) string { return plane.EncryptionOf(d.plane, encrypted) },
		Here: func() map[string]bool { return d.driver.Here() }, Published: func() map[string][]ports.Binding { return d.driver.Published() },
	}
}

// policies is what people do with policies.
func (d *desks) policies() policies.Desk {
	return policies.Desk{
		Self: d.self(), Name: d.cfg.Name, Replica: d.replica, Enforced: d.plane.Overlay().Wait, Published: driver.Published, Traffic: d.traffic.Whole, Told: d.plane.Overlay().Answers, Full: d.plane.Overlay().FullByName, Unheard: d.former.Notes,
		Lacks: func() string { return plane.Lacks(d.plane.Overlay()) },
	}
}

// counted is where people look at policies with what their rules have counted.
func (d *desks) counted() counts.Desk {
	return counts.Desk{Config: counts.Config{
		Self: d.self(), Snapshot: d.replica.Snapshot, Desk: d.policies, Rules: d.ruleCounts,
		Switch: func(ctx context.Context) (overlay.RuleCounts, error) { return d.plane.Overlay().CountRules(ctx) },
		Tried:  d.audit.Tried,
	}}
}

// realms is where people say which networks are one.
func (d *desks) realms() realm.Desk {
	return realm.Desk{Name: d.cfg.Name, Replica: d.replica, Enforced: d.plane.Overlay().Wait}
}

// egresses is what people do with addresses by which networks reach the outside.
func (d *desks) egresses() egresses.Desk {
	return egresses.Desk{Self: d.self(), Name: d.cfg.Name, Replica: d.replica, Alive: d.naming.hosts.Alive, Hear: d.naming.hosts.Heard, Notes: d.egress.Notes, Published: driver.Published,
		Lacks: func() string { return plane.Lacks(d.plane.Overlay()) }}
}

// clients is what people do with devices that come in by WireGuard.
func (d *desks) clients() clients.Desk {
	return clients.Desk{
		Self: d.self(), Replica: d.replica, Addresses: d.alloc, Door: d.rooms.clients, MTU: d.networkMTU, At: netip.AddrPortFrom(d.underlay.Addr.Unmap().WithZone(""), d.cfg.ClientPort),
	}
}

// networkMTU is the MTU of a network's containers.
func (d *desks) networkMTU(network string) int {
	return d.replica.Snapshot().NetworkMTU(network, plane.Wire(d.underlay, d.secure).MTU)
}
