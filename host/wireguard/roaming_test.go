package wireguard

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// move gives an end another address in the underlay, in the place of the one it had.
func (e *end) move(from, to string) {
	e.Do(func() {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			e.t.Fatal(err)
		}
		old, err := netlink.ParseAddr(from)
		if err == nil {
			err = netlink.AddrDel(l, old)
		}
		if err != nil {
			e.t.Fatal(err)
		}
		linktest.Up(e.t, "eth0", to)
	})
}

// stays is ensure, of a peer whose address is said to be the one it had, and nothing is to be changed by it.
func (e *end) stays(when string, peer *end) {
	e.t.Helper()
	if _, c := e.ensure(peer); len(c.Set)+len(c.Remove) > 0 {
		e.t.Errorf("%s: what WireGuard has found is set back: %+v", when, c)
	}
	if !e.says(peer) {
		e.t.Errorf("%s: it is not heard", when)
	}
}

func (e *end) sayThatItIs(peer *end) {
	at := netip.MustParseAddrPort(fmt.Sprintf("192.0.2.%d:%d", peer.device.Addr.As16()[15], peer.port))
	e.said = map[Key]netip.AddrPort{peer.key.Public(): at}
}

// TestRoaming: a host that has another address all at once is followed by who hears it, before any record says so, and what is
// said of it meanwhile sets nothing back.
func TestRoaming(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	linktest.Wire(t, "eth0", a.NS, b.NS, []string{"192.0.2.1/24"}, []string{"192.0.2.2/24"})
	a.ensure(b)
	b.ensure(a)
	a.sayThatItIs(b)
	if !a.says(b) || !b.says(a) {
		t.Fatal("the two ends do not hear each other")
	}
	b.move("192.0.2.2/24", "192.0.2.9/24")
	if !b.says(a) {
		t.Fatal("a host that has moved is not heard")
	}
	a.stays("after it has moved", b)
}

// TestNAT: a host behind a router that has its own address for it, and for its port, is reached by who hears it, as long as the
// router remembers.
func TestNAT(t *testing.T) {
	a, b, router := newEnd(t, 1), newEnd(t, 2), newEnd(t, 3)
	linktest.Wire(t, "eth0", a.NS, router.NS, []string{"192.0.2.1/24"}, []string{"192.0.2.2/24"})
	linktest.Wire(t, "eth1", b.NS, router.NS, []string{"10.9.0.2/24"}, []string{"10.9.0.1/24"})
	router.run("nft", "add table ip nat; add chain ip nat out { type nat hook postrouting priority 100; }; add rule ip nat out oifname eth0 udp sport 7948 masquerade to :40000-40010")
	router.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
	b.run("ip", "route", "add", "default", "via", "10.9.0.1")
	a.ensure(b) // where the router is, and nobody listens
	b.ensure(a)
	a.sayThatItIs(b)
	if !b.says(a) {
		t.Fatal("a host behind NAT is not heard")
	}
	var at netip.AddrPort
	a.Do(func() {
		s, err := a.device.State(Userspace)
		if err == nil && len(s.Peers) == 1 {
			at = s.Peers[0].Endpoint
		}
	})
	if at.IsValid() && at.Port() < 40000 {
		t.Errorf("it is found at %s", at)
	}
	a.stays("behind NAT", b)
	time.Sleep(100 * time.Millisecond)
	a.stays("and later", b)
}
