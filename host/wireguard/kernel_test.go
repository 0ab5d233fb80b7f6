package wireguard

import (
	"net/netip"
	"testing"
)

func TestKernelConfig(t *testing.T) {
	port := uint16(7948)
	c := kernelConfig(Change{
		Private: &Key{1}, Port: &port, Remove: []Key{{9}},
		Set: []Peer{{Key: Key{2}, Endpoint: netip.MustParseAddrPort("192.0.2.2:7948"), Inside: netip.MustParsePrefix("fd67::2/128")}, {Key: Key{3}, Inside: netip.MustParsePrefix("fd67::3/128")}},
	})
	if c.ReplacePeers || len(c.Peers) != 3 || *c.ListenPort != 7948 || c.PrivateKey[0] != 1 {
		t.Fatalf("%+v", c)
	}
	gone, one, two := c.Peers[0], c.Peers[1], c.Peers[2]
	if !gone.Remove || gone.PublicKey[0] != 9 {
		t.Errorf("%+v", gone)
	}
	if !one.ReplaceAllowedIPs || one.Endpoint.String() != "192.0.2.2:7948" || len(one.AllowedIPs) != 1 || one.AllowedIPs[0].String() != "fd67::2/128" {
		t.Errorf("%+v", one)
	}
	if two.Endpoint != nil {
		t.Errorf("a peer that stays where it is gets the endpoint %v", two.Endpoint)
	}
}
