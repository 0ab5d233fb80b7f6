package cluster

import (
	"bytes"
	"math"
	"net/netip"
	"testing"
)

func TestAHostThatEncryptsHasItsVTEPInside(t *testing.T) {
	plain := Node{ID: "0123456789abcdef", VTEP: netip.MustParseAddr("192.0.2.1")}
	if plain.Encrypts() || plain.Tunnel() != plain.VTEP || plain.Address() != plain.VTEP {
		t.Errorf("without a key: %v, %v", plain.Tunnel(), plain.Address())
	}
	n := Node{ID: plain.ID, WireGuard: bytes.Repeat([]byte{1}, 32), WireGuardAt: netip.MustParseAddrPort("192.0.2.1:7948")}
	if err := Validate(n); err != nil {
		t.Fatal(err)
	}
	if want := netip.MustParseAddr("fd67:7261:7065:1:123:4567:89ab:cdef"); !n.Encrypts() || n.Tunnel() != want || n.Address() != plain.VTEP {
		t.Errorf("with a key: %v, %v, want %v", n.Tunnel(), n.Address(), want)
	}
	if got := SecureVTEP("no host"); got.IsValid() {
		t.Errorf("what is no host's ID has the VTEP %v", got)
	}
	for _, bad := range []Node{
		{ID: n.ID, WireGuard: []byte{1}},
		{ID: n.ID, WireGuard: n.WireGuard, WireGuardAt: netip.MustParseAddrPort("224.0.0.1:7948")},
	} {
		if Validate(bad) == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// A host that means harm cannot have the others' turns overflow, which count on from the greatest there is.
func TestTurnHasABound(t *testing.T) {
	n := Node{ID: "0123456789abcdef", WireGuard: bytes.Repeat([]byte{1}, 32), WireGuardAt: netip.MustParseAddrPort("192.0.2.1:7948")}
	for turn, want := range map[uint64]bool{0: true, 4: true, maxTurn: true, maxTurn + 1: false, math.MaxUint64: false} {
		n.Turn.At = turn
		if err := Validate(n); (err == nil) != want {
			t.Errorf("turn %d: %v, want that it is taken: %v", turn, err, want)
		}
	}
}

// Containers' MTU is what WireGuard, whose overhead the host's own MTU has, and VXLAN over IPv6 leave.
func TestMTUOfHostsThatEncrypt(t *testing.T) {
	s := New("0123456789abcdef")
	n := Node{ID: "0123456789abcdef", MTU: 1440, WireGuard: bytes.Repeat([]byte{1}, 32), WireGuardAt: netip.MustParseAddrPort("192.0.2.1:7948")}
	if _, _, err := s.Put(n); err != nil {
		t.Fatal(err)
	}
	if got := s.Snapshot().MTU(1440); got != 1370 {
		t.Errorf("MTU %d, want 1370", got)
	}
}

// A host may have a key for encrypted networks only: then its VTEP in the clear stays what all else goes to. An encrypted
// network alone pays for it with its MTU.
func TestEncryptedNetwork(t *testing.T) {
	s := New("0123456789abcdef")
	n := Node{ID: "0123456789abcdef", MTU: 1500, VTEP: netip.MustParseAddr("192.0.2.1"), NetworksKey: bytes.Repeat([]byte{1}, 32), WireGuardAt: netip.MustParseAddrPort("192.0.2.1:7948")}
	if n.Encrypts() || n.Tunnel() != n.VTEP || len(n.SecureKey()) != 32 {
		t.Errorf("%+v", n)
	}
	for _, b := range []Body{n, Network{Name: "plain"}, Network{Name: "blue", Options: map[string]string{"encrypted": ""}}, Network{Name: "small", MTU: 1000, Options: map[string]string{"encrypted": "true"}}} {
		if _, _, err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	snap := s.Snapshot()
	for network, want := range map[string]int{"plain": 1450, "blue": 1370, "small": 1000} {
		if got := snap.NetworkMTU(network, 1500); got != want {
			t.Errorf("network %s: MTU %d, want %d", network, got, want)
		}
	}
	if !snap.Encrypted() || New("0123456789abcdef").Snapshot().Encrypted() {
		t.Error("whether there is an encrypted network")
	}
	if Validate(Node{ID: n.ID, NetworksKey: []byte{1}}) == nil {
		t.Error("a key of one byte is accepted")
	}
}
