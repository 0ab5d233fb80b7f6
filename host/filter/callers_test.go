package filter

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/nat"
)

// TestCallers: who calls a published port is seen as who it is, whatever another program masquerades: a container of the cluster,
// one on Docker's own bridge, and who comes by the proxy, with an address that nobody has, a virtual machine with its own one. Nobody but the host
// has the gateway's, be it that another program's NAT comes before ours.
func TestCallers(t *testing.T) {
	w := newWorld(t, func() (*Filter, error) { return Open(slog.New(slog.DiscardHandler)) })
	cfg := config
	cfg.Internal = nil
	cfg.Inside = []netip.Prefix{netip.MustParsePrefix("10.128.0.0/14"), netip.MustParsePrefix("fd00:128::/32")}
	cfg.Gateways = []netip.Addr{netip.MustParseAddr("10.128.0.1"), netip.MustParseAddr("10.128.4.1"), netip.MustParseAddr("fd00:128::1"), netip.MustParseAddr("fd00:128:4::1")}
	cfg.Beside = []netip.Prefix{netip.MustParsePrefix("10.7.0.1/24"), netip.MustParsePrefix("fd00:7::1/64")}
	w.host.Do(func() {
		if err := w.filter.Set(cfg); err != nil {
			t.Fatal(err)
		}
		for _, c := range []string{"iptables", "ip6tables"} { // as Docker, libvirt and somebody do
			run(t, c, "-t", "nat", "-I", "POSTROUTING", "-o", "gv0", "-m", "addrtype", "!", "--src-type", "LOCAL", "-j", "MASQUERADE")
		}
		// The gateway's interface takes answers to loopback addresses (overlay/gateway).
		run(t, "sysctl", "-qw", "net.ipv4.conf.gv0.route_localnet=1")
		run(t, "ip", "-6", "route", "add", "local", "::1", "dev", "gv0", "table", "103")
		run(t, "ip", "-6", "rule", "add", "priority", "0", "iif", "gv0", "lookup", "103")
		run(t, "iptables", "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "-d", "10.9.0.1", "--dport", "8090", "-j", "DNAT", "--to", "10.128.0.2:81")
		run(t, "ip6tables", "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "-d", "fd00:9::1", "--dport", "8090", "-j", "DNAT", "--to", "[fd00:128::2]:81")
	})
	w.at["web"].Do(func() {
		l, err := net.Listen("tcp", ":81")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				from, _, _ := net.SplitHostPort(c.RemoteAddr().String())
				_, _ = c.Write([]byte(from))
				c.Close()
			}
		}()
	})
	const nobody = "nobody"
	// seen is the address with which web sees somebody.
	seenFrom := func(ns *linktest.NS, from, to string, patience time.Duration) string {
		answer := nobody
		ns.Do(func() {
			d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			c, err := d.DialContext(context.Background(), "tcp", to)
			if err != nil {
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			b := make([]byte, 100)
			n, _ := c.Read(b)
			answer = string(b[:n])
		})
		return answer
	}
	seen := func(ns *linktest.NS, to string, patience time.Duration) string { return seenFrom(ns, "", to, patience) }
	published := map[bool]string{false: "10.9.0.1:8090", true: "[fd00:9::1]:8090"}
	for v6, to := range published {
		family := map[bool]string{true: "/6"}[v6]
		before := map[string]string{}
		for _, from := range []string{"vault", "web", "plain"} {
			got := seen(w.at[from], to, 10*time.Second)
			if a, err := netip.ParseAddr(got); err != nil || !nat.Callers(v6).Contains(a) {
				t.Errorf("%s%s is seen as %s, want one of %v", from, family, got, nat.Callers(v6))
			}
			before[got] = from
			if again := seen(w.at[from], to, 10*time.Second); again != got {
				t.Errorf("%s%s is seen as %s, and then as %s", from, family, got, again)
			}
		}
		if len(before) != 3 {
			t.Errorf("containers are not told apart: %v", before)
		}
		for _, from := range []string{"vm", "away"} {
			if got := seen(w.at[from], to, 10*time.Second); got != w.addr[from+family] {
				t.Errorf("%s%s is seen as %s, want %s", from, family, got, w.addr[from+family])
			}
		}
		proxied := map[bool]string{false: "127.0.0.1", true: "::1"}[v6]
		direct := net.JoinHostPort(w.addr["web"+family], "81")
		gateway := map[bool]string{false: "10.128.0.1", true: "fd00:128::1"}[v6]
		if got := seen(w.host, direct, 10*time.Second); got != gateway {
			t.Errorf("the host%s is seen as %s, want %s", family, got, gateway)
		}
		bridge := map[bool]string{false: "10.7.0.1", true: "fd00:7::1"}[v6]
		if got := seenFrom(w.host, bridge, direct, 10*time.Second); got != bridge {
			t.Errorf("the host%s is seen as %s, want %s", family, got, bridge)
		}
		if got := seenFrom(w.host, proxied, direct, 10*time.Second); !strings.HasPrefix(got, map[bool]string{false: "248.0.", true: "fd67:7261:7065:2:"}[v6]) {
			t.Errorf("who comes by the proxy%s is seen as %s", family, got)
		}
	}
	// Whom a container on Docker's bridge calls is on that bridge as well: by it an answer would go past the host.
	linktest.Wire(t, "web2", w.host, w.at["web"], nil, []string{"10.7.0.9/24", "fd00:7::9/64"})
	w.host.Do(func() { run(t, "ip", "link", "set", "web2", "master", plainBridge) })
	for v6, to := range published {
		got := seen(w.at["plain"], to, 10*time.Second)
		if a, err := netip.ParseAddr(got); err != nil || !nat.Callers(v6).Contains(a) {
			t.Errorf("IPv6 %t: plain, on a bridge with whom it calls, is seen as %s", v6, got)
		}
	}
	w.host.Do(func() {
		run(t, "nft", "add table inet other; add chain inet other out { type nat hook postrouting priority 0; }; add rule inet other out oifname gv0 masquerade")
	})
	for v6, to := range published {
		for _, from := range []string{"vault", "plain"} {
			if got := seen(w.at[from], to, time.Second); got != nobody {
				t.Errorf("IPv6 %t: behind another program's NAT %s is seen as %s", v6, from, got)
			}
		}
		if got := seenFrom(w.host, map[bool]string{false: "127.0.0.1", true: "::1"}[v6], net.JoinHostPort(w.addr[map[bool]string{false: "web", true: "web/6"}[v6]], "81"), time.Second); got != nobody {
			t.Errorf("IPv6 %t: behind another program's NAT who comes by the proxy is seen as %s", v6, got)
		}
	}
	w.host.Do(func() {
		if dropped, err := w.filter.Refused(); err != nil || len(dropped) != 2 || dropped[0].Chain != Posing || dropped[1].Chain != Posing {
			t.Errorf("of who did not come as the host it is told %+v, %v", dropped, err)
		}
		if dropped, err := w.filter.RefusedBy(Posing); err != nil || len(dropped) != 2 {
			t.Errorf("of that chain alone it is told %+v, %v", dropped, err)
		}
		if dropped, err := w.filter.RefusedBy(Served); err != nil || len(dropped) != 0 {
			t.Errorf("of another chain it is told %+v, %v", dropped, err)
		}
	})
}
