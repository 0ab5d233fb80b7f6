package ipam

import (
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/ring"
)

// TestOddAddressesComeLast: .0 and .255 of a prefix are handed out when nothing else is left, and are not lost.
func TestOddAddressesComeLast(t *testing.T) {
	free := []netip.Prefix{netip.MustParsePrefix("10.0.0.254/31"), netip.MustParsePrefix("10.0.1.0/30"), netip.MustParsePrefix("10.0.2.0/32")}
	var got []string
	after := netip.Addr{}
	for range 7 {
		p, ok := nextAddress(free, 32, after)
		if !ok {
			t.Fatalf("nothing after %s", after)
		}
		got = append(got, p.Addr().String())
		after = p.Addr()
		free = ring.Subtract(free, []netip.Prefix{p})
	}
	for i, want := range []string{"10.0.0.254", "10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.2.0", "10.0.0.255", "10.0.1.0"} {
		if got[i] != want {
			t.Fatalf("%v, %d is not %s", got, i, want)
		}
	}
	if p, ok := nextAddress(free, 32, after); ok {
		t.Errorf("%s is left of nothing", p)
	}
	if p, _ := nextAddress([]netip.Prefix{netip.MustParsePrefix("fd00::/64")}, 128, netip.Addr{}); p.Addr() != netip.MustParseAddr("fd00::") {
		t.Errorf("IPv6: %s", p)
	}
}
