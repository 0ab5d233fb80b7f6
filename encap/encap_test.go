package encap

import (
	"net/netip"
	"strings"
	"testing"
)

// TestOverhead: what the RFCs and other implementations say that is added to an IP packet.
func TestOverhead(t *testing.T) {
	for _, tc := range []struct {
		kind Kind
		host string
		want int
	}{
		{VXLAN, "192.0.2.1", 50},
		{VXLAN, "::ffff:192.0.2.1", 50},
		{VXLAN, "2001:db8::1", 70},
		{Geneve, "192.0.2.1", 50},
		{Geneve, "2001:db8::1", 70},
		{GRE, "192.0.2.1", 42},
		{GRE, "::ffff:192.0.2.1", 42},
		{GRE, "2001:db8::1", 62},
		{WireGuard, "192.0.2.1", 60},
		{WireGuard, "::ffff:192.0.2.1", 60},
		{WireGuard, "2001:db8::1", 80},
	} {
		if got := tc.kind.Overhead(netip.MustParseAddr(tc.host)); got != tc.want {
			t.Errorf("%s at %s adds %d bytes, want %d", tc.kind.Name, tc.host, got, tc.want)
		}
	}
	if got := VXLAN.Overhead(netip.Addr{}); got != 50 {
		t.Errorf("VXLAN at an unknown address adds %d bytes, want 50", got)
	}
}

// TestSystem: the name that Open vSwitch gives (lib/netdev-vport.c and dpif-netlink-rtnl.c).
func TestSystem(t *testing.T) {
	for want, got := range map[string]string{
		"vxlan_sys_4790": VXLAN.System(4790, false), "genev_sys_6081": Geneve.System(6081, true), "gre_sys": GRE.System(0, false), "ip6gre_sys": GRE.System(0, true),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestParse: what is not there is refused, with the reason.
func TestParse(t *testing.T) {
	for name, want := range map[string]Kind{"vxlan": VXLAN, "geneve": Geneve, "gre": GRE} {
		if got, err := Parse(name); got != want || err != nil {
			t.Errorf("%s is %v, %v", name, got, err)
		}
		if got, known := Of(want.Mark()); got != want || !known {
			t.Errorf("what a record says of %s is read as %v, %v", name, got, known)
		}
	}
	for name, reason := range map[string]string{"stt": "removed it in 3.6", "auto": "is of a host and not of a network", "GENEVE": "use vxlan, geneve or gre", "": "no encapsulation", "wireguard": "no encapsulation"} {
		if _, err := Parse(name); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, known := Of("stt"); known {
		t.Error("a record's stt is known")
	}
}
