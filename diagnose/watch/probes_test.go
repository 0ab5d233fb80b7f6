package watch

import (
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/diagnose/probe"
	"github.com/grapevine-net/grapevine/host/link"
)

// TestLimits: a host whose MTU is smaller, and known, is sent nothing larger, nor does it send such: no probe of that size is lost.
func TestLimits(t *testing.T) {
	w := Probes{Host: Host{Settings: config.Default(), Underlay: link.Underlay{MTU: 1500}}, InnerMTU: func() int { return 1450 }}
	both := func(size int) probe.Way { return probe.Way{Out: size, In: size} }
	for mtu, want := range map[int]probe.Limits{
		0:    {Gossip: both(1500), Tunnel: both(1450)},
		1400: {Gossip: both(1400), Tunnel: both(1350)},
		9000: {Gossip: both(1500), Tunnel: both(1450)},
	} {
		if got := w.limits(api.Node{VTEP: netip.MustParseAddr("192.0.2.2"), MTU: mtu}); got != want {
			t.Errorf("MTU %d there: %+v, want %+v", mtu, got, want)
		}
	}
}
