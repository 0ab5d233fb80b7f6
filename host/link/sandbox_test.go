package link

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

func TestRoutesIn(t *testing.T) {
	sandbox, peer := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", sandbox, peer, []string{"10.9.0.2/24", "fd09::2/64"}, nil)
	var file *os.File
	sandbox.Do(func() {
		var err error
		file, err = os.Open("/proc/thread-self/ns/net")
		ok(t, err)
		via := netip.MustParseAddr("10.9.0.9")
		dst, _ := netlink.ParseIPNet("10.7.0.0/24")
		ok(t, netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: via.AsSlice()})) // as Docker does, or a user
	})
	defer file.Close()
	ns := fmt.Sprintf("/proc/self/fd/%d", file.Fd())
	routes := func() (got []string) {
		sandbox.Do(func() {
			list, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
			ok(t, err)
			for _, r := range list {
				if v, is := viaOf(r); is {
					got = append(got, fmt.Sprint(v.Prefix, " ", v.Gateway))
				}
			}
		})
		slices.Sort(got)
		return got
	}
	via := func(prefix, gateway string) Via {
		return Via{netip.MustParsePrefix(prefix), netip.MustParseAddr(gateway)}
	}
	want := func(lines ...string) {
		t.Helper()
		if got := routes(); !slices.Equal(got, lines) {
			t.Errorf("routes are %q, want %q", got, lines)
		}
	}
	for range 2 { // again: nothing changes
		ok(t, RoutesIn(ns, []Via{via("10.8.0.0/24", "10.9.0.1"), via("fd08::/64", "fd09::1")}))
		want("10.7.0.0/24 10.9.0.9", "10.8.0.0/24 10.9.0.1", "fd08::/64 fd09::1")
	}
	ok(t, RoutesIn(ns, []Via{via("10.6.0.0/24", "10.9.0.1")}))
	want("10.6.0.0/24 10.9.0.1", "10.7.0.0/24 10.9.0.9")
	if err := RoutesIn(ns, []Via{via("10.8.0.0/24", "10.5.0.1")}); err == nil {
		t.Error("a gateway that nothing leads to: no error")
	}
	ok(t, RoutesIn(ns, nil))
	want("10.7.0.0/24 10.9.0.9")

	// Docker makes an empty file first.
	empty := filepath.Join(t.TempDir(), "ns")
	ok(t, os.WriteFile(empty, nil, 0o600))
	if err := RoutesIn(empty, nil); err == nil {
		t.Error("an empty file: no error")
	}
}
