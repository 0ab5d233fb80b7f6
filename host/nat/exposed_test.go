package nat

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// every returns each step-th port.
func every(from, step int) (list []uint16) {
	for p := from; p < 1<<16; p += step {
		list = append(list, uint16(p))
	}
	return list
}

// TestGaps: no gap has an exposed port in it, whatever is exposed; others' ports stay what they are.
func TestGaps(t *testing.T) {
	for _, c := range []struct {
		exposed         []uint16
		n               int
		want, otherwise string // the first two gaps, and that of all else
	}{
		{[]uint16{7008}, 3, "[7009-65535 1024-7007]", "7009-65535"},
		{[]uint16{53, 443, 443, 8080, 8082}, 4, "[8083-65535 1024-8079]", "8083-65535"},
		{[]uint16{1, 1023, 1024, 65535}, 2, "[1025-65534 2-1022]", "1025-65534"},
		{[]uint16{40000, 65535}, 3, "[1024-39999 40001-65534]", "1024-39999"},
		{every(1000, 300), maxGaps, "[1-999 1301-1599]", "1301-1599"},
		{every(64, 64), maxGaps, "[1-63 65-127]", "1025-1087"}, // none is wide
		{every(1024, 20), 1, "[1-1023]", "1025-1043"},          // nobody becomes privileged
		{every(1024, 1), 1, "[1-1023]", "1-1023"},              // but where nothing else is left
		{append(every(1, 1)[:4999], every(5001, 1)...), 1, "[5000-5000]", "5000-5000"},
		{every(1, 1), 0, "[]", "0-0"},
	} {
		own, rest := gaps(c.exposed)
		if got := fmt.Sprint(own[:min(len(own), 2)]); got != c.want || len(own) != c.n || rest.String() != c.otherwise {
			t.Errorf("%d from %v: %d gaps, first %s, and %v, want %d, %s, %s", len(c.exposed), c.exposed[0], len(own), got, rest, c.n, c.want, c.otherwise)
		}
		for _, g := range append(own, rest) {
			for _, p := range c.exposed {
				if p >= g.from && p <= g.to {
					t.Errorf("%d is exposed, and in %v", p, g)
				}
			}
		}
	}
}

// TestExposedShadow: a container that sends from an exposed port leaves by another one, and hears its answers; what its
// client sends to the exposed port is not for it. Other ports stay. So it is of what leaves by this host's address and
// by another one, of what began before the port was exposed, though the rules failed at first, and where another program
// masquerades before. If every port is exposed, nothing leaves.
func TestExposedShadow(t *testing.T) {
	for _, kind := range []string{"nft", "legacy"} {
		for _, v6 := range []bool{false, true} {
			for _, served := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s v6=%v served=%v", kind, v6, served), func(t *testing.T) {
					useBackend(t, kind)
					exposedShadow(t, v6, served)
				})
			}
		}
	}
}

