package agent

import (
	"context"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/observe/trace"
	"github.com/grapevine-net/grapevine/overlay/walk"
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
	})
}
