package agent

import (
	"context"
	"net/netip"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/observe/trace"
	"github.com/grapevine-net/grapevine/overlay/walk"
	"github.com/grapevine-net/grapevine/service/expose"
)

// openTrace makes the desk where is asked what becomes of packets.
func (a *Agent) openTrace() {
	a.traces = trace.New(trace.Config{
		Self:     a.self(),
		Snapshot: func() *cluster.Snapshot { return a.replica.Snapshot() },
		Call: func(ctx context.Context, node, method string, body []byte) ([]byte, error) {
			return a.gossip.Call(ctx, node, method, body)
		},
		Walk: func(ctx context.Context, p walk.Packet) (walk.Path, error) { return a.plane.Overlay().Walk(ctx, p) },
		Explain: func(ctx context.Context, r api.ExplainRequest) (api.Explanation, error) {
			return policing{a}.desk().Explain(ctx, r)
		},
		Wires: trace.Wires{
			Container: tapsOf(a).Trace, Underlay: tapsOf(a).Wire, Encap: a.cfg.Encapsulation(), VXLANPort: a.cfg.VXLANPort, Send: tapsOf(a).Send, Closed: a.cfg.Capture == "off", Log: a.log,
		},
		Leads: trace.Leads{
			Services: func(ctx context.Context) ([]api.Service, error) { return a.naming.desk(a.alloc).List(ctx) },
			Egresses: func(ctx context.Context) ([]api.Egress, error) { return leaving{a}.desk().List(ctx) },
			Stand:    func(id cluster.NodeID) cluster.Standing { return a.naming.hosts.Of(id) },
			Door:     func(at netip.AddrPort, proto string) expose.Door { return a.exposes.Door(at, proto) }, // it is made later
		},
	})
}
