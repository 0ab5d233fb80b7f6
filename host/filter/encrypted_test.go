package filter

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

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

	// The device that stands in while keys change is that as well.
	turning := cfg
	turning.Encrypted, turning.Second = "former", "gvwg"
	set(turning)
	check("VXLAN by the wire, while keys change", wire, "fd67::1", "4789", 20, false)
	check("VXLAN by the second device", inside, "fd67::1", "4789", 20, true)
	check("others by the second device", inside, "fd67::1", "4790", 20, false)
	check("VXLAN out by the wire, while keys change", host, "10.9.0.2", "4789", 20, false)
	check("a way into the second device", wire, "fd67::2", "4790", 20, false)
	set(cfg)

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

// What is for containers leaves by gv0 or not at all, be there a route or none, and what claims to be of containers has
// come by it.
func TestEncryptedGateway(t *testing.T) {
	host, wire, web, plain := linktest.New(t), linktest.New(t), linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, wire, []string{"10.9.0.1/24", "fd00:9::1/64"}, []string{"10.9.0.2/24", "fd00:9::2/64"})
	behind := func(bridge, name string, ns *linktest.NS, at, of []string, via ...string) {
		linktest.Wire(t, name, host, ns, nil, of)
		host.Do(func() {
			run(t, "ip", "link", "add", bridge, "type", "bridge")
			linktest.Up(t, bridge, at...)
			run(t, "ip", "link", "set", name, "master", bridge)
		})
		for _, v := range via {
			ns.Do(func() { run(t, "ip", "route", "add", "default", "via", v) })
		}
	}
	behind("gv0", "web", web, []string{"10.77.0.1/24", "fd00:77::1/64"}, []string{"10.77.0.2/24", "fd00:77::2/64"}, "10.77.0.1", "fd00:77::1")
	behind(plainBridge, "plain", plain, []string{"10.7.0.1/24", "fd00:7::1/64"}, []string{"10.7.0.2/24", "fd00:7::2/64"}, "10.7.0.1", "fd00:7::1")
	host.Do(func() {
		run(t, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.eth0.rp_filter=0", "net.ipv4.conf."+plainBridge+".rp_filter=0")
		run(t, "ip", "route", "add", "default", "via", "10.9.0.2")
		run(t, "ip", "route", "add", "default", "via", "fd00:9::2")
	})
	wire.Do(func() { // a thief, the containers of other hosts, and a machine in the cluster's range
		for _, a := range []string{"10.77.0.3/32", "10.78.0.3/32", "10.79.0.3/32", "fd00:77::3/128", "fd00:78::3/128", "fd00:79::3/128"} {
			run(t, "ip", "addr", "add", a, "dev", "lo")
		}
		for to, via := range map[string]string{"10.7.0.0/24": "10.9.0.1", "fd00:7::/64": "fd00:9::1", "10.77.0.0/24": "10.9.0.1", "fd00:77::/64": "fd00:9::1"} {
			run(t, "ip", "route", "add", to, "via", via)
		}
	})
	serve(t, wire)
	serve(t, web)

	cfg := config
	cfg.Cluster = []netip.Prefix{netip.MustParsePrefix("10.77.0.0/24"), netip.MustParsePrefix("10.78.0.0/24"), netip.MustParsePrefix("fd00:77::/64"), netip.MustParsePrefix("fd00:78::/64")}
	cfg.Ranges = []netip.Prefix{netip.MustParsePrefix("10.76.0.0/14"), netip.MustParsePrefix("fd00:78::/31")}
	var f *Filter
	set := func(encrypted string) {
		host.Do(func() {
			var err error
			if f == nil {
				if f, err = Open(slog.New(slog.DiscardHandler)); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(f.Close)
			}
			cfg.Encrypted, cfg.Secure = encrypted, netip.Prefix{}
			if encrypted != "" {
				cfg.Secure = netip.MustParsePrefix("fd67::/64")
			}
			if err := f.Set(cfg); err != nil {
				t.Fatal(err)
			}
		})
	}
	passes := func(what string, passes func() bool, want bool) {
		t.Helper()
		if want {
			eventually(t, what, passes)
		} else if passes() {
			t.Errorf("%s passes", what)
		}
	}
	reach := func(addr string) func() bool {
		return func() bool { return reaches(host, net.JoinHostPort(addr, "80"), 0) }
	}
	claim := func(from, to string, ns *linktest.NS) func() bool {
		var l net.PacketConn
		ns.Do(func() {
			var err error
			if l, err = net.ListenPacket("udp", net.JoinHostPort(to, "0")); err != nil {
				t.Fatal(err)
			}
		})
		t.Cleanup(func() { l.Close() })
		sent := byte(0)
		return func() bool {
			sent++
			wire.Do(func() {
				d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
				if c, err := d.Dial("udp", l.LocalAddr().String()); err != nil {
					t.Error(err)
				} else {
					_, _ = c.Write([]byte{sent})
					c.Close()
				}
			})
			_ = l.SetReadDeadline(time.Now().Add(400 * time.Millisecond))
			for got := make([]byte, 1); ; { // those that come late are of before
				if _, _, err := l.ReadFrom(got); err != nil || got[0] == sent {
					return err == nil
				}
			}
		}
	}
	type claimed struct {
		what    string
		arrives func() bool
	}
	var claims []claimed
	for _, from := range []string{"10.77.0.3", "10.78.0.3"} {
		claims = append(claims, claimed{from + " to the host", claim(from, "10.9.0.1", host)}, claimed{from + " to a container of Docker's", claim(from, "10.7.0.2", plain)})
	}
	for _, from := range []string{"fd00:77::3", "fd00:78::3"} {
		claims = append(claims, claimed{from + " to the host", claim(from, "fd00:9::1", host)}, claimed{from + " to a container of Docker's", claim(from, "fd00:7::2", plain)})
	}
	honest := []claimed{{"the wire's own to the host", claim("10.9.0.2", "10.9.0.1", host)}, {"the wire's own to a container of Docker's", claim("fd00:9::2", "fd00:7::2", plain)},
		{"a machine in the cluster's range to the host", claim("10.79.0.3", "10.9.0.1", host)}, {"one of IPv6 to the host", claim("fd00:79::3", "fd00:9::1", host)}}
	check := func(rules string, want bool) {
		t.Helper()
		for _, a := range []string{"10.78.0.3", "fd00:78::3"} {
			passes("another way to "+a+rules, reach(a), want)
		}
		for _, a := range []string{"10.79.0.3", "fd00:79::3"} {
			passes("the host to "+a+rules, reach(a), true)
			passes("a container to "+a+rules, func() bool { return reaches(web, net.JoinHostPort(a, "80"), 0) }, want)
		}
		for _, c := range claims {
			passes(c.what+rules, c.arrives, want)
		}
		for _, c := range honest {
			passes(c.what+rules, c.arrives, true)
		}
		for _, a := range []string{"10.77.0.2", "fd00:77::2", "10.9.0.2", "fd00:9::2"} {
			passes(a+rules, reach(a), true)
		}
	}
	set("")
	check(", without encryption", true)
	set("gvwg")
	check(", with encryption", false)

	// What was dropped is counted, also past rules that are made anew.
	counted := func() (n uint64) {
		host.Do(func() {
			list, err := f.Refused()
			if err != nil {
				t.Fatal(err)
			}
			away := false
			for _, c := range list {
				away = away || c.Chain == "encrypted-away" && c.Packets > 0
				if c.Chain == "encrypted-in" && c.Comment == "nobody elsewhere sends in a container's name" {
					n += c.Packets
				}
			}
			if !away {
				t.Errorf("what the container sent to the cluster's range is not counted as what leaves: %v", list)
			}
		})
		return n
	}
	was := counted()
	if was < 4 { // two of each family, to the host
		t.Errorf("%d forged packets are counted", was)
	}
	cfg.Ports = append(cfg.Ports, 4999)
	set("gvwg")
	if now := counted(); now < was {
		t.Errorf("after rules were made anew %d are counted, not %d", now, was)
	}

	// Without gv0 the kernel takes another way to what was behind it.
	wire.Do(func() {
		run(t, "ip", "addr", "add", "10.77.0.2/32", "dev", "lo")
		run(t, "ip", "addr", "add", "fd00:77::2/128", "dev", "lo")
	})
	host.Do(func() { run(t, "ip", "link", "del", "gv0") })
	for _, a := range []string{"10.77.0.2", "fd00:77::2"} {
		passes("without gv0 "+a, reach(a), false)
	}
	set("")
	for _, a := range []string{"10.77.0.2", "fd00:77::2"} {
		passes("without gv0 and encryption "+a, reach(a), true)
	}
}

