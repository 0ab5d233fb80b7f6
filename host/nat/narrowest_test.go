package nat

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/coreos/go-iptables/iptables"
	"github.com/vishvananda/netlink"
)

// TestNarrowest: a container with an address of its own leaves by it, and not by its subnet's, and what leaves so is not
// ended when the subnet's changes.
func TestNarrowest(t *testing.T) {
	subnet, one := netip.MustParsePrefix("10.128.4.0/22"), netip.MustParsePrefix("10.128.4.7/32")
	whole, own, new := netip.MustParseAddr("192.0.2.25"), netip.MustParseAddr("192.0.2.26"), netip.MustParseAddr("192.0.2.27")
	cfg := Config{Interface: "gv0", served: []Source{{subnet, whole}, {one, own}}}
	if got := strings.Join(cfg.servedRules(iptables.ProtocolIPv4), "; "); got != "-s 10.128.4.7/32 ! -o gv0 -j SNAT --to-source 192.0.2.26; -s 10.128.4.0/22 ! -o gv0 -j SNAT --to-source 192.0.2.25" {
		t.Errorf("rules %s", got)
	}
	flow := func(from string, as netip.Addr) *netlink.ConntrackFlow {
		return &netlink.ConntrackFlow{
			Forward: netlink.IPTuple{SrcIP: net.ParseIP(from), DstIP: net.ParseIP("198.51.100.1")},
			Reverse: netlink.IPTuple{SrcIP: net.ParseIP("198.51.100.1"), DstIP: as.AsSlice()},
		}
	}
	s := strays{served: Narrowest(cfg.served)}
	moved := servedBefore{[]netip.Prefix{subnet}, Narrowest([]Source{{subnet, new}, {one, own}})}
	taken := servedBefore{[]netip.Prefix{one}, Narrowest([]Source{{subnet, whole}, {one, new}})}
	for _, c := range []struct {
		from                string
		as                  netip.Addr
		stray, moved, taken bool
	}{
		{"10.128.4.7", own, false, false, true},
		{"10.128.4.7", whole, true, true, true},
		{"10.128.4.8", whole, false, true, false},
		{"10.128.4.8", own, true, true, false},
		{"10.128.8.1", own, false, false, false},
	} {
		f := flow(c.from, c.as)
		if got := [3]bool{s.MatchConntrackFlow(f), moved.MatchConntrackFlow(f), taken.MatchConntrackFlow(f)}; got != [3]bool{c.stray, c.moved, c.taken} {
			t.Errorf("%s as %s: stray, moved, taken over: %v", c.from, c.as, got)
		}
	}
}
