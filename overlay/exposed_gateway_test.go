package overlay

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/gateway"
)

// heardGateway tells what it is to have.
type heardGateway struct {
	*gateway.Gateway
	exposed chan []uint16
}

func (g heardGateway) Ensure(ctx context.Context, cfg gateway.Config) error {
	select {
	case g.exposed <- cfg.Exposed:
	case <-ctx.Done():
	}
	return g.Gateway.Ensure(ctx, cfg)
}

// TestExposedGateway: the gateway hears which ports are exposed, once a service has them, and when it has none any more,
// though nothing else is new.
func TestExposedGateway(t *testing.T) {
	h := newHost(t)
	h.stop()
	heard := heardGateway{gateway.New(string(me)), make(chan []uint16)}
	h.way = heard
	h.start()
	wait := func(want ...uint16) {
		t.Helper()
		var last []uint16
		for end := time.After(30 * time.Second); ; {
			select {
			case last = <-heard.exposed:
				if slices.Equal(last, want) {
					return
				}
			case <-end:
				t.Fatalf("the gateway has heard %v last, want %v", last, want)
			}
		}
	}
	wait()
	s := cluster.Service{Network: "blue", Name: "dns", Select: "dns", Addrs: []netip.Addr{addr("10.128.0.99")},
		Ports: []cluster.ServicePort{{Proto: "tcp", Port: 443, Target: 443}, {Proto: "udp", Port: 53, Target: 53}, {Proto: "tcp", Port: 53, Target: 53}}}
	for _, exposed := range [][]cluster.ServicePort{
		{{Proto: "udp", Port: 7008, Target: 53}, {Proto: "tcp", Port: 7008, Target: 53}, {Proto: "tcp", Port: 443, Target: 443}}, nil,
	} {
		s.Exposed = exposed
		h.put(s)
		if exposed != nil {
			wait(443, 7008)
		} else {
			wait()
		}
	}
}
