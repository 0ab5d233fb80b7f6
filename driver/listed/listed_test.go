package listed

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver/ports"
)

const self, other = cluster.NodeID("1111111111111111"), cluster.NodeID("2222222222222222")

var a, b = strings.Repeat("a", 64), strings.Repeat("b", 64)

// TestListed: a host marks which networks its Docker has and which endpoints are its own, and names the ports of these, in order.
func TestListed(t *testing.T) {
	s := cluster.New(self)
	there := cluster.New(other)
	for _, body := range []cluster.Body{
		cluster.Network{Name: "blue", VNID: 5}, cluster.Network{Name: "red", VNID: 6, Options: map[string]string{"encrypted": "true"}},
		cluster.Endpoint{ID: a, Network: "blue", Host: self, Addrs: []netip.Addr{netip.MustParseAddr("10.128.0.5")}, MAC: "02:00:00:00:00:01"},
	} {
		if _, _, err := s.Put(body); err != nil {
			t.Fatal(err)
		}
	}
	r, _, err := there.Put(cluster.Endpoint{ID: b, Network: "red", Host: other, Addrs: []netip.Addr{netip.MustParseAddr("10.128.4.5")}, MAC: "02:00:00:00:00:02"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Merge([]cluster.Record{r}); err != nil {
		t.Fatal(err)
	}
	bound := func(host, to string) ports.Binding {
		return ports.Binding{Proto: ports.TCP, Host: netip.MustParseAddrPort(host), To: netip.MustParseAddrPort(to)}
	}
	d := Desk{
		Self: self, Snapshot: s.Snapshot,
		Note:       func(list []api.Network, _ *cluster.Snapshot) []api.Network { return list },
		Encryption: func(encrypted bool) string { return map[bool]string{true: "by WireGuard"}[encrypted] },
		Here:       func() map[string]bool { return map[string]bool{"blue": true} },
		Published: func() map[string][]ports.Binding {
			return map[string][]ports.Binding{a: {bound("0.0.0.0:8443", "10.128.0.5:443"), bound("0.0.0.0:8081", "10.128.0.5:80"), bound("0.0.0.0:8080", "10.128.0.5:80")}}
		},
	}
	for _, n := range d.Networks() {
		if n.Here != (n.Name == "blue") || (n.Encryption != "") != n.Encrypted {
			t.Errorf("network %+v", n)
		}
	}
	list := d.Endpoints()
	if len(list) != 2 {
		t.Fatalf("endpoints: %+v", list)
	}
	for _, e := range list {
		if e.Here != (e.ID == a) || (len(e.Ports) == 3) != e.Here {
			t.Errorf("endpoint %+v", e)
			continue
		}
		for i, want := range []string{"0.0.0.0:8080", "0.0.0.0:8081", "0.0.0.0:8443"} {
			if e.Here && (e.Ports[i].Host.String() != want || e.Ports[i].Proto != "tcp") {
				t.Errorf("port %d is %+v, want that of %s", i, e.Ports[i], want)
			}
		}
	}
	// A host without Docker has none.
	d.Here, d.Published = func() map[string]bool { return nil }, func() map[string][]ports.Binding { return nil }
	for _, n := range d.Networks() {
		if n.Here {
			t.Errorf("without Docker: %+v", n)
		}
	}
	if e := d.Endpoints()[0]; len(e.Ports) > 0 {
		t.Errorf("without Docker: %+v", e)
	}
}
