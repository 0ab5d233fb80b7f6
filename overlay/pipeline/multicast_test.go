package pipeline

import (
	"net/netip"
	"strings"
	"testing"
)

// TestCopiesByBothFamilies: where hosts have VTEPs of both families, each copy is sent to an address of one of them, with nothing
// left of the other one's: the kernel's datapath takes no packet that has both.
func TestCopiesByBothFamilies(t *testing.T) {
	in := scene(Metadata)
	in.Groups = []Group{{VNID: 5, Addr: netip.MustParseAddr("239.1.2.3"), Ports: []uint32{11}, VTEPs: addrs("192.0.2.2", "192.0.2.3", "2001:db8::4")}}
	flows, err := Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	sent := map[string]bool{}
	for _, f := range flows {
		if !strings.Contains(f.String(), "nw_dst=239.1.2.3") {
			continue
		}
		to := map[string]string{} // what the packet's tunnel fields are, as the actions set them
		for _, act := range strings.Split(f.Actions, ",") {
			switch {
			case strings.HasPrefix(act, "set_field:"):
				if value, field, _ := strings.Cut(strings.TrimPrefix(act, "set_field:"), "->"); strings.HasPrefix(field, "tun_") {
					if to[field] = value; value == "0.0.0.0" || value == "::" {
						delete(to, field)
					}
				}
			case act == output(in.TunnelPort):
				if four, six := to["tun_dst"], to["tun_ipv6_dst"]; (four == "") == (six == "") {
					t.Errorf("a copy is sent to %q and %q", four, six)
				} else {
					sent[four+six] = true
				}
			}
		}
	}
	if len(sent) != 3 {
		t.Errorf("copies are sent to %v, want three hosts", sent)
	}
}
