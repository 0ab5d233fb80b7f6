package filter

import (
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestClaimed: what comes from elsewhere with an address of the cluster's gets neither into a container, by a published port
// or at its own address, nor to the host, and is counted. What a container says by another network that it is on gets to
// the host, and who has an address of his own gets everywhere, as do those whose range this host has left to others.
func TestClaimed(t *testing.T) {
	for name, open := range map[string]func() (*Filter, error){"nftables": openFilter, "iptables": openLegacyFilter} {
		t.Run(name, func(t *testing.T) { claimedBy(t, newWorld(t, open)) })
	}
}

func claimedBy(t *testing.T, w *world) {
	w.host.Do(func() {
		run(t, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0")
		run(t, "iptables", "-t", "nat", "-A", "PREROUTING", "-p", "udp", "-d", "10.9.0.1", "--dport", "8085", "-j", "DNAT", "--to", w.addr["web"]+":4000")
		run(t, "ip6tables", "-t", "nat", "-A", "PREROUTING", "-p", "udp", "-d", "fd00:9::1", "--dport", "8085", "-j", "DNAT", "--to", "["+w.addr["web/6"]+"]:4000")
	})
	forged := []string{"10.128.0.9", "240.0.0.2", "fd00:128::9", "fd00:128::1", "fd00:240::2", "fd00:240::1"}
	for _, ns := range []*linktest.NS{w.at["away"], w.at["plain"], w.at["vm"]} {
		ns.Do(func() {
			for _, a := range append(forged, "10.66.0.9", "fd00:66::9", "fd00:9::77") {
				bits := "/32"
				if netip.MustParseAddr(a).Is6() {
					bits = "/128"
				}
				_ = exec.Command("ip", "addr", "add", a+bits, "dev", "lo", "nodad").Run() // nodad is of IPv6
			}
		})
	}
	web, self := w.hears(w.at["web"]), w.hears(w.host)
	set := func(claimed ...string) {
		t.Helper()
		cfg := config
		for _, c := range claimed {
			cfg.Claimed = append(cfg.Claimed, netip.MustParsePrefix(c))
		}
		w.host.Do(func() {
			if err := w.filter.Set(cfg); err != nil {
				t.Fatal(err)
			}
		})
	}
	counted := func() (n uint64) {
		w.host.Do(func() {
			list, err := w.filter.Refused()
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range list {
				if c.Chain == ClaimedIn || c.Chain == ClaimedForward {
					n += c.Packets
				}
			}
		})
		return n
	}
	check := func(by, from, port string, at net.PacketConn, want bool) {
		t.Helper()
		to := "10.9.0.1"
		if netip.MustParseAddr(from).Is6() {
			to = "fd00:9::1"
		}
		before := counted()
		if got := w.arrives(by, from, net.JoinHostPort(to, port), at, want); got != want {
			t.Errorf("what %s sends as %s to port %s arrives: %v", by, from, port, got)
		}
		if now := counted(); (now > before) == want {
			t.Errorf("of what %s sends as %s to port %s, %d packets are counted", by, from, port, now-before)
		}
	}
	for _, by := range []string{"away", "vm", "plain"} {
		w.arrives(by, w.addr[by], "10.9.0.1:8085", web, true) // who knows the other's MAC does not ask for it in a false name
		w.arrives(by, w.addr[by+"/6"], "[fd00:9::1]:8085", web, true)
	}
	set()
	for _, from := range forged {
		check("away", from, "8085", web, from != "fd00:128::1" && from != "fd00:240::1") // which are this host's own
		check("away", from, "4000", self, true)
	}
	all := []string{"10.128.0.0/22", "fd00:128::/64", "240.0.0.0/5", "fd00:240::/32", "10.66.0.0/24", "fd00:66::/64"}
	set(all...)
	for _, from := range append(forged, "10.66.0.9", "fd00:66::9") {
		check("away", from, "8085", web, false)
		check("away", from, "4000", self, false)
		check("plain", from, "8085", web, false)
		check("plain", from, "4000", self, true)
	}
	check("vm", "fd00:128::1", "8085", web, false)
	for _, by := range []string{"away", "plain"} {
		check(by, "fd00:9::77", "8085", web, false) // an address of the host's own
	}
	for _, by := range []string{"away", "vm", "plain"} {
		for _, family := range []string{"", "/6"} {
			check(by, w.addr[by+family], "8085", web, true)
			check(by, w.addr[by+family], "4000", self, true)
		}
	}
	w.check(cell{"host", "web", 80, 0, true}, cell{"web", "away", 80, 0, true}, cell{"web", "host", 80, 0, true}, cell{"other", "web", 80, 0, true}, cell{"away", "web", 80, 0, false})
	// Something else is there by now, which the cluster leaves alone; what was counted stays so.
	before := counted()
	set(all[:4]...)
	for _, from := range []string{"10.66.0.9", "fd00:66::9"} {
		check("away", from, "8085", web, true)
		check("away", from, "4000", self, true)
	}
	if now := counted(); now != before {
		t.Errorf("after the rules changed %d packets are counted, not %d", now, before)
	}
}

// hears is who takes datagrams at port 4000.
func (w *world) hears(ns *linktest.NS) (c net.PacketConn) {
	var err error
	ns.Do(func() { c, err = net.ListenPacket("udp", ":4000") })
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

// sent is the number of the last datagram of arrives.
var sent byte

// arrives reports whether a datagram gets there. Behind one that is not to comes one that has the sender's own address: when
// that is there, the other one is lost. They are sent again, since the machine may be busy.
func (w *world) arrives(by, from, to string, at net.PacketConn, want bool) bool {
	w.t.Helper()
	own := w.addr[by]
	if netip.MustParseAddr(from).Is6() {
		own = w.addr[by+"/6"]
	}
	send := func(from string) byte {
		sent++
		w.at[by].Do(func() {
			c, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}).Dial("udp", to)
			if err == nil {
				_, err = c.Write([]byte{sent})
				c.Close()
			}
			if err != nil {
				w.t.Fatal(err)
			}
		})
		return sent
	}
	for range 20 {
		it, after := send(from), byte(0)
		if !want {
			after = send(own)
		}
		_ = at.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		for got := make([]byte, 1); ; { // those that come late are of before
			if _, _, err := at.ReadFrom(got); err != nil {
				break
			}
			switch {
			case got[0] == it:
				return true
			case !want && got[0] == after:
				return false
			}
		}
	}
	if !want {
		w.t.Fatalf("what %s sends honestly to %s does not arrive: nothing is shown", by, to)
	}
	return false
}
