package agent

import (
	"context"
	"encoding/binary"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/observe/ipfix"
	"github.com/grapevine-net/grapevine/observe/traffic"
	"github.com/grapevine-net/grapevine/overlay/counter"
	"github.com/grapevine-net/grapevine/overlay/gateway"
)

// openTraffic makes the desk where is asked who talks to whom.
func (a *Agent) openTraffic() {
	self := cluster.SecureVTEP(a.self()).As16()
	a.flows = ipfix.New(ipfix.Config{
		Collector: a.cfg.IPFIX, Domain: binary.BigEndian.Uint32(self[12:]), Log: a.log,
		VNID: func(network string) uint32 {
			n, _ := cluster.Get[cluster.Network](a.replica.Snapshot(), network)
			return n.VNID
		},
	})
	a.traffic = traffic.New(traffic.Config{
		Self: a.self(), Mode: ipfix.Mode(a.cfg.IPFIX, a.cfg.Traffic), Export: a.flows.Look, Counter: counter.New(gateway.Port), Log: a.log,
		Snapshot: func() *cluster.Snapshot { return a.replica.Snapshot() },
		Alive:    func() []string { return a.gossip.Alive() },
		Call: func(ctx context.Context, node, method string, body []byte) ([]byte, error) {
			return a.gossip.Call(ctx, node, method, body)
		},
	})
}
