package main

import (
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
)

// TestRates: of what passed between two looks, a second, the most comes first; what stood still is left out; what was forgotten and came
// again counts from there.
func TestRates(t *testing.T) {
	connection := func(port uint16, packets, bytes, back uint64) api.Connection {
		return api.Connection{
			Proto: "tcp", Packets: packets, Bytes: bytes, BackPackets: back, BackBytes: 100 * back,
			From: api.TrafficEnd{Addr: netip.MustParseAddr("10.77.0.1"), Port: port, Network: "blue"}, To: api.TrafficEnd{Addr: netip.MustParseAddr("10.77.0.2"), Port: 80, Network: "blue"},
		}
	}
	before := []api.Connection{connection(1, 10, 1000, 5), connection(2, 10, 1000, 5), connection(3, 1000, 100_000, 0)}
	now := []api.Connection{connection(1, 10, 1000, 5), connection(2, 14, 1400, 7), connection(3, 3, 300, 0), connection(4, 20, 40_000, 10)}
	got := rates(before, now, 2*time.Second)
	want := []struct {
		port                 uint16
		packets, bytes, back uint64
	}{{4, 10, 20_000, 5}, {2, 2, 200, 1}, {3, 2, 150, 0}}
	if len(got) != len(want) {
		t.Fatalf("%d connections: %v", len(got), got)
	}
	for i, w := range want {
		if c := got[i]; c.From.Port != w.port || c.Packets != w.packets || c.Bytes != w.bytes || c.BackPackets != w.back {
			t.Errorf("%d: port %d with %d packets, %d bytes and %d back, want %+v", i, c.From.Port, c.Packets, c.Bytes, c.BackPackets, w)
		}
	}
}
