package membership

import (
	"net/netip"
	"strings"
	"testing"
)

// TestNamed: a join command names five hosts at most, and a port where it is not the default.
func TestNamed(t *testing.T) {
	var at []netip.AddrPort
	for _, a := range []string{"192.0.2.1:7947", "192.0.2.2:7000", "[2001:db8::3]:7947", "[2001:db8::4]:7000", "192.0.2.5:7947", "192.0.2.6:7947"} {
		at = append(at, netip.MustParseAddrPort(a))
	}
	if got, want := strings.Join(named(at, 7947), " "), "192.0.2.1 192.0.2.2:7000 2001:db8::3 [2001:db8::4]:7000 192.0.2.5"; got != want {
		t.Errorf("it names %s, want %s", got, want)
	}
	if got := named(at[:1], 7947); len(got) != 1 {
		t.Errorf("of one host: %q", got)
	}
}
