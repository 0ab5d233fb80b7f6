package secure

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/wireguard"
)

const (
	one, two, three, four = cluster.NodeID("1111111111111111"), cluster.NodeID("2222222222222222"), cluster.NodeID("3333333333333333"), cluster.NodeID("4444444444444444")
)

// host is one that encrypts with the key of that byte, or does not: 0.
func host(id cluster.NodeID, key byte, at string) cluster.Node {
	n := cluster.Node{ID: id, Name: "host" + string(id[0]), Gossip: netip.MustParseAddrPort(at), VTEP: netip.MustParseAddr("192.0.2.9")}
	if key != 0 {
		n.VTEP, n.WireGuard, n.WireGuardAt = netip.Addr{}, bytes.Repeat([]byte{key}, 32), netip.MustParseAddrPort(at)
	}
	return n
}

func snapshot(t *testing.T, nodes ...cluster.Node) *cluster.Snapshot {
	t.Helper()
	var recs []cluster.Record
	for _, n := range nodes {
		s := cluster.New(n.ID)
		r, _, err := s.Put(n)
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, r)
	}
	s := cluster.New(one)
	if _, err := s.Merge(recs); err != nil {
		// What this host says of itself is written, not heard.
		t.Log(err)
	}
	for _, n := range nodes {
		if n.ID == one {
			if _, _, err := s.Put(n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s.Snapshot()
}

func TestPeers(t *testing.T) {
	snap := snapshot(t,
		host(one, 1, "192.0.2.1:7948"),
		host(two, 2, "192.0.2.2:7948"),
		host(three, 0, "192.0.2.3:7947"), // does not encrypt
		host(four, 2, "192.0.2.4:7948"),  // says that two's key is its own
	)
	own := wireguard.Key(bytes.Repeat([]byte{1}, 32))
	got := Peers(snap, one, own)
	if len(got) != 1 || got[0].Key[0] != 2 || got[0].Endpoint != netip.MustParseAddrPort("192.0.2.2:7948") || got[0].Inside != netip.MustParsePrefix("fd67:7261:7065:1:2222:2222:2222:2222/128") {
		t.Errorf("%+v", got)
	}
	if got := Peers(snap, three, wireguard.Key(bytes.Repeat([]byte{2}, 32))); len(got) != 1 || got[0].Key[0] != 1 {
		t.Errorf("who has this host's own key is its peer: %+v", got)
	}
}

// TestPeersByProof: a host that names another's key, first or last, with no proof or with one that it heard, takes nothing
// from who has it, on neither device.
func TestPeersByProof(t *testing.T) {
	private := wireguard.Key{7}
	public := private.Public()
	names := func(n cluster.Node, proof []byte) cluster.Node {
		n.WireGuard, n.KeyProof = public[:], proof
		n.Turn = cluster.KeyTurn{At: start + begun, Second: public[:], SecondAt: n.WireGuardAt, SecondProof: proof}
		return n
	}
	first, middle, last := host(two, 1, "192.0.2.2:7948"), host(three, 1, "192.0.2.3:7948"), host(four, 1, "192.0.2.4:7948")
	has := private.Prove(string(three))
	none, other := []byte(nil), wireguard.Key{8}.Prove(string(two))
	for _, lie := range [][]byte{none, has, other} {
		snap := snapshot(t, host(one, 9, "192.0.2.1:7948"), names(first, lie), names(middle, has), names(last, lie))
		for which, got := range [][]wireguard.Peer{Peers(snap, one, wireguard.Key{}), Seconds(snap, one, wireguard.Key{})} {
			if len(got) != 1 || got[0].Key != public || got[0].Endpoint != middle.WireGuardAt || got[0].Inside.Addr() != cluster.SecureVTEP(three) {
				t.Errorf("device %d: who has the key lost it to who names it: %+v", which+1, got)
			}
		}
	}
}

func TestUnlike(t *testing.T) {
	snap := snapshot(t, host(one, 1, "192.0.2.1:7948"), host(two, 2, "192.0.2.2:7948"), host(three, 0, "192.0.2.3:7947"), host(four, 0, "192.0.2.4:7947"))
	for _, tt := range []struct {
		self     cluster.NodeID
		encrypts bool
		want, do string
	}{
		{one, true, "hosts host3 and host4 do not encrypt", "GRAPEVINE_ENCRYPTION=all there"},
		{three, false, "this host does not encrypt what containers send, and hosts host1 and host2 take and send", "GRAPEVINE_ENCRYPTION=all on this host"},
	} {
		got := Unlike(snap, tt.self, tt.encrypts)
		if len(got) != 1 || got[0].Code != api.HostUnencrypted || !strings.HasPrefix(got[0].What, tt.want) || !strings.Contains(got[0].Do, tt.do) {
			t.Errorf("%s: %+v", tt.self, got)
		}
	}
	if got := Unlike(snapshot(t, host(one, 1, "192.0.2.1:7948"), host(two, 2, "192.0.2.2:7948")), one, true); got != nil {
		t.Errorf("all encrypt: %+v", got)
	}
}