func exposedShadow(t *testing.T, v6, served bool) {
	const exposed, other, client = 7008, 123, 9999
	inner, far := netip.MustParsePrefix("10.128.0.2/22"), netip.MustParsePrefix("10.9.0.2/24")
	if v6 {
		inner, far = netip.MustParsePrefix("fd00:77::2/64"), netip.MustParsePrefix("2001:db8:9::2/64")
	}
	gw, host := inner.Addr().Prev(), far.Addr().Prev()
	inside, ns, away := linktest.New(t), linktest.New(t), linktest.New(t)
	linktest.Wire(t, "gv0", ns, inside, nil, nil)
	linktest.Wire(t, "eth0", ns, away, nil, nil)
	add := func(a netip.Addr, bits int, dev string) {
		args := []string{"ip", "addr", "add", netip.PrefixFrom(a, bits).String(), "dev", dev}
		if v6 {
			args = append(args, "nodad")
		}
		run(t, args...)
	}
	inside.Do(func() {
		add(inner.Addr(), inner.Bits(), "gv0")
		add(inner.Addr().Next(), inner.Bits(), "gv0") // another container
		run(t, "ip", "route", "add", "default", "via", gw.String())
	})
	away.Do(func() { add(far.Addr(), far.Bits(), "eth0") })
	cfg, n := Config{Interface: "gv0", CIDRs: []netip.Prefix{inner.Masked()}}, New()
	set := func() {
		t.Helper()
		ns.Do(func() {
			if err := n.Set(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		})
	}
	ns.Do(func() {
		add(gw, inner.Bits(), "gv0")
		add(host, far.Bits(), "eth0")
		run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
		if served {
			if err := n.Serve([]Source{{inner.Masked(), host}}); err != nil {
				t.Fatal(err)
			}
		}
	})
	set()
	open := func(ns *linktest.NS, at string, port int) (p net.PacketConn) {
		t.Helper()
		var err error
		ns.Do(func() { p, err = net.ListenPacket("udp", net.JoinHostPort(at, strconv.Itoa(port))) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	hear := func(at net.PacketConn, wait time.Duration) (what string, from netip.AddrPort) {
		t.Helper()
		b := make([]byte, 100)
		_ = at.SetReadDeadline(time.Now().Add(wait))
		n, a, err := at.ReadFrom(b)
		if err != nil {
			return err.Error(), from
		}
		u := a.(*net.UDPAddr).AddrPort()
		return string(b[:n]), netip.AddrPortFrom(u.Addr().Unmap(), u.Port())
	}
	send := func(from net.PacketConn, to netip.AddrPort, what string) {
		t.Helper()
		if _, err := from.WriteTo([]byte(what), net.UDPAddrFromAddrPort(to)); err != nil {
			t.Fatal(err)
		}
	}
	at := netip.AddrPortFrom(far.Addr(), client)
	// leaves returns the port by which it leaves, and hears the answer.
	leaves := func(c, victim net.PacketConn) uint16 {
		t.Helper()
		send(c, at, "I am the exposed port")
		what, from := hear(victim, 10*time.Second)
		if from.Addr() != host {
			t.Fatalf("it leaves as %v (%s)", from, what)
		}
		send(victim, from, "answer")
		if what, _ := hear(c, 10*time.Second); what != "answer" {
			t.Fatalf("by port %d no answer comes back: %s", from.Port(), what)
		}
		return from.Port()
	}
	service, ntp, second, victim := open(ns, "", exposed), open(inside, inner.Addr().String(), other), open(inside, inner.Addr().Next().String(), other), open(away, "", client)
	shadow := open(inside, "", exposed)
	if got := leaves(shadow, victim); got != exposed {
		t.Fatalf("while nothing is exposed it leaves by port %d: nothing is shown", got)
	}
	cfg.Exposed = []uint16{53, 170, exposed}
	ns.Do(func() {
		iptables := "iptables"
		if v6 {
			iptables = "ip6tables"
		}
		run(t, iptables, "-t", "nat", "-I", "POSTROUTING", "-o", "eth0", "-j", "MASQUERADE") // another program's
		path := os.Getenv("PATH")
		t.Setenv("PATH", t.TempDir())
		err := n.Set(t.Context(), cfg)
		t.Setenv("PATH", path)
		if err == nil {
			t.Fatal("without iptables all is well")
		}
	})
	set()
	if got := leaves(shadow, victim); got == exposed {
		t.Error("it leaves by the exposed port")
	}
	if got := leaves(ntp, victim); got != other {
		t.Errorf("what is sent from port %d leaves by port %d", other, got)
	}
	if got := leaves(second, victim); got <= 53 || got >= 170 || got == other {
		t.Errorf("what a second container sends from port %d leaves by port %d, beyond the exposed ones about it", other, got)
	}
	send(victim, netip.AddrPortFrom(host, exposed), "for the service")
	if what, from := hear(service, 10*time.Second); what != "for the service" || from != at {
		t.Errorf("the exposed port has heard %q of %v", what, from)
	}

	same := func() {
		t.Helper()
		again := New() // the rules that are there are what an agent that starts wants
		before, err := n.fingerprint()
		var err2 error
		if served {
			err2 = again.Serve([]Source{{inner.Masked(), host}})
		}
		err3 := again.Set(t.Context(), cfg)
		now, err4 := n.fingerprint()
		if err := errors.Join(err, err2, err3, err4); err != nil {
			t.Fatal(err)
		}
		if now != before {
			t.Error("rules that were right were written again")
		}
	}
	ns.Do(same)
	cfg.Exposed = every(1, 1)
	set()
	ns.Do(same)
	send(shadow, at, "by which port?")
	if what, from := hear(victim, 300*time.Millisecond); from.IsValid() {
		t.Errorf("every port is exposed, and %q comes by %v", what, from)
	}
	cfg.Exposed = nil
	set()
	ns.Do(func() {
		for _, cmd := range []string{"iptables-save", "ip6tables-save"} {
			if got := run(t, cmd); strings.Contains(got, "--sport") {
				t.Errorf("exposed no more, and there is\n%s", got)
			}
		}
	})
}
