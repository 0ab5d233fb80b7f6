package gateway

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

var ctx = context.Background()

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// addPort makes a gv0, as the switch would.
func addPort(t *testing.T) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = Port
	tap := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, Queues: 1, NonPersist: true}
	ok(t, netlink.LinkAdd(tap))
	t.Cleanup(func() { _ = tap.Fds[0].Close() })
}

// TestEnsureTouchesNobodyElses: an interface of the host's own that is called like ours is named, and stays as it is.
func TestEnsureTouchesNobodyElses(t *testing.T) {
	linktest.New(t).Do(func() {
		bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
		bridge.Name = Port
		ok(t, netlink.LinkAdd(bridge))
		linktest.Up(t, Port, "172.31.77.1/24", "192.0.2.77/32")
		settings := func() string {
			forwarding, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + Port + "/rp_filter")
			ok(t, err)
			return ip(t, "-4", "addr", "show", Port) + ip(t, "-o", "link", "show", Port) + ip(t, "rule") + string(forwarding)
		}
		before, cfg := settings(), Config{MTU: 1450, Addrs: prefixes("10.128.4.1/22"), Subnets: prefixes("10.128.0.0/14")}
		g := New("0123456789abcdef")
		var stranger *link.StrangerError
		if err := g.Ensure(ctx, cfg); !errors.As(err, &stranger) {
			t.Errorf("a bridge called %s: %v", Port, err)
		}
		if after := settings(); after != before {
			t.Errorf("it was\n%s\nand is\n%s", before, after)
		}
		if got := g.Missing(cfg); len(got) != 1 || !strings.Contains(got[0], "gv0 is a bridge of somebody else's: remove or rename it") {
			t.Errorf("missing: %q", got)
		}
	})
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func ip(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
	return string(out)
}

// has fails unless gv0 has exactly these.
func has(t *testing.T, addrs []string, routes map[string]string) {
	t.Helper()
	l, err := netlink.LinkByName(Port)
	ok(t, err)
	got, err := read(l)
	ok(t, err)
	want := newConfig()
	for _, a := range addrs {
		want.addrs[netip.MustParseAddr(a)] = true
	}
	for p, src := range routes {
		want.routes[netip.MustParsePrefix(p)] = via{}
		if src != "" {
			want.routes[netip.MustParsePrefix(p)] = via{src: netip.MustParseAddr(src)}
		}
	}
	if !maps.Equal(got.addrs, want.addrs) || !maps.Equal(got.routes, want.routes) {
		t.Errorf("gv0 has  %v\nand wants %v", got, want)
	}
}

