package watch

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestWhoIsSilent: what status says of hosts that do not answer, and that it never advises
// to forget a host when the matter may be with this one.
func TestWhoIsSilent(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 30, 0, time.Local)
	host := func(name string, dead bool) silent {
		return silent{name: name, vtep: netip.MustParseAddr("192.0.2.2"), since: now.Add(-10 * time.Second), dead: dead, do: "start it; if it is gone for good: grapevine forget " + name}
	}
	for _, c := range []struct {
		name    string
		list    []silent
		others  int
		trouble string
		want    []string // of each problem
		forget  bool
	}{
		{"all answer", nil, 3, "", nil, false},
		{"no other host, cable out", nil, 0, "the interface eth0 is down", []string{"this host is cut off: the interface eth0 is down"}, false},
		{"cable out, not noticed yet", nil, 3, "the interface eth0 is down", []string{"this host is cut off: the interface eth0 is down"}, false},
		{"cable out", []silent{host("b", true), host("c", false)}, 2, "the interface eth0 is down", []string{"no other host answers, since 12:00:20: it is this one, since the interface eth0 is down"}, false},
		{"cable out, one is off too", []silent{host("b", true)}, 2, "the interface eth0 is down", []string{"this host is cut off"}, false},
		{"cut elsewhere", []silent{host("b", true), host("c", true)}, 2, "", []string{"no other host answers, since 12:00:20: it is probably this one"}, false},
		{"one of two others is dead", []silent{host("b", true)}, 2, "", []string{"host b (192.0.2.2) does not answer, since 12:00:20"}, true},
		{"one of two others is in doubt", []silent{host("b", false)}, 2, "", []string{"host b (192.0.2.2) does not answer just now, since 12:00:20"}, false},
		{"the only other one", []silent{host("b", true)}, 1, "", []string{"host b (192.0.2.2) does not answer, since 12:00:20"}, true},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			got := whoIsSilent(c.list, c.others, c.trouble, "eth0", now)
			if len(got) != len(c.want) {
				t.Fatalf("got %+v, want %q", got, c.want)
			}
			forget := false
			for i, p := range got {
				if !strings.Contains(p.What, c.want[i]) {
					t.Errorf("says %q, want %q", p.What, c.want[i])
				}
				forget = forget || strings.Contains(p.What+p.Do, "forget")
			}
			if forget != c.forget {
				t.Errorf("advises to forget: %v", got)
			}
		})
	}
}
