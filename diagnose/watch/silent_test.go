package watch

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestWhoIsSilent: what status says of hosts that do not answer, and that it never advises
// to forget a host when the matter may be with this one.
func TestWhoIsSilent(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 30, 0, time.Local)
	host := func(name string, dead bool) silent {
		return silent{name: name, vtep: netip.MustParseAddr("192.0.2.2"), since: now.Add(-10 * time.Second), dead: dead, do: "start it; if it is gone for good: grapevine forget " + name}
	}
	led := func(name, by string) silent {
		s := host(name, true)
		s.astray = by
		return s
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
		{"one of two others, by another route", []silent{led("b", "by docker0, and not by eth0")}, 2, "", []string{"host b (192.0.2.2) does not answer, since 12:00:20: this host sends to it by docker0, and not by eth0"}, false},
		{"the only other one, by another route", []silent{led("b", "by no interface (unreachable)")}, 1, "", []string{"host b (192.0.2.2) does not answer, since 12:00:20: this host sends to it by no interface (unreachable)"}, false},
		{"all by another route", []silent{led("b", "by tun0, and not by eth0"), led("c", "by tun0, and not by eth0")}, 2, "", []string{"no other host answers, since 12:00:20: it is probably this one, which sends to b (192.0.2.2) by tun0, and not by eth0"}, false},
		{"one of them by another route", []silent{led("b", "by tun0, and not by eth0"), host("c", true)}, 2, "", []string{"no other host answers, since 12:00:20: it is probably this one, unless all"}, false},
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

// TestAstray: where a route leads packets for another host is told by its interface.
func TestAstray(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")
	ns := linktest.New(t)
	ns.Do(func() {
		linktest.Wire(t, "eth0", ns, linktest.New(t), []string{"192.0.2.1/24", "2001:db8::1/64"}, nil)
		linktest.Wire(t, "tun0", ns, linktest.New(t), []string{"198.51.100.1/24"}, nil)
		for _, c := range []struct {
			to    netip.Addr
			route []string
			want  string
		}{
			{v4, nil, ""}, {v6, nil, ""}, {netip.Addr{}, nil, ""},
			{v4, []string{"192.0.2.2/32", "dev", "tun0"}, "by tun0, and not by eth0"},
			{v6, []string{"2001:db8::2/128", "dev", "tun0"}, "by tun0, and not by eth0"},
			{v4, []string{"unreachable", "192.0.2.2/32"}, "by no interface (unreachable)"},
			{v6, []string{"blackhole", "2001:db8::2/128"}, "by no interface (unreachable)"},
		} {
			change := func(verb string) {
				if c.route == nil {
					return
				}
				if out, err := exec.Command("ip", append([]string{"route", verb}, c.route...)...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %v: %s", c.route, err, out)
				}
			}
			change("add")
			if got := astray(c.to, "eth0", link.Way); got != c.want {
				t.Errorf("to %v, with %v: %q, want %q", c.to, c.route, got, c.want)
			}
			change("del")
		}
		for _, args := range [][]string{{"route", "add", "blackhole", "default", "table", "77"}, {"rule", "add", "to", "192.0.2.2", "ipproto", "udp", "dport", "4789", "lookup", "77"}} {
			if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v: %s", args, err, out)
			}
		}
		for port, want := range map[uint16]string{4789: "", 4790: "eth0"} {
			if got := link.UDPWay(v4, port); got != want {
				t.Errorf("beside a rule for port 4789, to port %d: %q, want %q", port, got, want)
			}
		}
		if got := link.UDPWay(v6, 4789); got != "eth0" {
			t.Errorf("by IPv6: %q", got)
		}
	})
}
