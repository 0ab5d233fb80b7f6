package nat

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/go-iptables/iptables"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestLook: what one iptables-save tells is what iptables tells of each chain. Of rules that are in place nothing is
// asked any more; whatever somebody takes away or moves is seen.
func TestLook(t *testing.T) {
	for _, kind := range []string{"nft", "legacy"} {
		t.Run(kind, func(t *testing.T) {
			useBackend(t, kind)
			linktest.New(t).Do(func() {
				run(t, "iptables", "-N", dockerUser)
				run(t, "iptables", "-A", "FORWARD", "-j", dockerUser)
				n := New()
				want := func(when string, f iptables.Protocol, bad string) {
					t.Helper()
					have := look(f)
					chains, err := n.chains(f, have)
					if err != nil || have == nil {
						t.Fatalf("%s: %v, %v", when, have, err)
					}
					var wrong []string
					for _, c := range chains {
						if len(c.rules) > 0 && !have.has(c) || len(c.rules) == 0 && !have.lacks(c) {
							wrong = append(wrong, c.name)
						}
					}
					if got := strings.Join(wrong, " "); got != bad {
						t.Errorf("%s, %s: wrong is %q, not %q, of\n%v", when, command(f), got, bad, have)
					}
				}
				cfg := Config{
					Interface: "gv0", CIDRs: []netip.Prefix{v4, v6}, Gateways: []netip.Prefix{netip.MustParsePrefix("10.128.0.1/22")}, Rules: resolver,
					Hosts: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Internal: []netip.Prefix{netip.MustParsePrefix("10.128.8.0/22")},
				}
				published := []Published{
					{Proto: "tcp", Host: netip.MustParseAddrPort("0.0.0.0:8080"), To: netip.MustParseAddrPort("10.128.0.7:80")},
					{Proto: "udp", Host: netip.MustParseAddrPort("192.0.2.1:53"), To: netip.MustParseAddrPort("10.128.0.7:53"), More: 3},
				}
				if err := n.Set(ctx, cfg); err != nil {
					t.Fatal(err)
				}
				if err := n.Publish(ctx, published); err != nil {
					t.Log(err) // conntrack, maybe
				}
				want("in place", iptables.ProtocolIPv4, "")
				want("in place", iptables.ProtocolIPv6, "")
				for _, c := range []struct{ do, bad string }{
					{"-t nat -D POSTROUTING -j " + Postrouting, Postrouting},
					{"-t nat -F " + Ports, Ports},
					{"-t nat -D OUTPUT -m addrtype --dst-type LOCAL -j " + Ports, Ports},
					{"-I FORWARD -j " + Forward, Forward}, // before people's own rules
					{"-A " + Input + " -j ACCEPT", Input},
					{"-N " + Output, Output},
					{"-t nat -F", strings.Join([]string{Hairpin, Postrouting, Ports, Prerouting}, " ")},
				} {
					run(t, append([]string{"iptables"}, strings.Fields(c.do)...)...)
					want(c.do, iptables.ProtocolIPv4, c.bad)
					if err := n.restore(); err != nil {
						t.Fatal(err)
					}
					want("after "+c.do, iptables.ProtocolIPv4, "")
				}
				if err := n.Remove(ctx); err != nil {
					t.Fatal(err)
				}
				if got := rules(t); strings.Contains(got, "GRAPEVINE") {
					t.Errorf("after Remove:\n%s", got)
				}
			})
		})
	}
}

// TestClearNothing: to remove our chains of a family that has no tables makes none.
func TestClearNothing(t *testing.T) {
	useBackend(t, "nft")
	linktest.New(t).Do(func() {
		n := New()
		set(t, n, v4) // and IPv6 is cleared
		if have := look(iptables.ProtocolIPv6); have == nil || len(have) != 0 {
			t.Errorf("IPv6 has %v", have)
		}
	})
	if have := parseSaved("# Table `nat' is incompatible, use 'nft' tool.\n*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"); have != nil {
		t.Errorf("of what cannot be told: %v", have)
	}
}

// TestLookElsewhere: an iptables-save of another framework than iptables tells nothing.
func TestLookElsewhere(t *testing.T) {
	useBackend(t, "legacy")
	legacySave := realOf(t, "iptables-save")
	useBackend(t, "nft")
	if have := look(iptables.ProtocolIPv4); have == nil {
		t.Error("nothing is told by the same program")
	}
	linkFirst(t, "iptables-save", legacySave)
	if have := look(iptables.ProtocolIPv4); have != nil {
		t.Errorf("what another framework has: %v", have)
	}
}

func realOf(t *testing.T, name string) string {
	t.Helper()
	file, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// linkFirst makes a name first in PATH lead to a program.
func linkFirst(t *testing.T, name, file string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(file, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}
