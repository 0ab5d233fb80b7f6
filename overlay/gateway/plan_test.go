package gateway

import (
	"maps"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func draw(t *rapid.T, name string) config {
	c := newConfig()
	addr := rapid.SampledFrom([]netip.Addr{
		netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.4.1"), netip.MustParseAddr("fd00::1"), {},
	})
	dst := rapid.SampledFrom(prefixes("10.0.0.0/22", "10.0.0.0/8", "10.0.4.0/22", "fd00::/64"))
	for _, a := range rapid.SliceOfN(addr, 0, 4).Draw(t, name+" addresses") {
		if a.IsValid() {
			c.addrs[a] = true
		}
	}
	for _, d := range rapid.SliceOfN(dst, 0, 4).Draw(t, name+" routes") {
		c.routes[d] = via{addr.Draw(t, "source"), rapid.SampledFrom([]int{0, 1300}).Draw(t, "MTU")}
	}
	return c
}

// The changes lead from any state to any other, and never take away what is wanted.
func TestDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have, want := draw(t, "have"), draw(t, "want")
		d := difference(have, want)
		got := config{maps.Clone(have.addrs), maps.Clone(have.routes)}
		for _, a := range d.addAddrs {
			got.addrs[a] = true
		}
		for _, r := range d.addRoutes {
			got.routes[r.dst] = r.via
		}
		for _, r := range d.removeRoutes {
			if _, wanted := want.routes[r.dst]; wanted {
				t.Fatalf("removes %v, which is wanted", r)
			}
			delete(got.routes, r.dst)
		}
		for _, a := range d.removeAddrs {
			delete(got.addrs, a)
		}
		if !maps.Equal(got.addrs, want.addrs) || !maps.Equal(got.routes, want.routes) {
			t.Fatalf("from %v by %+v to %v, not %v", have, d, got, want)
		}
		if again := difference(want, want); len(again.addAddrs)+len(again.removeAddrs)+len(again.addRoutes)+len(again.removeRoutes) != 0 {
			t.Fatalf("from %v to itself by %+v", want, again)
		}
	})
}
