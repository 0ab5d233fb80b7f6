package follow

import (
	"log/slog"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestOurs: what this host reaches by itself is no container's, and no range of the cluster is taken as such: somebody else
// may be there, behind a router.
func TestOurs(t *testing.T) {
	const self = cluster.NodeID("1111111111111111")
	state := cluster.New(self)
	for _, p := range []string{"10.128.0.0/22", "10.128.4.0/22", "10.7.0.0/24", "fd00:1::/64"} {
		if _, _, err := state.Put(cluster.Subnet{Prefix: netip.MustParsePrefix(p), Network: p}); err != nil {
			t.Fatal(err)
		}
	}
	ours := func(addrs ...string) (list []string) {
		host, wire := linktest.New(t), linktest.New(t)
		linktest.Wire(t, "eth0", host, wire, addrs, nil)
		host.Do(func() {
			f := New(Config{Self: self, Log: slog.New(slog.DiscardHandler), CIDR4: netip.MustParsePrefix("10.128.0.0/14"), CIDRs: func() []netip.Prefix {
				return []netip.Prefix{netip.MustParsePrefix("10.128.0.0/14"), netip.MustParsePrefix("fd00::/48")}
			}})
			if err := f.Open(); err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			containers, ranges := f.Ours(state.Snapshot())
			for _, p := range containers {
				list = append(list, p.String())
			}
			for _, p := range ranges {
				list = append(list, "range "+p.String())
			}
		})
		slices.Sort(list)
		return list
	}
	for _, tt := range []struct{ addrs, want []string }{
		{[]string{"192.0.2.1/24"}, []string{"10.128.0.0/22", "10.128.4.0/22", "10.7.0.0/24", "240.0.0.0/5", "fd00:1::/64", "fd67:7261:7065::/64", "range 10.128.0.0/14", "range fd00::/48"}},
		{[]string{"10.128.5.1/24"}, []string{"10.128.0.0/22", "10.7.0.0/24", "240.0.0.0/5", "fd00:1::/64", "fd67:7261:7065::/64", "range fd00::/48"}},
		{[]string{"10.7.0.9/16", "fd00:1::9/64"}, []string{"10.128.0.0/22", "10.128.4.0/22", "240.0.0.0/5", "fd67:7261:7065::/64", "range 10.128.0.0/14", "range fd00::/48"}},
	} {
		if got := ours(tt.addrs...); !slices.Equal(got, tt.want) {
			t.Errorf("with %v: %v, want %v", tt.addrs, got, tt.want)
		}
	}
}

// TestOutsideLost: a default route that goes is named, of the family whose networks have lost it; where there never was one nothing is lost.
func TestOutsideLost(t *testing.T) {
	host, wire := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, wire, []string{"192.0.2.1/24", "fd09::1/64"}, nil)
	host.Do(func() {
		f := New(Config{Log: slog.New(slog.DiscardHandler)})
		both := []netip.Prefix{netip.MustParsePrefix("10.128.0.0/22"), netip.MustParsePrefix("fd00:1::/64")}
		is := func(leaving []netip.Prefix, want ...string) {
			t.Helper()
			got := f.outsideLost(leaving)
			if len(got) != len(want) {
				t.Errorf("%+v, want %q", got, want)
				return
			}
			for i, p := range got {
				if p.Code != api.OutsideLost || !strings.Contains(p.What, want[i]) {
					t.Errorf("%+v, want %q", p, want[i])
				}
			}
		}
		ip := func(args ...string) {
			t.Helper()
			if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
				t.Fatalf("ip %v: %v: %s", args, err, out)
			}
		}
		is(both)
		ip("route", "add", "default", "via", "192.0.2.254")
		is(both)
		ip("route", "del", "default")
		is(both, "by IPv4")
		is(both[1:]) // containers of IPv6 alone lose nothing
		is(nil)      // nor those of internal networks
		ip("-6", "route", "add", "default", "via", "fd09::fe")
		is(both, "by IPv4")
		ip("-6", "route", "del", "default")
		is(both, "by IPv4", "by IPv6")
		ip("route", "add", "default", "via", "192.0.2.254")
		is(both, "by IPv6")
	})
}
