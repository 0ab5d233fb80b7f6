package watch

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/diagnose/doctor"
	"github.com/grapevine-net/grapevine/host/link"
)

// TestFirewallOfEncryptedNetworks: with an encrypted network the firewall has to let WireGuard through to and from the hosts
// that have a part in it, each by the port that it listens on; without one it does not matter.
func TestFirewallOfEncryptedNetworks(t *testing.T) {
	const self, other, bare = cluster.NodeID("00000000000000aa"), cluster.NodeID("00000000000000bb"), cluster.NodeID("00000000000000cc")
	key := make([]byte, cluster.WireGuardKeySize)
	key[0] = 1
	s := cluster.New(self)
	put := func(b cluster.Body, by cluster.NodeID) {
		t.Helper()
		r, _, err := cluster.New(by).Put(b)
		if err == nil {
			_, err = s.Merge([]cluster.Record{r})
		}
		if by == self {
			_, _, err = s.Put(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	addr := netip.MustParseAddr
	put(cluster.Node{ID: self, Name: "host1", VTEP: addr("192.0.2.1"), NetworksKey: key, WireGuardAt: netip.MustParseAddrPort("192.0.2.1:7948")}, self)
	put(cluster.Node{ID: other, Name: "host2", VTEP: addr("192.0.2.2"), NetworksKey: key, WireGuardAt: netip.MustParseAddrPort("192.0.2.2:9948")}, other)
	put(cluster.Node{ID: bare, Name: "host3", VTEP: addr("192.0.2.3")}, bare)
	w := &Firewall{Host: Host{Self: self, Underlay: link.Underlay{Addr: addr("192.0.2.1"), Interface: "eth0"}, Snapshot: s.Snapshot, CIDRs: func() []netip.Prefix { return nil }}}
	w.Settings.WireGuardPort, w.Settings.CIDR4 = 7948, netip.MustParsePrefix("10.128.0.0/14")
	nodes := []api.Node{
		{ID: string(self), Name: "host1", VTEP: addr("192.0.2.1"), Self: true}, {ID: string(other), Name: "host2", VTEP: addr("192.0.2.2")}, {ID: string(bare), Name: "host3", VTEP: addr("192.0.2.3")},
	}
	looked := func() (list []doctor.Packet) {
		list = w.Packets(nodes, false, 8)
		return slices.DeleteFunc(list, func(p doctor.Packet) bool { return !strings.Contains(p.For, "WireGuard") })
	}
	if got := looked(); len(got) > 0 {
		t.Errorf("without an encrypted network it looks for %+v", got)
	}
	put(cluster.Network{Name: "blue", VNID: 5, Options: map[string]string{"encrypted": ""}}, self)
	got := looked()
	if len(got) != 2 || got[0].Chain != "INPUT" || got[0].Port != 7948 || got[0].Src != addr("192.0.2.2") || got[1].Chain != "OUTPUT" || got[1].Port != 9948 || got[1].Dst != addr("192.0.2.2") {
		t.Errorf("it looks for %+v", got)
	}
}