func TestEnsure(t *testing.T) {
	host, wire := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, wire, []string{"10.9.0.1/24", "fd09::1/64"}, nil)
	host.Do(func() {
		g := New("0123456789abcdef")
		if err := g.Ensure(ctx, Config{}); !errors.Is(err, link.ErrNotFound) {
			t.Errorf("without gv0: %v", err)
		}
		addPort(t)
		for end := time.Now().Add(10 * time.Second); strings.Contains(ip(t, "addr", "show", "eth0"), "tentative") && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond) // the link-local address becomes valid
		}
		before := ip(t, "addr", "show", "eth0") + ip(t, "route", "show", "dev", "eth0")
		ok(t, os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("0"), 0))
		ok(t, os.WriteFile("/proc/sys/net/ipv6/conf/eth0/accept_ra", []byte("1"), 0))

		addrs, routes := prefixes("10.128.4.1/22", "fd00:4::1/64"), prefixes("10.128.0.0/14", "fd00::/16", "10.128.4.0/22")
		for range 2 {
			ok(t, g.Ensure(ctx, Config{MTU: 1450, Addrs: addrs, Subnets: routes}))
			has(t, []string{"10.128.4.1", "fd00:4::1", linkLocal(g.MAC()).String()}, map[string]string{
				"10.128.4.0/22": "10.128.4.1", "fd00:4::/64": "fd00:4::1", "10.128.0.0/14": "", "fd00::/16": "", "::1/128": "",
			})
		}
		if l, err := link.Get(Port); err != nil || l.MTU != 1450 || !l.Up || l.MAC.String() != g.MAC().String() {
			t.Errorf("gv0 is %+v, %v", l, err)
		}
		// What the kernel makes of it.
		for dst, want := range map[string]string{
			"10.128.5.6": "dev gv0 table 26486 src 10.128.4.1 ",
			"10.131.0.1": "dev gv0 table 26486 src ",
			"fd00:4::9":  "dev gv0 table 26486 src fd00:4::1 ",
			"10.9.0.7":   "dev eth0 src 10.9.0.1 ",
			"::1":        "dev lo table local ",
		} {
			got := strings.ReplaceAll(ip(t, "route", "get", dst), "proto static ", "")
			if !strings.Contains(got, want) {
				t.Errorf("to %s: %s, want %q", dst, got, want)
			}
		}

		if got, err := os.ReadFile("/proc/sys/net/ipv6/conf/eth0/accept_ra"); err != nil || string(got) != "2\n" {
			t.Errorf("a host that has its routes from its router and now forwards: accept_ra is %q, %v, want 2", got, err)
		}
		// Other hosts' containers, in ranges of the same subnet, and a narrower network.
		ok(t, g.Ensure(ctx, Config{
			MTU: 1450, MTUs: map[netip.Prefix]int{netip.MustParsePrefix("10.128.8.0/22"): 1300}, Addrs: prefixes("10.128.4.1/22", "10.128.8.1/22"),
			Host: prefixes("240.1.0.1/5"), Remote: prefixes("10.128.4.0/22"), Own: prefixes("10.128.4.0/24"), Subnets: routes,
		}))
		for dst, want := range map[string]string{
			"10.128.5.6": "dev gv0 table 26486 src 240.1.0.1 ",
			"10.128.4.6": "dev gv0 table 26486 src 10.128.4.1 ",
			"240.1.0.2":  "dev gv0 table 26486 src 240.1.0.1 ",
			"10.128.8.9": "dev gv0 table 26486 src 10.128.8.1 uid 0 \n    cache mtu lock 1300",
		} {
			got := strings.ReplaceAll(ip(t, "route", "get", dst), "proto static ", "")
			if !strings.Contains(got, want) {
				t.Errorf("to %s: %s, want %q", dst, got, want)
			}
		}
		if got := ip(t, "addr", "show", "gv0"); !strings.Contains(got, "240.1.0.1/32 scope link") {
			t.Errorf("the host's own address is one for everything: %s", got)
		}

		// A network comes, one goes, and one's gateway changes.
		ok(t, g.Ensure(ctx, Config{MTU: 1450, Addrs: prefixes("10.128.4.2/22", "10.128.8.1/32"), Subnets: prefixes("10.128.0.0/14", "172.30.0.0/16")}))
		has(t, []string{"10.128.4.2", "10.128.8.1"}, map[string]string{
			"10.128.4.0/22": "10.128.4.2", "10.128.0.0/14": "", "172.30.0.0/16": "",
		})

		// ovs-vswitchd has been restarted.
		ok(t, link.Delete(Port))
		addPort(t)
		ok(t, g.Ensure(ctx, Config{MTU: 1450, Addrs: addrs, Subnets: routes}))
		if got := ip(t, "route", "get", "10.128.5.6"); !strings.Contains(got, "dev gv0") {
			t.Errorf("after gv0 was made anew: %s", got)
		}

		if after := ip(t, "addr", "show", "eth0") + ip(t, "route", "show", "dev", "eth0"); after != before {
			t.Errorf("eth0 was\n%sand is\n%s", before, after)
		}
		for range 2 {
			ok(t, g.Remove())
		}
		if rules := ip(t, "rule") + ip(t, "-6", "rule"); strings.Contains(rules, "26486") {
			t.Errorf("left after Remove:\n%s", rules)
		}
	})
}

func TestSysctls(t *testing.T) {
	linktest.New(t).Do(func() {
		addPort(t)
		ok(t, New("a").Ensure(ctx, Config{MTU: 1450, Addrs: prefixes("10.128.4.1/22")}))
		for _, want := range []sysctl{{"ipv4/ip_forward", "1"}, {"ipv4/conf/gv0/rp_filter", "2"}, {"ipv4/conf/gv0/route_localnet", "1"}} {
			out, err := exec.Command("cat", "/proc/sys/net/"+want.path).Output()
			if strings.TrimSpace(string(out)) != want.value {
				t.Errorf("%s is %q, %v", want.path, out, err)
			}
		}
		out, _ := exec.Command("cat", "/proc/sys/net/ipv6/conf/all/forwarding").Output()
		if strings.TrimSpace(string(out)) != "0" {
			t.Errorf("IPv6 forwarding is %q without IPv6 networks", out)
		}
		err := sysctl{"ipv4/conf/none/rp_filter", "2"}.set()
		if err == nil {
			t.Error("no error for an interface that there is not")
		}
	})
}

