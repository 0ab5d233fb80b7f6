package cluster

import (
	"net/netip"
	"testing"
)

// TestNarrowUnderlayLeavesIPv6 holds that interfaces with IPv6 keep what the kernel wants for it when a host with a
// narrow underlay comes, those of the gateway with them, and that others get less as ever.
func TestNarrowUnderlayLeavesIPv6(t *testing.T) {
	s := New("0123456789abcdef")
	put := func(b Body) {
		t.Helper()
		if _, _, err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range []Body{
		Node{ID: "0123456789abcdef", Name: "host1", MTU: 1280, VTEP: netip.MustParseAddr("192.0.2.1")},
		Network{Name: "four", VNID: 1}, Network{Name: "six", VNID: 2}, Network{Name: "small", VNID: 3, MTU: 1000},
		Subnet{Network: "four", Prefix: netip.MustParsePrefix("10.1.0.0/24")},
	} {
		put(b)
	}
	if got := s.Snapshot().GatewayMTU(1500); got != 1230 {
		t.Errorf("without IPv6 the gateway has %d, want 1230", got)
	}
	put(Subnet{Network: "six", Prefix: netip.MustParsePrefix("fd00:1::/64")})
	snap := s.Snapshot()
	for network, want := range map[string]int{"four": 1230, "six": 1280, "small": 1000, "unknown": 1230} {
		if got := snap.NetworkMTU(network, 1500); got != want {
			t.Errorf("network %s: MTU %d, want %d", network, got, want)
		}
	}
	if got := snap.GatewayMTU(1500); got != 1280 {
		t.Errorf("with IPv6 the gateway has %d, want 1280", got)
	}
}
