package ike

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/strongswan"
)

const one, two, three, four = cluster.NodeID("1111111111111111"), cluster.NodeID("2222222222222222"), cluster.NodeID("3333333333333333"), cluster.NodeID("4444444444444444")

// Peers are the other hosts that give a key; those that give none, or what is no key, are named.
func TestPeers(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	k, err := New(Config{Self: one, Key: key, Here: netip.MustParseAddr("192.0.2.1"), Port: 4789})
	if err != nil {
		t.Fatal(err)
	}
	s := cluster.New(one)
	var recs []cluster.Record
	for id, of := range map[cluster.NodeID][]byte{two: k.Public(), three: nil, four: []byte("no key")} {
		other := cluster.New(id)
		r, _, err := other.Put(cluster.Node{ID: id, Name: "host" + string(id[0]), VTEP: netip.MustParseAddr("192.0.2." + string(id[0])), IPsec: of})
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, r)
	}
	if _, err := s.Merge(recs); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Put(cluster.Node{ID: one, Name: "host1", VTEP: netip.MustParseAddr("192.0.2.1"), IPsec: k.Public()}); err != nil {
		t.Fatal(err)
	}
	list, without := Peers(s.Snapshot(), one, netip.MustParseAddr("192.0.2.1"))
	want := strongswan.Peer{Name: string(two), Here: netip.MustParseAddr("192.0.2.1"), There: netip.MustParseAddr("192.0.2.2"), Key: k.Public()}
	if len(list) != 1 || list[0].Name != want.Name || list[0].Here != want.Here || list[0].There != want.There || string(list[0].Key) != string(want.Key) {
		t.Errorf("peers: %+v", list)
	}
	if strings.Join(without, " ") != "host3 host4" {
		t.Errorf("without: %v", without)
	}
	problems := k.Problems(s.Snapshot())
	if len(problems) != 2 || problems[0].Code != api.IPsecMissing || !strings.Contains(problems[1].What, "hosts host3 and host4 give no key for IPsec") {
		t.Errorf("%+v", problems)
	}
	k.failed, k.refused = nil, map[cluster.NodeID]error{two: errors.New("invalid value for: pubkeys")}
	problems = k.Problems(s.Snapshot())
	if len(problems) != 2 || !strings.Contains(problems[0].What, "strongSwan here does not take what it is told of host host2") || !strings.Contains(problems[0].What, "pubkeys") {
		t.Errorf("of one that is refused: %+v", problems)
	}
	if text := k.trouble(nil); !strings.Contains(text, string(two)) || k.State() == "" {
		t.Errorf("of one that is refused: %s", text)
	}
	k.failed = errors.New("it does not run")
	if k.State() != "" || (*Keeper)(nil).State() != "" || (*Keeper)(nil).Problems(s.Snapshot()) != nil {
		t.Error("who was not spoken to has a state")
	}
}
