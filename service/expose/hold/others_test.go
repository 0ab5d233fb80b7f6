package hold

import (
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/nft"
	"github.com/grapevine-net/grapevine/service/expose"
)

func run(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

// TestOthersKeep: a port that a rule of another program leads elsewhere, without a socket, is led there yet when it is exposed,
// and that is noticed.
func TestOthersKeep(t *testing.T) {
	host, outside := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, outside, []string{"192.0.2.1/24"}, []string{"192.0.2.9/24"})
	to := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(here, port) }
	var has table
	host.Do(func() {
		for port, says := range map[uint16]string{9000: "another program", 9001: "the replica"} {
			l, err := net.Listen("tcp", to(port).String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = io.WriteString(c, says)
					_ = c.Close()
				}
			}()
		}
		conn, err := nft.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		led := expose.Back{To: []netip.AddrPort{to(9001)}, Ready: []netip.AddrPort{to(9001)}}
		has = table{here: []netip.Addr{here}, ports: map[front]expose.Back{{expose.Port{Port: 443}, false}: led, {expose.Port{Port: 444}, false}: led}}
		if err := conn.Do(whole("gv0", has)); err != nil {
			t.Fatal(err)
		}
	})
	away := func() (found map[expose.Port]netip.AddrPort) {
		host.Do(func() { found = strayed(has, func(netip.Addr) bool { return false }) })
		return found
	}
	want := func(port uint16, who string) {
		t.Helper()
		outside.Do(func() {
			c, err := net.DialTimeout("tcp", to(port).String(), 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if got, err := io.ReadAll(c); string(got) != who {
				t.Errorf("port %d is answered by %q, want %q (%v)", port, got, who, err)
			}
		})
	}
	want(443, "the replica")
	if found := away(); len(found) > 0 {
		t.Errorf("before another program leads anything, connections went to %v", found)
	}
	host.Do(func() {
		run(t, "nft", "add table ip another; add chain ip another in { type nat hook prerouting priority -100; }; add rule ip another in tcp dport 443 redirect to :9000")
	})
	want(443, "another program")
	want(444, "the replica")
	// What it takes is found, by any rule: here one that leads all ports, which nobody would find by the port's number.
	host.Do(func() {
		run(t, "nft", "add rule ip another in ip saddr 192.0.2.0/24 tcp dport 444-60000 redirect to :9000")
	})
	want(444, "another program")
	if found := away(); len(found) != 2 || found[expose.Port{Port: 443}] != to(9000) || found[expose.Port{Port: 444}] != to(9000) {
		t.Errorf("connections went to %v, as far as is known", found)
	}
}

// TestEmptied: what somebody takes out of the rules, or of their sets, is there again after a glance.
func TestEmptied(t *testing.T) {
	b := newBefore(t)
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: here.AsSlice(), Mask: net.CIDRMask(32, 32)}})
	}
	if err != nil {
		t.Fatal(err)
	}
	b.put(cluster.Endpoint{ID: "web", Network: "blue", Host: b.state.Self(), Name: "web", Addrs: []netip.Addr{a}})
	b.room = New(Config{Self: b.state.Self(), Gateway: "gv0", Source: b, Heed: expose.Services, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(b.room.held.Close)
	conn, err := nft.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, harm := range []string{"", "flush map inet " + tableName + " ports4", "flush set inet " + tableName + " here4", "flush chain inet " + tableName + " arrives", "flush ruleset"} {
		if harm != "" {
			run(t, "nft", harm)
		}
		b.after(glance)
		handles, err := conn.Handles(nft.Table{Name: tableName, Family: nft.Inet})
		if !full(conn, content("gv0", b.room.has)) || len(handles) != rules || len(b.room.has.ports) != 2 || len(b.room.has.here) != 1 {
			t.Errorf("after %q: %d rules of %+v (%v)", harm, len(handles), b.room.has, err)
		}
	}
}
