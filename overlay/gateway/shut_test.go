package gateway

import (
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestShut: what is for encrypted networks' containers goes by gv0, and nowhere while that is gone, whatever default route there is; no rules
// of nftables are here. What is for others goes as ever. Nothing of it stays.
func TestShut(t *testing.T) {
	linktest.New(t).Do(func() {
		ip(t, "link", "add", "eth9", "type", "veth", "peer", "other")
		linktest.Up(t, "eth9", "192.0.2.77/24", "fd64::77/64")
		ip(t, "route", "add", "default", "via", "192.0.2.1")
		ip(t, "-6", "route", "add", "default", "dev", "eth9")
		ways := func(to string) string {
			out, _ := exec.Command("ip", "route", "get", to).CombinedOutput()
			return string(out)
		}
		addPort(t)
		g, cfg := New("0123456789abcdef"), Config{
			MTU: 1450, Addrs: prefixes("10.128.4.1/22", "10.128.8.1/22", "fd42:4::1/64"), Subnets: prefixes("10.128.4.0/22", "10.128.8.0/22", "fd42:4::/64"),
			Host: prefixes("240.0.0.5/5"),
		}
		ok(t, g.Ensure(ctx, cfg))
		encrypted := prefixes("10.128.4.0/22", "fd42:4::/64", "240.0.0.0/5")
		for range 2 {
			ok(t, Shut(encrypted))
		}
		inside := []string{"10.128.5.9", "fd42:4::9", "240.0.0.9"}
		for _, to := range inside {
			if got := ways(to); !strings.Contains(got, "dev "+Port) {
				t.Errorf("to %s: %s", to, got)
			}
		}
		ok(t, g.Ensure(ctx, cfg))
		ip(t, "link", "del", Port)
		for _, to := range inside {
			if got := ways(to); strings.Contains(got, "dev") {
				t.Errorf("without %s, to %s: %s", Port, to, got)
			}
		}
		if got := ways("10.128.9.9"); !strings.Contains(got, "dev eth9") {
			t.Errorf("to a network in the clear: %s", got)
		}
		// Nor with another of what keeps it gone as well, whichever it is.
		for _, take := range []string{"rule del priority 32000", "route flush table 26486", "rule del priority 32001", "route flush table 26487"} {
			for _, family := range []string{"-4", "-6"} {
				ip(t, append([]string{family}, strings.Fields(take)...)...)
			}
			for _, to := range inside {
				if got := ways(to); strings.Contains(got, "dev") {
					t.Errorf("without %s, and after ip %s, to %s: %s", Port, take, to, got)
				}
			}
			ok(t, Shut(encrypted))
		}
		ok(t, Shut(prefixes("240.0.0.0/5")))
		if got := ways("10.128.5.9"); !strings.Contains(got, "dev eth9") {
			t.Errorf("no longer encrypted: %s", got)
		}
		ok(t, Shut(encrypted))
		gone, err := Purge()
		ok(t, err)
		if len(gone) == 0 || strings.Contains(ip(t, "rule")+ip(t, "-6", "rule"), "2648") {
			t.Errorf("purged %q, left:\n%s%s", gone, ip(t, "rule"), ip(t, "-6", "rule"))
		}
		ok(t, Shut(encrypted))
		ok(t, g.Remove())
		for _, family := range []string{"-4", "-6"} {
			for _, table := range []string{"26486", "26487"} {
				left, _ := exec.Command("ip", family, "route", "show", "table", table).CombinedOutput()
				if strings.Contains(string(left), "unreachable") || strings.Contains(ip(t, family, "rule"), table) {
					t.Errorf("left: %s%s", left, ip(t, family, "rule"))
				}
			}
		}
	})
}

// TestNowhereIsLookedAfter: who takes away a part of what leads nowhere is seen as who takes away the gateway's own, and it comes back, also
// while gv0 is gone.
func TestNowhereIsLookedAfter(t *testing.T) {
	if !IsRule(26487, 0) || !IsRule(0, 32001) || !IsTable(26487) {
		t.Error("the second rule, or its table, is taken for another's")
	}
	linktest.New(t).Do(func() {
		g, cfg := New("0123456789abcdef"), Config{
			MTU: 1450, Addrs: prefixes("10.128.4.1/22", "fd42:4::1/64"), Subnets: prefixes("10.128.4.0/22", "fd42:4::/64"),
		}
		g.Nowhere = &Nowhere{}
		addPort(t)
		ok(t, g.Ensure(ctx, cfg))
		ok(t, g.Nowhere.Set(cfg.Subnets))
		for _, gone := range []bool{false, true} {
			if gone {
				ip(t, "link", "del", Port)
			}
			for _, c := range []struct{ take, want string }{
				{"-4 rule del priority 32001", "the routing rule 32001, which leads to table 26487, is gone (ip rule)"},
				{"-6 rule del priority 32001", "the routing rule 32001, which leads to table 26487, is gone (ip -6 rule)"},
				{"-4 route flush table 26487", "has no unreachable route to 10.128.4.0/22"},
				{"-6 route flush table 26487", "has no unreachable route to fd42:4::/64"},
				{"-4 route del unreachable 10.128.4.0/22 table 26486 metric 2147483647", "has no unreachable route to 10.128.4.0/22"},
			} {
				before := g.Missing(cfg)
				if !gone && len(before) > 0 {
					t.Errorf("before %s: %q", c.take, before)
				}
				ip(t, strings.Fields(c.take)...)
				if got := strings.Join(g.Missing(cfg), "\n"); !strings.Contains(got, c.want) || strings.Contains(strings.Join(before, "\n"), c.want) {
					t.Errorf("after %s (%s gone: %v): %q, before %q", c.take, Port, gone, got, before)
				}
				_ = g.Ensure(ctx, cfg) // without gv0 an error, and this is put back yet
				if got := strings.Join(g.Missing(cfg), "\n"); strings.Contains(got, c.want) {
					t.Errorf("not put back: %q", got)
				}
			}
		}
		ok(t, g.Nowhere.Set(nil))
		if got := strings.Join(g.Missing(cfg), "\n"); strings.Contains(got, "unreachable") || strings.Contains(got, "32001") {
			t.Errorf("of nothing: %q", got)
		}
	})
}

// TestPurgeLeavesTheHostsOwn: the numbers of our tables are nobody's alone. What the administrator has there, or under the priorities of our
// rules, stays.
func TestPurgeLeavesTheHostsOwn(t *testing.T) {
	linktest.New(t).Do(func() {
		ip(t, "link", "add", "eth9", "type", "veth", "peer", "other")
		linktest.Up(t, "eth9", "192.0.2.77/24", "fd64::77/64")
		for _, line := range []string{
			"rule add priority 100 to 203.0.113.0/24 lookup 26487",
			"rule add priority 32001 to 10.98.0.0/16 lookup 555",
			"rule add priority 31000 from 10.99.0.0/16 lookup 26486",
			"rule add priority 32000 lookup 555",
			"rule add priority 4999 lookup 26486", // as status says
			"-6 rule add priority 31001 iif eth9 lookup 26487",
			"route add 203.0.113.0/24 via 192.0.2.1 table 26487",
			"route add 198.51.100.0/24 dev eth9 table 26486",
			"route add unreachable 198.18.0.0/15 table 26487",
			"route add unreachable 198.18.0.0/15 table 26486 metric 7",
			"-6 route add fd77::/64 via fe80::1 dev eth9 table 26486",
		} {
			ip(t, strings.Fields(line)...)
		}
		// The kernel takes no rule of ours beside one of the same priority and table; that it is missing is said, and this one stays.
		ip(t, "rule", "add", "priority", "32001", "to", "10.97.0.0/16", "lookup", "26487")
		n := Nowhere{}
		ok(t, n.Set(prefixes("10.128.4.0/22")))
		if got := strings.Join(n.missing(), "\n"); !strings.Contains(got, "the routing rule 32001, which leads to table 26487, is gone") {
			t.Errorf("barred by the administrator's rule: %q", got)
		}
		ok(t, n.Set(nil))
		if got := ip(t, "rule"); !strings.Contains(got, "to 10.97.0.0/16") {
			t.Errorf("with ours the administrator's rule went: %s", got)
		}
		ok(t, removeRule(unix.AF_INET, Table, priority))
		all := func() (text string) {
			for _, family := range []string{"-4", "-6"} {
				text += ip(t, family, "rule")
				for _, table := range []string{"26486", "26487"} {
					out, _ := exec.Command("ip", family, "route", "show", "table", table).CombinedOutput()
					text += strings.ReplaceAll(string(out), "Error: ipv6: FIB table does not exist.\nDump terminated\n", "")
				}
			}
			return text
		}
		before := all()
		for range 2 {
			gone, err := Purge()
			ok(t, err)
			if after := all(); after != before || len(gone) > 0 {
				t.Errorf("purged %q; it was\n%s\nand is\n%s", gone, before, after)
			}
		}
		addPort(t)
		g, cfg := New("0123456789abcdef"), Config{
			MTU: 1450, Addrs: prefixes("10.128.4.1/22", "fd42:4::1/64"), Subnets: prefixes("10.128.4.0/22", "fd42:4::/64"),
			Host: prefixes("240.0.0.5/5"),
		}
		ok(t, g.Ensure(ctx, cfg))
		ok(t, Shut(cfg.Subnets))
		gone, err := Purge()
		ok(t, err)
		if after := all(); after != before || len(gone) == 0 {
			t.Errorf("purged %q; it was\n%s\nand is\n%s", gone, before, after)
		}
	})
}
