package nat

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-iptables/iptables"
	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

var (
	gateway4 = netip.MustParsePrefix("10.128.0.1/22")
	gateway6 = netip.MustParsePrefix("fd00:128::1/64")
	inner    = netip.MustParsePrefix("10.128.8.0/22")
)

func port(proto, host, to string) Published {
	return Published{proto, netip.MustParseAddrPort(host), netip.MustParseAddrPort(to), 0}
}

func full(cidrs ...netip.Prefix) Config {
	return Config{Interface: "gv0", CIDRs: cidrs, Gateways: []netip.Prefix{gateway4, gateway6}, Internal: []netip.Prefix{inner}}
}

func publish(t *testing.T, n *NAT, all ...Published) {
	t.Helper()
	if err := n.Publish(ctx, all); err != nil {
		t.Fatal(err)
	}
}

// What is published, in iptables' own words; nothing of it is left after the last port.
func TestPublish(t *testing.T) {
	for _, kind := range []string{"nft", "legacy"} {
		t.Run(kind, func(t *testing.T) {
			useBackend(t, kind)
			linktest.New(t).Do(func() {
				n := New()
				all := []Published{
					port("udp", "127.0.0.1:53", "10.128.0.3:53"), port("tcp", "0.0.0.0:8080", "10.128.0.2:80"),
					port("sctp", "192.0.2.1:8080", "10.128.0.2:3868"), port("tcp", "[::]:8080", "[fd00:128::2]:80"),
				}
				publish(t, n, all...) // an agent that starts: noted
				if got := run(t, "iptables-save"); strings.Contains(got, Ports) {
					t.Fatalf("published before anything is known:\n%s", got)
				}
				if err := n.Set(ctx, full(v4, v6)); err != nil {
					t.Fatal(err)
				}
				const want4 = `-N GRAPEVINE-PORTS
-A GRAPEVINE-PORTS -s 10.128.8.0/22 -i gv0 -j RETURN
-A GRAPEVINE-PORTS -d 127.0.0.1/32 -p udp -m udp --dport 53 -j DNAT --to-destination 10.128.0.3:53
-A GRAPEVINE-PORTS -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.128.0.2:80
-A GRAPEVINE-PORTS -d 192.0.2.1/32 -p sctp -m sctp --dport 8080 -j DNAT --to-destination 10.128.0.2:3868
`
				if got := lines(t, "iptables", "nat", Ports); got != want4 {
					t.Errorf("IPv4:\n%s", got)
				}
				if got := lines(t, "ip6tables", "nat", Ports); !strings.Contains(got, " ! -s fe80::/10 -p tcp -m tcp --dport 8080 -j DNAT --to-destination [fd00:128::2]:80\n") {
					t.Errorf("IPv6:\n%s", got)
				}
				if got := lines(t, "iptables", "nat", Hairpin); !strings.Contains(got, " -d 10.128.0.0/22 -j SNAT --to-source 10.128.0.1\n") {
					t.Errorf("hairpin:\n%s", got)
				}

				// Rules that are as they should be are not written again, in any order.
				gen, err := n.fingerprint()
				if err != nil {
					t.Fatal(err)
				}
				again := New()
				publish(t, again, all[3], all[2], all[0], all[1])
				if err := again.Set(ctx, full(v4, v6)); err != nil {
					t.Fatal(err)
				}
				publish(t, again, all...)
				if now, _ := n.fingerprint(); now != gen {
					t.Error("rules that were right were written again")
				}

				publish(t, n, all[3])
				publish(t, n)
				if got := rules(t); strings.Contains(got, Ports) || strings.Contains(got, Hairpin) || !strings.Contains(got, Postrouting) {
					t.Errorf("after the last port:\n%s", got)
				}
				publish(t, n, all...)
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

// A port that iptables refuses is an error, and what was published stays.
func TestPublishFails(t *testing.T) {
	linktest.New(t).Do(func() {
		n := New()
		if err := n.Set(ctx, full(v4)); err != nil {
			t.Fatal(err)
		}
		good := port("tcp", "0.0.0.0:8080", "10.128.0.2:80")
		publish(t, n, good)
		before := rules(t)
		err := n.Publish(ctx, []Published{good, port("nonsense", "0.0.0.0:8081", "10.128.0.2:81")})
		if err == nil || !strings.Contains(err.Error(), "chain GRAPEVINE-PORTS") {
			t.Errorf("a protocol that there is not: %v", err)
		}
		if got := rules(t); got != before {
			t.Errorf("after the error:\n%s", got)
		}
	})
}

// Whatever is published: one rule for each port, of its family only; connections of
// containers get the gateway's address wherever a port is published, and nothing else
// in the table depends on ports.
// Somebody's own rule leads to a chain of ours, as for an address that is not this host's: the last port
// goes all the same, and another one can come.
func TestPublishBesideOthersJump(t *testing.T) {
	for _, kind := range []string{"nft", "legacy"} {
		t.Run(kind, func(t *testing.T) {
			linktest.New(t).Do(func() {
				useBackend(t, kind)
				n := New()
				if err := n.Set(ctx, full(v4)); err != nil {
					t.Fatal(err)
				}
				p := port("tcp", "0.0.0.0:8080", "10.128.0.2:80")
				publish(t, n, p)
				run(t, "iptables", "-t", "nat", "-A", "PREROUTING", "-d", "192.0.2.77/32", "-m", "comment", "--comment", "a second address", "-j", Ports)
				publish(t, n)
				if got := lines(t, "iptables", "nat", Ports); got != "-N "+Ports+"\n" {
					t.Errorf("without ports the chain is\n%s", got)
				}
				publish(t, n, p)
				if got := lines(t, "iptables", "nat", Ports); !strings.Contains(got, "--to-destination 10.128.0.2:80") {
					t.Errorf("with a port again the chain is\n%s", got)
				}
				if err := n.Remove(ctx); err != nil {
					t.Error(err)
				}
				if got := lines(t, "iptables", "nat", Ports); got != "-N "+Ports+"\n" {
					t.Errorf("what is left is\n%s", got)
				}
			})
		})
	}
}

func TestRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		published := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Published {
			host := rapid.SampledFrom([]string{"0.0.0.0", "127.0.0.1", "192.0.2.1"}).Draw(t, "host")
			to := fmt.Sprintf("10.128.%d.2", 4*rapid.IntRange(0, 2).Draw(t, "subnet"))
			if rapid.Bool().Draw(t, "v6") {
				host, to = "[::]", "[fd00:128::2]"
			}
			return port(rapid.SampledFrom([]string{"tcp", "udp", "sctp"}).Draw(t, "proto"),
				fmt.Sprintf("%s:%d", host, rapid.IntRange(1, 4).Draw(t, "port")), to+":80")
		}), 0, 8, func(p Published) string { return fmt.Sprint(p.Proto, p.Host) }).Draw(t, "published")
		cfg := full(v4, v6)
		cfg.Gateways = append(cfg.Gateways, netip.MustParsePrefix("10.128.4.1/22"), netip.MustParsePrefix("10.128.8.1/22"))
		for _, f := range families {
			chains := map[string][]string{}
			for _, c := range chainsFor(cfg, published, nil, f) {
				chains[c.name] = c.rules
			}
			subnets := map[netip.Prefix]bool{}
			of := 0
			for _, p := range published {
				if !is(f, p.To.Addr()) {
					continue
				}
				of++
				for _, g := range cfg.Gateways {
					if g.Contains(p.To.Addr()) {
						subnets[g] = true
					}
				}
				if !slices.Contains(chains[Ports], p.rule()) {
					t.Fatalf("no rule for %v in %q", p, chains[Ports])
				}
			}
			if dnat := count(chains[Ports], "DNAT"); dnat != of {
				t.Fatalf("%d rules for %d ports: %q", dnat, of, chains[Ports])
			}
			if len(chains[Hairpin]) != len(subnets) {
				t.Fatalf("ports on %v: %q", subnets, chains[Hairpin])
			}
			if jumps := count(chains[Postrouting], Hairpin); (jumps > 0) != (of > 0) {
				t.Fatalf("%d ports: %q", of, chains[Postrouting])
			}
			bare := chainsFor(cfg, nil, nil, f)
			for i, c := range chainsFor(cfg, published, nil, f) {
				if c.table == "filter" && strings.Join(c.rules, "\n") != strings.Join(bare[i].rules, "\n") {
					t.Fatalf("ports change %s", c.name)
				}
			}
		}
	})
}

func count(rules []string, part string) (n int) {
	for _, r := range rules {
		if strings.Contains(r, part) {
			n++
		}
	}
	return n
}

func TestOutermost(t *testing.T) {
	var in []netip.Prefix
	for _, p := range []string{"172.30.0.0/16", "10.128.4.0/22", "10.128.0.0/14", "fd00::/48", "10.128.0.0/22", "10.128.0.1/14"} {
		in = append(in, netip.MustParsePrefix(p))
	}
	if got := fmt.Sprint(outermost(in, iptables.ProtocolIPv4)); got != "[10.128.0.0/14 172.30.0.0/16]" {
		t.Errorf("got %v", got)
	}
}