// Where only encrypted networks are, VXLAN in the clear passes as ever, but none that claims an address inside, nor to one.
func TestPartlyEncrypted(t *testing.T) {
	host, wire, inside := linktest.New(t), linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, wire, []string{"10.9.0.1/24", "fd00:9::1/64"}, []string{"10.9.0.2/24", "fd00:9::2/64"})
	linktest.Wire(t, "gvwg", host, inside, []string{"fd67::1/64"}, []string{"fd67::2/64"})
	serve(t, host, "[fd67::1]", "[fd00:9::1]", "10.9.0.1")
	serve(t, wire)
	wire.Do(func() {
		linktest.Up(t, "lo", "fd67::9/128")
		run(t, "ip", "-6", "route", "add", "fd67::1/128", "via", "fd00:9::1", "src", "fd67::9")
	})
	host.Do(func() { run(t, "ip", "-6", "route", "add", "fd67::9/128", "via", "fd00:9::2") })
	cfg := config
	cfg.Encrypted, cfg.Secure, cfg.Partly = "gvwg", netip.MustParsePrefix("fd67::/64"), true
	cfg.VTEPs, cfg.Own = parse("fd67::9", "fd67::2", "10.9.0.2", "fd00:9::2"), parse("fd67::1", "10.9.0.1", "fd00:9::1")
	host.Do(func() {
		f, err := Open(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		open := cfg
		open.Encrypted, open.Secure = "", netip.Prefix{}
		for _, rules := range []Config{open, cfg} {
			if err := f.Set(rules); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				what string
				from *linktest.NS
				to   string
				udp  int
				want bool
			}{
				{"VXLAN in the clear", wire, "10.9.0.1:4789", 20, true},
				{"VXLAN in the clear by IPv6", wire, "[fd00:9::1]:4789", 20, true},
				{"VXLAN in the clear out", host, "10.9.0.2:4789", 20, true},
				{"VXLAN by the device", inside, "[fd67::1]:4789", 20, true},
				{"VXLAN in the clear that claims an address inside", wire, "[fd67::1]:4789", 20, rules.Encrypted == ""},
				{"it, in fragments", wire, "[fd67::1]:4789", 4000, rules.Encrypted == ""},
				{"others by the device", inside, "[fd67::1]:4790", 20, rules.Encrypted == ""},
				{"what this host tells itself, as the kernel does of a packet that is too big", host, "[fd67::1]:4790", 20, true},
				{"VXLAN that it sends itself", host, "[fd67::1]:4789", 20, rules.Encrypted == ""},
			} {
				if c.want {
					eventually(t, c.what, func() bool { return reaches(c.from, c.to, c.udp) })
				} else if reaches(c.from, c.to, c.udp) {
					t.Errorf("%s passes", c.what)
				}
			}
		}
		if !f.Strict("gvwg") {
			t.Error("it is not strict")
		}
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
	})
}

func parse(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}
