package secure

import (
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/wireguard"
)

// TestWithout: who cannot take part in encrypted networks is named on both sides, and nobody where there is none.
func TestWithout(t *testing.T) {
	keyed := host(one, 1, "192.0.2.1:7948")
	keyed.NetworksKey, keyed.WireGuard, keyed.VTEP = keyed.WireGuard, nil, netip.MustParseAddr("192.0.2.1")
	snap := snapshot(t, keyed, host(two, 2, "192.0.2.2:7948"), host(three, 0, "192.0.2.3:7947"))
	if got := Without(snap, one, nil); got != nil {
		t.Errorf("without an encrypted network: %+v", got)
	}
	if got := Peers(snap, two, wireguard.Key{2}); len(got) != 1 || got[0].Key[0] != 1 {
		t.Errorf("who encrypts all has no peer that encrypts encrypted networks: %+v", got)
	}
	s := cluster.New(one)
	for _, b := range []cluster.Body{keyed, cluster.Network{Name: "blue", VNID: 5, Options: map[string]string{"encrypted": ""}}, cluster.Network{Name: "green", VNID: 6}} {
		if _, _, err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	if got := Without(s.Snapshot(), one, nil); got != nil {
		t.Errorf("all can: %+v", got)
	}
}
