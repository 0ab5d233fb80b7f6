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
	got := rates(api.Traffic{Connections: before}, api.Traffic{Connections: now}, 2*time.Second)
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

// TestRatesOfSlowHost: a host that answers late keeps the answer of all; each has counted by its own clock.
func TestRatesOfSlowHost(t *testing.T) {
	start := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	one := func(packets, back uint64) []api.Connection {
		return []api.Connection{{Proto: "tcp", Packets: packets, Bytes: 1000 * packets, BackPackets: back, BackBytes: 100 * back,
			From: api.TrafficEnd{Addr: netip.MustParseAddr("10.77.0.1"), Port: 9, Host: "host1"}, To: api.TrafficEnd{Addr: netip.MustParseAddr("10.77.0.2"), Port: 80, Host: "host3"}}}
	}
	slow := api.TrafficHost{Name: "host2", Error: "it does not answer"}
	// The first answer took 5 s, as host2 was waited for; the hosts had counted when they were asked.
	first := api.Traffic{Hosts: []api.TrafficHost{{Name: "host1", Since: at(-60), At: at(0)}, slow, {Name: "host3", Since: at(-60), At: at(0.5)}}, Connections: one(1000, 500)}
	then := api.Traffic{Hosts: []api.TrafficHost{{Name: "host1", Since: at(-60), At: at(7)}, slow, {Name: "host3", Since: at(-60), At: at(7.5)}}, Connections: one(1700, 850)}
	if got := rates(first, then, 2*time.Second); len(got) != 1 || got[0].Packets != 100 || got[0].Bytes != 100_000 || got[0].BackPackets != 50 {
		t.Errorf("%+v", got)
	}
	// Of who was not heard the first time there is only what it has counted since it began.
	first = api.Traffic{Hosts: []api.TrafficHost{{Name: "host1", Error: "it does not answer"}}}
	then.Hosts[0].Since = at(-10)
	if got := rates(first, then, 2*time.Second); len(got) != 1 || got[0].Packets != 100 {
		t.Errorf("%+v", got)
	}
}
