package nat

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestProxied: whom the agent's proxy speaks for is not this host by iptables' rules alone, as before Linux 5.2, of either family.
func TestProxied(t *testing.T) {
	for _, kind := range []string{"nft", "legacy"} {
		t.Run(kind, func(t *testing.T) {
			useBackend(t, kind)
			inside, host := linktest.New(t), linktest.New(t)
			linktest.Wire(t, "gv0", host, inside, []string{"10.128.0.1/22", "fd00:77::1/64"}, []string{"10.128.0.2/22", "fd00:77::2/64"})
			inside.Do(func() {
				run(t, "ip", "route", "add", "default", "via", "10.128.0.1")
				run(t, "ip", "route", "add", "default", "via", "fd00:77::1")
			})
			host.Do(func() {
				// As package gateway has it, answers are taken there.
				run(t, "sysctl", "-qw", "net.ipv4.conf.gv0.route_localnet=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.ip_forward=1")
				run(t, "ip", "-6", "route", "add", "local", "::1", "dev", "gv0", "table", "103")
				run(t, "ip", "-6", "rule", "add", "priority", "0", "iif", "gv0", "lookup", "103")
				prefixes := func(list ...string) (all []netip.Prefix) {
					for _, p := range list {
						all = append(all, netip.MustParsePrefix(p))
					}
					return all
				}
				if err := New().Set(t.Context(), Config{
					Interface: "gv0", CIDRs: prefixes("10.128.0.0/14", "fd00:77::/48"), Gateways: prefixes("10.128.0.1/22", "fd00:77::1/64"), Hosts: prefixes("240.0.0.0/5", "fd00:240::/32"),
				}); err != nil {
					t.Fatal(err)
				}
			})
			for from, to := range map[string]string{"127.0.0.1": "10.128.0.2:80", "::1": "[fd00:77::2]:80"} {
				var l net.Listener
				var err error
				inside.Do(func() { l, err = net.Listen("tcp", to) })
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				go answerTCP(l)
				host.Do(func() {
					d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
					c, err := d.Dial("tcp", to)
					if err != nil {
						t.Fatalf("from %s: %v", from, err)
					}
					defer c.Close()
					b := make([]byte, 100)
					n, _ := c.Read(b)
					if a, err := netip.ParseAddr(string(b[:n])); err != nil || !Callers(a.Is6()).Contains(a) {
						t.Errorf("who comes from %s is seen as %q", from, b[:n])
					}
				})
			}
		})
	}
}
