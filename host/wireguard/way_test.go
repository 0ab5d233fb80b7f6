package wireguard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestLead: a packet that comes out of gvwgc goes on by the interface of the client whose address it has, and by none if
// it has nobody's; what is for a client goes to gvwgc. Who is a client no more has no way.
func TestLead(t *testing.T) {
	var ns *os.File
	one := Way{"gcone", []netip.Addr{netip.MustParseAddr("10.128.0.2"), netip.MustParseAddr("fd00::2")}}
	two := Way{"gctwo", []netip.Addr{netip.MustParseAddr("10.128.0.3"), netip.MustParseAddr("fd00::3")}}
	linktest.New(t).Do(func() {
		var err error
		if ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		for _, name := range []string{link.Clients, one.Port, two.Port} {
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "x"}); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(link.Up(name), link.Up(name+"x")); err != nil {
				t.Fatal(err)
			}
		}
		if err := forward(); err != nil {
			t.Fatal(err)
		}
		r := &Room{File: ns}
		sw := net.HardwareAddr{2, 0x67, 0x76, 0, 0, 1}
		way := func(from, to, in string) string {
			routes, err := netlink.RouteGetWithOptions(net.ParseIP(to), &netlink.RouteGetOptions{SrcAddr: net.ParseIP(from), Iif: in})
			if err != nil {
				return "nowhere"
			}
			if routes[0].Type > 1 {
				return "nowhere"
			}
			l, err := netlink.LinkByIndex(routes[0].LinkIndex)
			if err != nil {
				t.Fatal(err)
			}
			return l.Attrs().Name
		}
		for _, step := range []struct {
			ways []Way
			want string
		}{
			{[]Way{one, two}, "gcone gcone gctwo gctwo nowhere gvwgc gvwgc"},
			{[]Way{one, two}, "gcone gcone gctwo gctwo nowhere gvwgc gvwgc"},
			{[]Way{two}, "nowhere nowhere gctwo gctwo nowhere nowhere gvwgc"},
			{nil, "nowhere nowhere nowhere nowhere nowhere nowhere nowhere"},
		} {
			// One whose interface is gone keeps no other from its way.
			lost := Way{Port: "gcgone", Addrs: []netip.Addr{netip.MustParseAddr("10.128.0.7")}}
			led := r.Lead(slices.Concat([]Way{lost}, step.ways), sw)
			for _, w := range step.ways {
				if err := led.Of(w.Addrs); err != nil {
					t.Fatal(err)
				}
			}
			if err := led.Of(lost.Addrs); err == nil || led.All() == nil {
				t.Errorf("an interface that is not there: %v, %v", err, led.All())
			}
			got := fmt.Sprint(
				way("10.128.0.2", "10.128.0.3", link.Clients), " ", way("fd00::2", "2001:db8::1", link.Clients), " ",
				way("10.128.0.3", "10.128.0.2", link.Clients), " ", way("fd00::3", "fd00::2", link.Clients), " ",
				way("10.128.0.9", "10.128.0.2", link.Clients), " ",
				way("10.128.0.9", "10.128.0.2", one.Port), " ", way("fd00::9", "fd00::3", two.Port))
			if got != step.want {
				t.Errorf("%v: %s, want %s", step.ways, got, step.want)
			}
			neigh, err := netlink.NeighList(0, netlink.FAMILY_V4)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(fmt.Sprint(neigh), sw.String()); len(step.ways) == 2 && n != 2 {
				t.Errorf("%d interfaces know the switch, not 2: %v", n, neigh)
			}
		}
	})
}
