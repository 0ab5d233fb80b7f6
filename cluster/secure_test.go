package cluster

import (
	"bytes"
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