// TestForwarding: a host that is to be no router stays none, and one that is one already
// is left as it is.
func TestForwarding(t *testing.T) {
	linktest.New(t).Do(func() {
		addPort(t)
		is := func(want string) {
			t.Helper()
			for _, path := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
				if text, err := os.ReadFile("/proc/sys/net/" + path); err != nil || strings.TrimSpace(string(text)) != want {
					t.Errorf("%s is %q (%v), want %s", path, text, err, want)
				}
			}
		}
		g := New("a")
		cfg := Config{MTU: 1450, Addrs: prefixes("10.128.4.1/22", "fd00:128::1/64")}
		var asked []bool
		var learnt []string
		why := errors.New("no iptables")
		g.BeforeForwarding = func(v6 bool, learning []string) error {
			asked = append(asked, v6)
			if v6 {
				learnt = learning
			}
			return why
		}
		without := 0
		g.WithoutIPv6 = func() error { without++; return nil }
		if err := g.Ensure(ctx, cfg); !errors.Is(err, why) {
			t.Errorf("Ensure: %v", err)
		}
		is("0")
		why = nil
		ok(t, g.Ensure(ctx, cfg))
		is("1")
		ok(t, g.Ensure(ctx, cfg))
		if want := []bool{false, true, false, true}; !slices.Equal(asked, want) {
			t.Errorf("asked %v, want %v", asked, want)
		}
		accept := func(want string) {
			t.Helper()
			if text, err := os.ReadFile("/proc/sys/net/ipv6/conf/default/accept_ra"); err != nil || strings.TrimSpace(string(text)) != want {
				t.Errorf("accept_ra is %q (%v), want %s", text, err, want)
			}
		}
		if accept("2"); !slices.Contains(learnt, "default") || without != 0 {
			t.Errorf("told of %v; %d times that there is no IPv6", learnt, without)
		}
		if out := ip(t, "-6", "rule"); !strings.Contains(out, "32000:") {
			t.Errorf("rules of IPv6: %s", out)
		}
		ok(t, g.Ensure(ctx, Config{MTU: 1450, Addrs: cfg.Addrs[:1]}))
		if out := ip(t, "-6", "rule"); strings.Contains(out, "32000:") || without != 1 {
			t.Errorf("without IPv6 the rules are %s; told so %d times", out, without)
		}
		ok(t, Unlearn(append(learnt, "gone")))
		accept("1")
		ok(t, StopForwarding(false))
		ok(t, StopForwarding(true))
		is("0")
		ok(t, g.Shut())
		if out := ip(t, "link", "show", Port); strings.Contains(out, ",UP") {
			t.Errorf("Shut left %s", out)
		}
	})
}

func TestBadInput(t *testing.T) {
	linktest.New(t).Do(func() {
		addPort(t)
		for _, routes := range [][]netip.Prefix{prefixes("0.0.0.0/0"), {netip.Prefix{}}} {
			if err := New("a").Ensure(ctx, Config{MTU: 1450, Addrs: prefixes("10.128.4.1/22"), Subnets: routes}); err == nil {
				t.Errorf("no error for routes %v", routes)
			}
		}
		has(t, nil, nil)
	})
}

func TestMAC(t *testing.T) {
	a, b := New("aaaaaaaaaaaaaaaa").MAC(), New("aaaaaaaaaaaaaaab").MAC()
	if a.String() == b.String() || a.String() != New("aaaaaaaaaaaaaaaa").MAC().String() {
		t.Errorf("%v and %v", a, b)
	}
	for _, m := range []net.HardwareAddr{a, b} {
		if m[0]&3 != 2 {
			t.Errorf("%v is not locally administered and unicast (IEEE 802)", m)
		}
	}
}
