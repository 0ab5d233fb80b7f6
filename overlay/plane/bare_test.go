package plane

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/bypass"
	"github.com/grapevine-net/grapevine/overlay/fastpath"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

// TestBareStatements: a host says of which networks its containers are, but of what always has headers; it sends without to who has heard that, and
// takes from its neighbours what they say.
func TestBareStatements(t *testing.T) {
	const self, other, third = cluster.NodeID("00000000000000a1"), cluster.NodeID("00000000000000b2"), cluster.NodeID("00000000000000c3")
	mac := func(n byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, n} }
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	r := replicatest.New(t, self,
		cluster.Node{ID: self, Name: "host1", VTEP: addr("192.0.2.1")},
		cluster.Network{Name: "blue", VNID: 5}, cluster.Subnet{Prefix: prefix("10.128.0.0/22"), Network: "blue"},
		cluster.Network{Name: "red", VNID: 6}, cluster.Subnet{Prefix: prefix("10.129.0.0/22"), Network: "red"},
		cluster.Network{Name: "all"}, cluster.Subnet{Prefix: prefix("10.130.0.0/22"), Network: "all"},
		cluster.Network{Name: "vault", VNID: 7, Options: map[string]string{cluster.EncryptedOption: ""}}, cluster.Subnet{Prefix: prefix("10.131.0.0/22"), Network: "vault"},
		cluster.Endpoint{ID: "e1", Network: "blue", Host: self, MAC: "02:42:00:00:00:01", Addrs: []netip.Addr{addr("10.128.0.2")}},
		cluster.Endpoint{ID: "e2", Network: "vault", Host: self, MAC: "02:42:00:00:00:02", Addrs: []netip.Addr{addr("10.131.0.2")}},
		cluster.Endpoint{ID: "e3", Network: "all", Host: self, MAC: "02:42:00:00:00:03", Addrs: []netip.Addr{addr("10.130.0.2")}},
	)
	blue := []cluster.BareSays{{Prefix: prefix("10.128.0.0/22"), VNID: 5}}
	if got := bareSays(r.Snapshot(), self); !slices.Equal(got, blue) {
		t.Errorf("it says %v", got)
	}
	own := cluster.Bare{Host: self, MAC: mac(1), Stamp: 11, Says: blue}
	near := []netip.Prefix{prefix("192.0.2.0/24")}
	states := map[cluster.NodeID]*cluster.State{}
	told := func(host cluster.NodeID, vtep string, b cluster.Bare) {
		t.Helper()
		b.Host = host
		if states[host] == nil {
			states[host] = cluster.New(host)
		}
		for _, body := range []cluster.Body{cluster.Node{ID: host, Name: "host" + string(host), VTEP: addr(vtep)}, b} {
			rec, _, err := states[host].Put(body)
			if err == nil {
				_, err = r.Merge(cluster.Encode([]cluster.Record{rec}))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	var lost cluster.NodeID
	tables := func() fastpath.Bare {
		want := own
		want.Stamp = 0
		return bareTables(r.Snapshot(), own, want, barePeers(r.Snapshot(), self, own.MAC, near), addr("192.0.2.1"), func(id cluster.NodeID) bool { return lost == id })
	}
	here := fastpath.BareSays{MAC: bypass.MAC(mac(1)), Prefix: prefix("10.128.0.0/22"), VTEP: addr("192.0.2.1"), VNID: 5}
	theirs := []cluster.BareSays{{Prefix: prefix("10.128.0.0/22"), VNID: 5}, {Prefix: prefix("10.131.0.0/22"), VNID: 7}}
	there := fastpath.BareSays{MAC: bypass.MAC(mac(2)), Prefix: prefix("10.128.0.0/22"), VTEP: addr("192.0.2.2"), VNID: 5}
	for _, c := range []struct {
		what  string
		takes []cluster.BareTakes
		yes   bool
	}{
		{"it takes from nobody", nil, false},
		{"it has heard what was", []cluster.BareTakes{{Host: self, Stamp: 10}}, false},
		{"it has heard another one", []cluster.BareTakes{{Host: third, Stamp: 11}}, false},
		{"it has heard it", []cluster.BareTakes{{Host: third, Stamp: 3}, {Host: self, Stamp: 11}}, true},
	} {
		told(other, "192.0.2.2", cluster.Bare{MAC: mac(2), Stamp: 20, Says: theirs, Takes: c.takes})
		got := tables()
		if want := []fastpath.BareHost{{MAC: bypass.MAC(mac(2)), VTEP: addr("192.0.2.2"), Takes: c.yes}}; !slices.Equal(got.Hosts, want) {
			t.Errorf("%s: hosts are %v", c.what, got.Hosts)
		}
		if !slices.Equal(got.Says, []fastpath.BareSays{here, there}) {
			t.Errorf("%s: it is known that %v", c.what, got.Says)
		}
	}
	// Who gets nothing without headers gets them, and what it says goes on.
	lost = other
	if got := tables(); len(got.Hosts) != 1 || got.Hosts[0].Takes || !slices.Equal(got.Says, []fastpath.BareSays{here, there}) {
		t.Errorf("of a host that gets none: %+v", got)
	}
	lost = ""
	// What this host would not say any more the programs forget before the others hear of it.
	got := bareTables(r.Snapshot(), own, cluster.Bare{Host: self, MAC: mac(1)}, nil, addr("192.0.2.1"), nil)
	if len(got.Says) > 0 {
		t.Errorf("it is still said that %v", got.Says)
	}
	// What it has not said yet, as from another MAC address, nobody else is to say.
	got = bareTables(r.Snapshot(), own, cluster.Bare{Host: self, MAC: mac(9), Says: blue}, nil, addr("192.0.2.1"), nil)
	if want := []fastpath.BareSays{{MAC: bypass.MAC(mac(9)), Prefix: blue[0].Prefix, VTEP: addr("192.0.2.1")}}; !slices.Equal(got.Says, want) {
		t.Errorf("from another MAC address it is said that %v", got.Says)
	}
	// A host that says more than one may, or of what is no subnet, says nothing.
	told(other, "192.0.2.2", cluster.Bare{MAC: mac(2), Stamp: 21, Says: []cluster.BareSays{{Prefix: prefix("0.0.0.0/0"), VNID: 5}, blue[0]}})
	if got := tables(); !slices.Equal(got.Says, []fastpath.BareSays{here, there}) {
		t.Errorf("of everything it is known that %v", got.Says)
	}
	var many []cluster.BareSays
	for i := range cluster.MaxBareSays + 1 {
		many = append(many, cluster.BareSays{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), 0}), 24), VNID: 5})
	}
	told(other, "192.0.2.2", cluster.Bare{MAC: mac(2), Stamp: 22, Says: many})
	if got := tables(); len(got.Hosts) != 0 {
		t.Errorf("of a host that says too much: %v", got.Hosts)
	}
	told(other, "192.0.2.2", cluster.Bare{MAC: mac(2), Stamp: 23, Says: theirs})
	// A host behind a router is no neighbour; of two with one MAC address neither is.
	told(third, "198.51.100.3", cluster.Bare{MAC: mac(3), Stamp: 30})
	if got := tables(); len(got.Hosts) != 1 {
		t.Errorf("hosts are %v", got.Hosts)
	}
	told(third, "192.0.2.3", cluster.Bare{MAC: mac(2), Stamp: 31})
	if got := tables(); len(got.Hosts) != 0 || len(got.Says) != 1 {
		t.Errorf("of two with one MAC address: %+v", got)
	}
	told(third, "192.0.2.3", cluster.Bare{MAC: mac(1), Stamp: 32})
	if got := tables(); len(got.Hosts) != 1 {
		t.Errorf("with this host's MAC address: %+v", got.Hosts)
	}
}
