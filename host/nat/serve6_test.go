package nat

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestServe6: what is served leaves by its IPv6 address, with either iptables, and its answers come back.
func TestServe6(t *testing.T) {
	const web, served = "fd00:77::2", "2001:db8:9::25"
	for _, kind := range []string{"nft", "legacy"} {
		t.Run(kind, func(t *testing.T) {
			useBackend(t, kind)
			inside, host, away := linktest.New(t), linktest.New(t), linktest.New(t)
			linktest.Wire(t, "gv0", host, inside, nil, nil)
			linktest.Wire(t, "eth0", host, away, nil, nil)
			inside.Do(func() {
				run(t, "ip", "addr", "add", web+"/64", "dev", "gv0", "nodad")
				run(t, "ip", "route", "add", "default", "via", "fd00:77::1")
			})
			away.Do(func() { run(t, "ip", "addr", "add", "2001:db8:9::2/64", "dev", "eth0", "nodad") })
			n := New()
			host.Do(func() {
				run(t, "ip", "addr", "add", "fd00:77::1/64", "dev", "gv0", "nodad")
				run(t, "ip", "addr", "add", "2001:db8:9::1/64", "dev", "eth0", "nodad")
				run(t, "ip", "addr", "add", served+"/128", "dev", "eth0", "nodad", "preferred_lft", "0") // as host/lan adds it: masquerading would take it otherwise
				run(t, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
				if err := n.Serve([]Source{{netip.MustParsePrefix("fd00:77::/64"), netip.MustParseAddr(served)}}); err != nil {
					t.Fatal(err)
				}
				if err := n.Set(t.Context(), Config{Interface: "gv0", CIDRs: []netip.Prefix{netip.MustParsePrefix("fd00:77::/48")}}); err != nil {
					t.Fatal(err)
				}
			})
			seen := func(want string) {
				t.Helper()
				var far net.PacketConn
				var near net.Conn
				var err error
				away.Do(func() { far, err = net.ListenPacket("udp6", ":99") })
				if err != nil {
					t.Fatal(err)
				}
				defer far.Close()
				inside.Do(func() { near, err = net.Dial("udp6", "[2001:db8:9::2]:99") })
				if err != nil {
					t.Fatal(err)
				}
				defer near.Close()
				b := make([]byte, 100)
				for _, c := range []interface{ SetDeadline(time.Time) error }{far, near} {
					_ = c.SetDeadline(time.Now().Add(10 * time.Second))
				}
				_, _ = near.Write([]byte("x"))
				_, from, err := far.ReadFrom(b)
				if err != nil {
					t.Fatal(err)
				}
				if got := from.(*net.UDPAddr).IP.String(); got != want {
					t.Errorf("it leaves as %s, want %s", got, want)
				}
				_, _ = far.WriteTo([]byte("y"), from)
				if _, err := near.Read(b); err != nil {
					t.Errorf("no answer comes back: %v", err)
				}
			}
			seen(served)
			host.Do(func() {
				if err := n.Serve(nil); err != nil {
					t.Fatal(err)
				}
			})
			seen("2001:db8:9::1")
		})
	}
}
