package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// The kernel says who takes what is gv0's, whatever rule comes before ours and for whichever
// packets it is.
func TestTakenBefore(t *testing.T) {
	host, wire := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, wire, []string{"192.0.2.1/24", "fd09::1/64"}, nil)
	linktest.Wire(t, "tailscale0", host, wire, []string{"100.64.0.1/24", "fd64::1/64"}, nil)
	host.Do(func() {
		addPort(t)
		subnets := prefixes("10.128.0.0/22", "10.129.0.0/30", "fd00:4::/64", "240.0.0.0/5")
		cfg := Config{MTU: 1450, Addrs: prefixes("10.128.0.1/22", "10.129.0.1/30", "fd00:4::1/64"), Subnets: subnets[:3], Host: prefixes("240.0.0.2/5")}
		ok(t, New("0123456789abcdef").Ensure(ctx, cfg))
		is := func(want ...string) {
			t.Helper()
			got := []string{}
			for _, x := range TakenBefore(subnets, "eth0") {
				got = append(got, fmt.Sprintf("%d: %s leads %s: %v %v", x.At, x.Rule, x.Leads, x.Subnets, x.Of))
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("taken\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		is()
		run := func(lines ...string) {
			t.Helper()
			for _, l := range lines {
				ip(t, strings.Fields(l)...)
			}
		}
		run("route add default via 192.0.2.254", "-6 route add default via fd09::fe")
		is()

		const both = "[10.128.0.0/22 10.129.0.0/30]"
		run("route add 10.0.0.0/8 via 100.64.0.2 dev tailscale0 table 52", "rule add priority 5270 lookup 52")
		is("5270: lookup 52 leads to tailscale0 via 100.64.0.2: " + both + " [0 1 2]")
		run("route add throw 10.128.0.0/22 table 52")
		is("5270: lookup 52 leads to tailscale0 via 100.64.0.2: [10.129.0.0/30] [0 1 2]")
		run("route flush table 52", "route add default via 100.64.0.2 dev tailscale0 table 52")
		is("5270: lookup 52 leads to tailscale0 via 100.64.0.2: [10.128.0.0/22 10.129.0.0/30 240.0.0.0/5] [0 1 2]")
		run("rule add priority 5269 lookup 26486") // what status tells to do
		is()
		run("rule del priority 5269", "route flush table 52", "route add prohibit 10.128.0.0/16 table 52")
		is("5270: lookup 52 leads nowhere: [10.128.0.0/22] [0 1 2]")
		run("rule del priority 5270")
		is()

		for rule, want := range map[string]string{
			"to 10.0.0.0/8 prohibit":       both + " [0 1 2]",
			"to 10.128.0.0/9 blackhole":    both + " [0 1 2]",
			"to 10.129.0.0/30 unreachable": "[10.129.0.0/30] [0 1 2]",
		} {
			run("rule add priority 7 " + rule)
			is("7: " + rule + " leads nowhere: " + want)
			run("rule del priority 7")
		}
		all := "[10.128.0.0/22 10.129.0.0/30 240.0.0.0/5]"
		for rule, want := range map[string]string{
			"iif eth0 lookup main":            all + " [2]",
			"from 192.0.2.1/32 lookup main":   all + " [1]",
			"from 192.0.2.0/24 lookup main":   all + " [1 2]",
			"to 10.128.0.0/16 lookup main":    "[10.128.0.0/22] [0 1 2]",
			"fwmark 0x7 lookup main":          "",
			"iif tailscale0 lookup main":      "",
			"not from 192.0.2.1/32 lookup 99": "",
		} {
			run("rule add priority 900 " + rule)
			if want == "" {
				is()
			} else {
				is("900: " + rule + " leads to eth0 via 192.0.2.254: " + want)
			}
			run("rule del priority 900")
		}
		run("-6 rule add priority 5000 lookup main")
		is("5000: lookup main leads to eth0 via fd09::fe: [fd00:4::/64] [0 1 2]")
		run("-6 rule del priority 5000")
		// As wg-quick does it, whose rules come before all others but the first.
		run("route add default dev tailscale0 table 51820", "rule add not fwmark 51820 table 51820")
		is("31999: not fwmark 0xca6c lookup 51820 leads to tailscale0: " + all + " [0 1 2]")
	})
}

// What containers send to the outside is another way than what is sent to them: rules by the source are about the one alone.
func TestTakenToOutside(t *testing.T) {
	host, wire := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, wire, []string{"192.0.2.1/24", "fd09::1/64"}, nil)
	host.Do(func() {
		addPort(t)
		subnets := prefixes("10.128.0.0/22", "10.129.0.0/24", "fd00:4::/64")
		ok(t, New("0123456789abcdef").Ensure(ctx, Config{MTU: 1450, Addrs: prefixes("10.128.0.1/22", "10.129.0.1/24", "fd00:4::1/64"), Subnets: subnets}))
		run := func(lines ...string) {
			t.Helper()
			for _, l := range lines {
				ip(t, strings.Fields(l)...)
			}
		}
		is := func(want string) {
			t.Helper()
			var got []string
			for _, x := range TakenToOutside(subnets) {
				got = append(got, fmt.Sprintf("%d: %s leads %s: %v", x.At, x.Rule, x.Leads, x.Subnets))
			}
			if text := strings.Join(got, "\n"); text != want {
				t.Errorf("taken %q, want %q", text, want)
			}
			if before := TakenBefore(subnets, "eth0"); len(before) > 0 {
				t.Errorf("taken from who sends to containers: %+v", before)
			}
		}
		is("")
		run("route add default via 192.0.2.254", "-6 route add default via fd09::fe", "rule add priority 100 from 10.0.0.0/16 prohibit")
		is("")
		const both = ": [10.128.0.0/22 10.129.0.0/24]"
		for rule, want := range map[string]string{
			"from 10.128.0.0/14 prohibit":    both,
			"from 10.128.0.0/22 unreachable": ": [10.128.0.0/22]",
			"from 10.129.0.0/24 blackhole":   ": [10.129.0.0/24]",
			"iif gv0 prohibit":               both,
		} {
			for _, at := range []string{"100", "32500"} { // after ours too
				run("rule add priority " + at + " " + rule)
				is(at + ": " + rule + " leads nowhere" + want)
				run("rule del priority " + at + " " + rule)
			}
		}
		run("route add unreachable default table 900", "rule add priority 99 from 10.129.0.0/16 lookup 900")
		is("99: from 10.129.0.0/16 lookup 900 leads nowhere: [10.129.0.0/24]")
		run("route flush table 900", "route add default via 192.0.2.253 table 900") // a second uplink
		is("")
		run("-6 rule add priority 98 from fd00::/16 prohibit")
		is("98: from fd00::/16 prohibit leads nowhere: [fd00:4::/64]")
		run("-6 rule del priority 98", "-6 rule add priority 98 from fd77::/16 prohibit", "route del default")
		is("") // no route is another matter
		if WayOut(false) || !WayOut(true) {
			t.Errorf("way out, with a route of IPv6 alone: %v, by IPv6 %v", WayOut(false), WayOut(true))
		}
		run("-6 route del default", "route add default via 192.0.2.254")
		if !WayOut(false) || WayOut(true) {
			t.Errorf("way out, with a route of IPv4 alone: %v, by IPv6 %v", WayOut(false), WayOut(true))
		}
		run("rule add priority 97 prohibit")
		if !WayOut(false) {
			t.Error("a rule that drops is taken for no route")
		}
	})
}

// What leads VTEPs inside WireGuard elsewhere is named, and what status tells to do takes them back.
func TestTakenFromMain(t *testing.T) {
	host, wire := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "gvwg", host, wire, []string{"fd67:1::1/128"}, nil)
	linktest.Wire(t, "tailscale0", host, wire, []string{"fd64::1/64"}, nil)
	host.Do(func() {
		is := func(want string) {
			t.Helper()
			got := ""
			for _, x := range TakenFromMain(prefixes("fd67:1::/64")[0], "gvwg") {
				got += fmt.Sprintf("%d: %s leads %s", x.At, x.Rule, x.Leads)
			}
			if got != want {
				t.Errorf("taken: %q, want %q", got, want)
			}
		}
		run := func(lines ...string) {
			t.Helper()
			for _, l := range lines {
				ip(t, strings.Fields(l)...)
			}
		}
		run("-6 route add fd67:1::/64 dev gvwg metric 64", "-6 route add unreachable fd67:1::/64 metric 2147483647")
		is("")
		run("-6 route add default dev tailscale0 table 52")
		is("")
		run("-6 rule add priority 5270 lookup 52")
		is("5270: lookup 52 leads to tailscale0")
		run("-6 rule add priority 5269 to fd67:1::/64 lookup main")
		is("")
		run("-6 rule del priority 5269", "-6 rule add priority 5269 lookup main suppress_prefixlength 0") // as wg-quick does
		is("")
		run("-6 rule del priority 5269", "-6 rule del priority 5270", "-6 rule add priority 5270 to fd67:1::/64 prohibit")
		is("5270: to fd67:1::/64 prohibit leads nowhere")
		run("-6 rule del priority 5270", "link del gvwg")
		is("")
	})
}

// TestTakenByOurs: rules that lead a prefix of ours nowhere while its interface is gone are nobody else's; another program's is named yet.
func TestTakenByOurs(t *testing.T) {
	linktest.New(t).Do(func() {
		to := prefixes("fd67:1::/64")[0]
		ip(t, "link", "set", "lo", "up")
		ip(t, "-6", "route", "add", "unreachable", to.String(), "metric", "2147483647")
		ip(t, "-6", "rule", "add", "priority", "1", "to", to.String(), "lookup", "main", "suppress_prefixlength", "63")
		ip(t, "-6", "rule", "add", "priority", "2", "to", to.String(), "unreachable")
		if list := TakenFromMain(to, "gvwg"); len(list) > 0 {
			t.Errorf("taken: %+v", list)
		}
		ip(t, "-6", "rule", "del", "priority", "1")
		ip(t, "-6", "rule", "del", "priority", "2")
		ip(t, "-6", "rule", "add", "priority", "9", "blackhole")
		if list := TakenFromMain(to, "gvwg"); len(list) != 1 || list[0].At != 9 {
			t.Errorf("by another's rule: %+v", list)
		}
	})
}
