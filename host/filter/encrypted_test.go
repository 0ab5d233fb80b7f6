package filter

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// What is for the port of VXLAN comes and goes by the device that encrypts, whatever addresses it has; nothing else
// does by that, and nothing is forwarded there.
func TestEncrypted(t *testing.T) {
	host, wire, inside := linktest.New(t), linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, wire, []string{"10.9.0.1/24", "fd00:9::1/64"}, []string{"10.9.0.2/24", "fd00:9::2/64"})
	linktest.Wire(t, "gvwg", host, inside, []string{"fd67::1/64"}, []string{"fd67::2/64"})
	host.Do(func() {
		run(t, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1", "net.ipv4.ip_forward=1")
		run(t, "ip", "link", "add", "gv0", "type", "bridge")
	})
	serve(t, host, "[fd67::1]", "[fd00:9::1]", "10.9.0.1")
	serve(t, wire)
	serve(t, inside)
	wire.Do(func() {
		run(t, "ip", "-6", "route", "add", "fd67::1/128", "via", "fd00:9::1")
		run(t, "ip", "-6", "route", "add", "fd67::2/128", "via", "fd00:9::1")
	})
	inside.Do(func() { run(t, "ip", "-6", "route", "add", "default", "via", "fd67::1") })
	cfg := config
	cfg.Encrypted, cfg.Secure = "gvwg", netip.MustParsePrefix("fd67::/64")
	cfg.VTEPs, cfg.Own = []netip.Addr{netip.MustParseAddr("fd67::2")}, []netip.Addr{netip.MustParseAddr("fd67::1")}
	var f *Filter
	set := func(c Config) {
		host.Do(func() {
			var err error
			if f == nil {
				if f, err = Open(slog.New(slog.DiscardHandler)); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Set(c); err != nil {
				t.Fatal(err)
			}
		})
	}
	check := func(what string, from *linktest.NS, addr, port string, udp int, want bool) {
		t.Helper()
		to := net.JoinHostPort(addr, port)
		if want {
			eventually(t, what, func() bool { return reaches(from, to, udp) })
		} else if reaches(from, to, udp) {
			t.Errorf("%s passes", what)
		}
	}
	plain := cfg
	plain.Encrypted, plain.Secure = "", netip.Prefix{}
	set(plain)
	if f.Strict("gvwg") {
		t.Error("strict without rules")
	}
	check("without the rules VXLAN by the wire is taken", wire, "fd67::1", "4789", 20, true)
	check("without the rules the host is a way", wire, "fd67::2", "4790", 20, true)

	set(cfg)
	if !f.Strict("gvwg") || f.Strict("") || f.Strict("other") {
		t.Error("not strict with rules")
	}
	check("VXLAN by the wire, inside", wire, "fd67::1", "4789", 20, false)
	check("VXLAN by the wire, to the underlay's address", wire, "fd00:9::1", "4789", 20, false)
	check("VXLAN by the wire, IPv4", wire, "10.9.0.1", "4789", 20, false)
	check("VXLAN by the wire, in fragments", wire, "10.9.0.1", "4789", 4000, false)
	check("VXLAN by the wire, in fragments of IPv6", wire, "fd67::1", "4789", 4000, false)
	check("others by the wire", wire, "10.9.0.1", "4790", 20, true)
	check("VXLAN by the device", inside, "fd67::1", "4789", 20, true)
	check("others by the device", inside, "fd67::1", "4790", 20, false)
	check("TCP by the device", inside, "fd67::1", "80", 0, false)
	check("VXLAN out by the wire", host, "10.9.0.2", "4789", 20, false)
	check("others out by the wire", host, "10.9.0.2", "4790", 20, true)
	check("a way into the device", wire, "fd67::2", "4790", 20, false)
	check("a way out of the device", inside, "fd00:9::2", "80", 0, false)

	// Others' NAT, which comes between the chain of what is sent and the way that it goes.
	nat := func(rule ...string) {
		host.Do(func() {
			run(t, "nft", "add table ip6 others; flush table ip6 others; add chain ip6 others out { type nat hook output priority -100; }; add chain ip6 others post { type nat hook postrouting priority 100; }")
			for _, r := range rule {
				run(t, "nft", "add rule ip6 others "+r)
			}
		})
	}
	elsewhere := "out ip6 daddr fd67::2 udp dport 4789 dnat to [fd00:9::2]:4790"
	set(plain)
	nat(elsewhere)
	check("without the rules VXLAN goes where NAT says", host, "fd67::2", "4789", 20, true)
	set(cfg)
	check("VXLAN where others' NAT says", host, "fd67::2", "4789", 20, false)
	nat(elsewhere, "post oifname eth0 masquerade")
	check("VXLAN where others' NAT says, in another name", host, "fd67::2", "4789", 20, false)
	host.Do(func() { run(t, "nft", "delete table ip6 others") })

	host.Do(func() {
		run(t, "ip", "link", "set", "gvwg", "down")
		run(t, "ip", "-6", "route", "add", "fd67::2/128", "via", "fd00:9::2")
	})
	wire.Do(func() { run(t, "ip", "addr", "add", "fd67::2/128", "dev", "lo") })
	check("another way to the hosts inside", host, "fd67::2", "80", 0, false)
	set(plain)
	check("another way without the rules", host, "fd67::2", "80", 0, true)
	host.Do(func() {
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
		f.Close()
	})
}
