package agent

import (
	"context"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/observe/traffic"
	"github.com/grapevine-net/grapevine/overlay/counter"
	"github.com/grapevine-net/grapevine/overlay/gateway"
)

// openTraffic makes the desk where is asked who talks to whom.
func (a *Agent) openTraffic() {
	a.traffic = traffic.New(traffic.Config{
		Self: a.self(), Mode: a.cfg.Traffic, Counter: counter.New(gateway.Port), Log: a.log,
		Snapshot: func() *cluster.Snapshot { return a.replica.Snapshot() },
		Alive:    func() []string { return a.gossip.Alive() },
		Call: func(ctx context.Context, node, method string, body []byte) ([]byte, error) {
			return a.gossip.Call(ctx, node, method, body)
		},
	})
}
