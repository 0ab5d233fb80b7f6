package nat

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestServe: what is served leaves by its address from before the first rule that masquerades, whether this host has
// it or not; a Set in between keeps it, and it goes when it is served no more.
func TestServe(t *testing.T) {
	linktest.New(t).Do(func() {
		n := New()
		served := []Source{{netip.MustParsePrefix("10.128.4.0/22"), netip.MustParseAddr("192.0.2.25")}}
		if err := n.Serve(served); err != nil {
			t.Fatal(err)
		}
		cfg := Config{Interface: "gv0", CIDRs: []netip.Prefix{v4}, Sources: []Source{{served[0].Subnet, netip.MustParseAddr("127.0.0.1")}}}
		for range 2 {
			if err := n.Set(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			want := "-N " + Postrouting + "\n-A " + Postrouting + " -s 10.128.4.0/22 ! -o gv0 -j SNAT --to-source 192.0.2.25\n"
			if got := lines(t, "iptables", "nat", Postrouting); !strings.HasPrefix(got, want) {
				t.Errorf("rules\n%s, want first\n%s", got, want)
			}
			want = "-N " + Forward + "\n-A " + Forward + " -s 10.128.4.0/22 -i gv0 ! -o gv0 -m conntrack --ctstate INVALID -j DROP\n"
			if got := lines(t, "iptables", "filter", Forward); !strings.HasPrefix(got, want) {
				t.Errorf("rules\n%s, want first\n%s", got, want)
			}
			cfg.Internal = []netip.Prefix{netip.MustParsePrefix("10.128.8.0/22")}
		}
		if err := n.Serve(nil); err != nil {
			t.Fatal(err)
		}
		for table, chain := range map[string]string{"nat": Postrouting, "filter": Forward} {
			if got := lines(t, "iptables", table, chain); strings.Contains(got, "192.0.2.25") || strings.Contains(got, "INVALID") {
				t.Errorf("served no more, and there is\n%s", got)
			}
		}
	})
}

// TestServeRepaired: what began while another program's rules were first, or while ours were not there, leaves by its
// address after the repair, and whom the host itself serves goes on.
func TestServeRepaired(t *testing.T) {
	for _, kind := range []string{"nft", "legacy"} {
		t.Run(kind, func(t *testing.T) {
			useBackend(t, kind)
			const served = "10.9.0.25"
			w := newWorld(t)
			w.leaveBy(served)
			var local, remote net.PacketConn
			var err, err2 error
			w.host.Do(func() { local, err = net.ListenPacket("udp4", gateway4.Addr().String()+":99") })
			w.away.Do(func() { remote, err2 = net.ListenPacket("udp4", ":99") })
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			defer local.Close()
			defer remote.Close()
			seen := func(at net.PacketConn) string {
				t.Helper()
				_ = at.SetReadDeadline(time.Now().Add(5 * time.Second))
				_, from, err := at.ReadFrom(make([]byte, 100))
				if err != nil {
					t.Fatal(err)
				}
				return from.(*net.UDPAddr).IP.String()
			}
			begin := func(to string) net.Conn {
				var c net.Conn
				w.web.Do(func() { c, err = net.Dial("udp4", to) })
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				return c
			}
			for disturb, other := range map[string]string{"-I POSTROUTING -o eth0 -j MASQUERADE": hostAddr, "-F": webAddr} {
				w.host.Do(func() { run(t, append([]string{"iptables", "-t", "nat"}, strings.Fields(disturb)...)...) })
				out, in := begin(awayAddr+":99"), begin(gateway4.Addr().String()+":99")
				_, _ = out.Write([]byte("x"))
				_, _ = in.Write([]byte("x"))
				if got := seen(remote); got != other {
					t.Fatalf("%s: it leaves as %s, not as %s: nothing is disturbed", disturb, got, other)
				}
				seen(local)
				w.host.Do(func() {
					if err := w.nat.restore(); err != nil {
						t.Fatal(err)
					}
				})
				_, _ = out.Write([]byte("x"))
				if got := seen(remote); got != served {
					t.Errorf("after %s and its repair it leaves as %s", disturb, got)
				}
				_, _ = in.Write([]byte("x"))
				if got := seen(local); got != webAddr {
					t.Errorf("the host sees %s", got)
				}
			}
			w.host.Do(func() {
				before, _ := w.nat.fingerprint()
				if err := w.nat.restore(); err != nil {
					t.Fatal(err)
				}
				if now, _ := w.nat.fingerprint(); now != before {
					t.Error("rules that were right were written again")
				}
			})
		})
	}
}
