package agent

import (
	"context"
	"errors"

	"golang.org/x/net/bpf"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/packets"
	"github.com/grapevine-net/grapevine/observe/frames"
	"github.com/grapevine-net/grapevine/observe/trace"
	"github.com/grapevine-net/grapevine/overlay/walk"
	"github.com/grapevine-net/grapevine/service"
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
			Container: func(endpoint string, filter []bpf.RawInstruction) (trace.Tap, string, error) {
				tap, place, err := a.openTap(endpoint, filter)
				return tap, place.Name, err
			},
			Underlay: wire{a}.open, Encap: a.cfg.Encapsulation(), VXLANPort: a.cfg.VXLANPort, Send: wire{a}.send, Closed: a.cfg.Capture == "off", Log: a.log,
		},
		Leads: trace.Leads{
			Services: func(ctx context.Context) ([]api.Service, error) { return a.naming.desk(a.alloc).List(ctx) },
			Egresses: func(ctx context.Context) ([]api.Egress, error) { return leaving{a}.desk().List(ctx) },
			Stand:    func(id cluster.NodeID) service.Standing { return a.naming.serving(id) },
			Door:     exposing{a}.door,
		},
	})
}

// wire is where packets leave this host, or one of its containers.
type wire struct{ agent *Agent }

// open reads what goes to other hosts and comes from there.
func (w wire) open(filter []bpf.RawInstruction) (trace.Tap, string, error) {
	if w.agent.plane.Encryption() != "" {
		return nil, "", errors.New("what leaves it is encrypted")
	}
	name := w.agent.underlay.Interface
	l, err := link.Get(name)
	if err != nil {
		return nil, name, err
	}
	tap, err := packets.Open("/proc/self/ns/net", l.Index, filter)
	return tap, name, err
}

// send sends a packet as a program in the container would.
func (w wire) send(endpoint string, p frames.Probe) error {
	sandbox := sandboxOf(w.agent.driver, endpoint)
	if sandbox == "" {
		return errors.New("it does not run: start it first (of a client none can be sent)")
	}
	return packets.Send(sandbox, p.Src, p.Dst, p.Proto, p.Body())
}
