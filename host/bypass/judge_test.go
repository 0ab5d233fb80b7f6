package bypass

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/nft"
)

// host is a namespace with a NIC and a VXLAN device, and the traffic of its VXLAN with two others.
func host(t testing.TB) (*linktest.NS, Traffic) {
	ns := linktest.New(t)
	linktest.Wire(t, "eth0", ns, linktest.New(t), []string{"10.9.0.1/16"}, nil)
	v := Traffic{
		Device: "eth0", Tunnel: "gvvxlan", Own: netip.MustParseAddr("10.9.0.1"), Port: 4789,
		Peers: []netip.Addr{netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("10.9.1.3")}, LeastPort: 32768, EndPort: 60999,
	}
	ns.Do(func() {
		run(t, "ip link add docker0 type bridge", "ip link add gvvxlan type vxlan external dstport 4789", "ip link set docker0 up", "ip link set gvvxlan up")
		for name, index := range map[string]*int{"eth0": &v.Index, "gvvxlan": &v.TunnelIndex} {
			l, err := netlink.LinkByName(name)
			if err != nil {
				t.Fatal(err)
			}
			*index = l.Attrs().Index
		}
	})
	return ns, v
}

// run runs commands of a shell, in the namespace of the calling thread.
func run(t testing.TB, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if out, err := exec.Command("sh", "-c", c).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c, err, out)
		}
	}
}

func restore(t testing.TB, program, text string) {
	t.Helper()
	c := exec.Command(program, "--noflush")
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
}

func read(t testing.TB) *nft.Ruleset {
	t.Helper()
	conn, err := nft.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rules, err := conn.Ruleset(unix.NFPROTO_IPV4, nft.Inet, familyNetdev)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// exposed are the rules that lead an exposed port of UDP (service/expose/hold), in the words of nft(8).
func exposed(port int) string {
	return fmt.Sprintf(`table inet exposed {
	set here4 { type ipv4_addr; elements = { 10.9.0.1, 10.9.0.2 }; }
	chain arrives { type nat hook prerouting priority -90
	iifname != "gv0" meta nfproto ipv4 ip daddr @here4 dnat ip to meta l4proto . th dport . numgen random mod 60 map { tcp . 4789 . 0 : 10.128.0.2 . 80, udp . %[1]d . 0 : 10.128.0.2 . 53, udp . %[1]d . 1 : 10.128.0.3 . 53 }; }
	chain begins { type nat hook output priority -90
	meta nfproto ipv4 ip daddr @here4 dnat ip to meta l4proto . th dport . numgen random mod 60 map { tcp . 4789 . 0 : 10.128.0.2 . 80, udp . %[1]d . 0 : 10.128.0.2 . 53, udp . %[1]d . 1 : 10.128.0.3 . 53 }; }
}`, port)
}

// lines ends lines where nft(8) wants them to.
var lines = strings.NewReplacer("; } }", ";\n}\n}\n", "; }\n", ";\n}\n", "} }", "}\n}\n")

func verdict(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Rules of nftables and of iptables on nf_tables, in the kernel: what each does to VXLAN.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name, iptables, nft string
		want                string // of the reason; "": there is none
	}{
		{name: "nothing"},
		{name: "Docker 20.10", iptables: docker("20.10")},
		{name: "Docker 26", iptables: docker("26")},
		{name: "Docker 28", iptables: docker("28")},
		{name: "Docker 29 on nftables", nft: docker29},
		{name: "Swarm", iptables: docker("20.10") + swarm},
		{name: "Swarm, encrypted", iptables: docker("20.10") + swarm + swarmEncrypted, want: "rule 1 (handle ...) of chain INPUT of table filter drops what may be received VXLAN packets"},
		{name: "a published port of UDP is VXLAN's", iptables: docker("20.10") + "*nat\n-A DOCKER ! -i docker0 -p udp -m udp --dport 4789 -j DNAT --to-destination 172.17.0.2:4789\nCOMMIT\n",
			want: "rule 4 (handle ...) of chain DOCKER of table nat does DNAT to received VXLAN packets"},
		{name: "policy", iptables: "*filter\n:INPUT DROP [0:0]\nCOMMIT\n", want: "the policy of chain INPUT of table filter drops received VXLAN packets that no rule accepts"},
		{name: "policy out", iptables: "*filter\n:OUTPUT DROP [0:0]\nCOMMIT\n", want: "the policy of chain OUTPUT of table filter drops sent VXLAN packets"},
		{name: "policy, accepted", iptables: "*filter\n:INPUT DROP [0:0]\n-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -m conntrack --ctstate INVALID -j DROP\n-A INPUT -p udp -m udp --dport 4789 -j ACCEPT\nCOMMIT\n"},
		{name: "policy, what is established alone is accepted", iptables: "*filter\n:INPUT DROP [0:0]\n-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\nCOMMIT\n", want: "the policy of chain INPUT"},
		{name: "accepted of each", iptables: "*filter\n:INPUT DROP [0:0]\n-A INPUT -s 10.9.0.2/32 -p udp --dport 4789 -j ACCEPT\n-A INPUT -s 10.9.1.3/32 -i eth+ -p udp -m multiport --dports 53,4700:4800 -j ACCEPT\nCOMMIT\n"},
		{name: "accepted of one", iptables: "*filter\n:INPUT DROP [0:0]\n-A INPUT -s 10.9.0.2/32 -p udp --dport 4789 -j ACCEPT\nCOMMIT\n", want: "that no rule accepts of or for 10.9.1.3"},
		{name: "accepted otherwise", iptables: "*filter\n:INPUT DROP [0:0]\n-A INPUT -s 10.9.0.0/16 -p udp --dport 4790 -j ACCEPT\n-A INPUT -p tcp -j ACCEPT\n-A INPUT -i docker0 -j ACCEPT\n-A INPUT ! -i eth0 -j ACCEPT\n-A INPUT -s 10.8.0.0/16 -j ACCEPT\nCOMMIT\n", want: "the policy of chain INPUT"},
		{name: "one host is dropped", iptables: "*raw\n-A PREROUTING -s 10.9.1.3 -j DROP\nCOMMIT\n", want: "rule 1 (handle ...) of chain PREROUTING of table raw drops received VXLAN packets of or for 10.9.1.3"},
		{name: "another host is dropped", iptables: "*raw\n-A PREROUTING -s 10.9.1.4 -j DROP\n-A PREROUTING -s 10.9.0.2 ! -p udp -j DROP\nCOMMIT\n"},
		{name: "its source port", iptables: "*filter\n-A OUTPUT -p udp --sport 1:1023 -j DROP\nCOMMIT\n"},
		{name: "a source port that may be", iptables: "*filter\n-A OUTPUT -p udp --sport 40000 -j DROP\nCOMMIT\n", want: "drops what may be sent VXLAN packets"},
		{name: "out by", iptables: "*mangle\n-A POSTROUTING -o eth0 -d 10.9.0.2 -j DROP\nCOMMIT\n", want: "chain POSTROUTING of table mangle drops sent VXLAN packets of or for 10.9.0.2"},
		{name: "out by others", iptables: "*mangle\n-A POSTROUTING -o docker0 -j DROP\n-A POSTROUTING ! -o eth+ -j DROP\nCOMMIT\n"},
		{name: "security", iptables: "*security\n-A INPUT -p udp -j DROP\nCOMMIT\n", want: "of chain INPUT of table security drops"},
		{name: "counted", iptables: "*filter\n:seen - [0:0]\n-A INPUT -p udp\n-A INPUT -m comment --comment \"VXLAN of others\" -j seen\n-A seen -p udp --dport 4789 -j RETURN\n-A seen -p udp --dport 4789 -j DROP\nCOMMIT\n"},
		{name: "returned not", iptables: "*filter\n:seen - [0:0]\n-A INPUT -j seen\n-A seen -s 10.9.0.2 -j RETURN\n-A seen -p udp --dport 4789 -j DROP\nCOMMIT\n", want: "rule 2 (handle ...) of chain seen of table filter drops received VXLAN packets of or for 10.9.1.3"},
		{name: "gone to", iptables: "*filter\n:seen - [0:0]\n-A INPUT -g seen\n-A INPUT -j DROP\nCOMMIT\n"},
		{name: "one host returns before what is accepted", iptables: "*filter\n:INPUT DROP [0:0]\n:vx - [0:0]\n-A INPUT -p udp --dport 4789 -j vx\n-A vx ! -s 10.9.0.2 -j RETURN\n-A vx -j ACCEPT\nCOMMIT\n", want: "the policy of chain INPUT of table filter drops received VXLAN packets that no rule accepts of or for 10.9.1.3"},
		{name: "one host goes elsewhere before what is accepted", iptables: "*filter\n:INPUT DROP [0:0]\n:vx - [0:0]\n:none - [0:0]\n-A INPUT -j vx\n-A vx ! -s 10.9.0.2 -g none\n-A vx -j ACCEPT\nCOMMIT\n", want: "the policy of chain INPUT of table filter drops received VXLAN packets that no rule accepts of or for 10.9.1.3"},
		{name: "some return before what is accepted", iptables: "*filter\n:vx - [0:0]\n-A INPUT -p udp --dport 4789 -j vx\n-A INPUT -p udp --dport 4789 -j DROP\n-A vx -m length --length 1000: -j RETURN\n-A vx -j ACCEPT\nCOMMIT\n", want: "rule 2 (handle ...) of chain INPUT of table filter drops received"},
		{name: "some return, and are accepted", iptables: "*filter\n:INPUT DROP [0:0]\n:vx - [0:0]\n-A INPUT -j vx\n-A INPUT -j ACCEPT\n-A vx -m length --length 1000: -j RETURN\n-A vx -j ACCEPT\nCOMMIT\n"},
		{name: "logged", iptables: "*filter\n-A INPUT -p udp -j LOG\nCOMMIT\n", want: "of chain INPUT of table filter does LOG to received"},
		{name: "marked", iptables: "*mangle\n-A OUTPUT -d 10.9.0.0/16 -j MARK --set-mark 7\nCOMMIT\n", want: "of chain OUTPUT of table mangle does MARK to sent"},
		{name: "masqueraded", iptables: "*nat\n-A POSTROUTING -o eth0 -j MASQUERADE\nCOMMIT\n", want: "of chain POSTROUTING of table nat does MASQUERADE to sent"},
		{name: "untracked", iptables: "*raw\n-A OUTPUT -p udp --dport 4789 -j CT --notrack\nCOMMIT\n", want: "of chain OUTPUT of table raw does CT to sent"},
		{name: "limited", iptables: "*filter\n-A INPUT -p udp -m limit --limit 5/sec -j ACCEPT\nCOMMIT\n", want: "limits received"},
		{name: "recent", iptables: "*filter\n-A INPUT -m recent --name seen --set\nCOMMIT\n", want: "(-m recent)"},
		{name: "marks of others", iptables: "*filter\n-A INPUT -m mark --mark 1 -j DROP\n-A INPUT -m mark ! --mark 0/7 -j DROP\nCOMMIT\n"},
		{name: "Kubernetes", iptables: kubernetes},
		{name: "ufw, closed", iptables: ufw(""), want: "rule 1 (handle ...) of chain ufw-after-logging-input of table filter limits received"},
		{name: "ufw, open", iptables: ufw("-A ufw-user-input -p udp -m udp --dport 4789 -j ACCEPT\n")},

		{name: "firewalld, closed", nft: firewalld(""), want: "of chain filter_INPUT of table firewalld refuses received"},
		{name: "firewalld, open", nft: firewalld("udp dport 4789 accept;")},

		{name: "nft policy", nft: "table inet f { chain i { type filter hook input priority 0; policy drop; } }", want: "the policy of chain i of table f drops received"},
		{name: "nft accepted", nft: "table inet f { chain i { type filter hook input priority 0; policy drop; ct state vmap { established : accept, related : accept, invalid : drop }; iif lo accept; udp dport { 53, 4789 } accept; } }"},
		{name: "nft accepted by set", nft: "table inet f { set hosts { type ipv4_addr; flags interval; elements = { 10.9.0.0/24, 10.9.1.0-10.9.1.9 } }\nchain i { type filter hook input priority 0; policy drop; ip saddr @hosts accept; } }"},
		{name: "nft accepted by set, but one", nft: "table inet f { set hosts { type ipv4_addr; flags interval; elements = { 10.9.0.0/24, 10.9.1.4-10.9.1.9 } }\nchain i { type filter hook input priority 0; policy drop; ip saddr @hosts accept; } }", want: "of or for 10.9.1.3"},
		{name: "nft dropped by set", nft: "table inet f { set bad { type ipv4_addr; elements = { 10.9.1.3 } }\nchain p { type filter hook prerouting priority -300; ip saddr @bad drop; } }", want: "of chain p of table f drops received VXLAN packets of or for 10.9.1.3"},
		{name: "nft others dropped by set", nft: "table inet f { set bad { type ipv4_addr; elements = { 10.9.1.4 } }\nchain p { type filter hook prerouting priority -300; ip saddr @bad drop; } }"},
		{name: "nft dropped by set that ends", nft: "table inet f { set bad { type ipv4_addr; flags timeout; elements = { 10.9.1.4 } }\nchain p { type filter hook prerouting priority -300; ip saddr @bad drop; } }", want: "drops what may be received"},
		{name: "nft concatenation", nft: "table ip f { chain o { type filter hook output priority 0; ip daddr . udp dport { 10.9.0.2 . 4790, 10.9.0.9 . 4789 } drop; meta l4proto . th dport { udp . 53, tcp . 4789 } drop; } }"},
		{name: "nft concatenation meant", nft: "table ip f { chain o { type filter hook output priority 0; ip daddr . udp dport { 10.9.0.2 . 4789 } drop; } }", want: "drops sent VXLAN packets of or for 10.9.0.2"},
		{name: "nft verdicts by address", nft: "table ip f { chain no { drop; }\nchain i { type filter hook input priority 0; ip saddr vmap { 10.9.1.3 : jump no, 10.9.0.2 : accept }; } }", want: "of chain no of table f drops received VXLAN packets of or for 10.9.1.3"},
		{name: "nft verdicts by what is not known", nft: "table ip f { chain i { type filter hook input priority 0; policy drop; ip id vmap { 1 : return, 2 : accept }; accept; } }", want: "the policy of chain i of table f drops received"},
		{name: "nft accepts in one chain, and drops in another one", nft: "table ip f { chain i { type filter hook input priority 0; accept; }\nchain j { type filter hook input priority 10; policy drop; } }", want: "the policy of chain j of table f drops received"},
		{name: "nft accepts what conntrack knows, before it knows anything", nft: "table inet f { chain p { type filter hook prerouting priority -300; policy drop; ct state { new, established, related } accept; } }", want: "the policy of chain p of table f drops received"},
		{name: "what is invalid is dropped before conntrack knows anything", iptables: "*raw\n-A PREROUTING -p udp --dport 4789 -m conntrack --ctstate INVALID -j DROP\nCOMMIT\n", want: "of chain PREROUTING of table raw drops received"},
		{name: "nft drops what is invalid", nft: "table inet f { chain p { type filter hook prerouting priority -150; ct state invalid drop; } }"},
		{name: "nft logs", nft: "table ip f { chain i { type filter hook input priority 0; log prefix \"seen\"; } }", want: "of chain i of table f logs received"},
		{name: "nft logs others", nft: "table ip f { chain i { type filter hook input priority 0; tcp dport 22 log; ip saddr 10.7.0.0/16 log; udp sport < 30000 udp dport != 4789 log; } }"},
		{name: "nft limits", nft: "table ip f { chain i { type filter hook input priority 0; udp dport 4789 limit rate over 1000/second drop; } }", want: "limits received"},
		{name: "nft notes", nft: "table ip f { set seen { type ipv4_addr; flags dynamic; }\nchain i { type filter hook input priority 0; add @seen { ip saddr }; } }", want: "notes in a set received"},
		{name: "nft marks", nft: "table ip f { chain o { type route hook output priority 0; udp dport 4789 meta mark set 1; } }", want: "marks or labels sent"},
		{name: "nft changes", nft: "table ip f { chain o { type filter hook output priority 0; ip dscp set 1; } }", want: "changes sent"},
		{name: "nft reads what is not known", nft: "table ip f { chain o { type filter hook output priority 0; ip id 7 drop; } }", want: "drops what may be sent"},
		{name: "nft reads what is known", nft: "table ip f { chain o { type filter hook output priority 0; ip frag-off & 0x1fff != 0 drop; ip ttl < 5 drop; udp checksum != 0 drop; ip version != 4 drop; @th,64,8 != 8 drop; } }"},
		{name: "nft asks who called whom", nft: "table inet f { chain p { type filter hook postrouting priority 150; ct original ip saddr 10.128.0.0/16 drop; ct original ip6 saddr fd00::/8 drop; ct original ip daddr 10.9.1.4 counter; ct status snat drop; } }"},
		{name: "nft asks who called whom, and means a peer", nft: "table inet f { chain p { type filter hook postrouting priority 150; ct original ip saddr 10.9.1.3 drop; } }", want: "drops what may be sent VXLAN packets of or for 10.9.1.3"},
		{name: "exposed ports", nft: exposed(53)},
		{name: "exposed ports, VXLAN's among them", nft: exposed(4789), want: "of chain arrives of table exposed translates"},
		{name: "balanced by chance, among others' ports", nft: "table ip f { chain p { type nat hook prerouting priority -100; udp dport 5000-5100 dnat to numgen random mod 2 map { 0 : 10.7.0.1, 1 : 10.7.0.2 }; numgen inc mod 2 == 1 tcp dport 80 dnat to 10.7.0.1; } }"},
		{name: "balanced by chance", nft: "table ip f { chain p { type nat hook prerouting priority -100; udp dport 4700-4800 dnat to numgen random mod 2 map { 0 : 10.7.0.1, 1 : 10.7.0.2 }; } }", want: "of chain p of table f translates"},
		{name: "balanced by who asks", nft: "table ip f { chain p { type nat hook prerouting priority -100; dnat to ip daddr . udp dport . jhash ip saddr mod 2 map { 10.9.0.1 . 53 . 0 : 10.7.0.1, 10.9.0.2 . 4789 . 1 : 10.7.0.2 }; } }"},
		{name: "balanced by who asks VXLAN", nft: "table ip f { chain p { type nat hook prerouting priority -100; dnat to ip daddr . udp dport . jhash ip saddr mod 2 map { 10.9.0.1 . 53 . 0 : 10.7.0.1, 10.9.0.1 . 4789 . 1 : 10.7.0.2 }; } }", want: "of chain p of table f translates what may be"},
		{name: "routes and marks beside a port", nft: "table inet f { chain p { type filter hook prerouting priority -150; meta mark . udp dport { 0x1 . 4789, 0x0 . 53 } drop; udp dport . fib saddr . iif oif { 53 . 0, 123 . 2 } drop; udp dport . ct mark { 53 . 1 } drop; udp dport . meta cpu { 53 . 0 } drop; udp dport . rt classid { 53 . 0 } drop; udp dport . ip option lsrr ptr { 53 . 0 } drop; udp dport . socket mark { 53 . 1 } drop; udp dport . ether saddr { 53 . 02:00:00:00:00:01 } drop; } }"},
		{name: "where it comes from, and its port", nft: "table inet f { chain p { type filter hook prerouting priority -150; udp dport . fib saddr . iif oif { 53 . 0, 4789 . 2 } drop; } }", want: "drops what may be received"},
		{name: "nft netdev", nft: "table netdev f { chain i { type filter hook ingress device eth0 priority 0; } }", want: "is at the interface eth0"},
		{name: "nft netdev elsewhere", nft: "table netdev f { chain i { type filter hook ingress device docker0 priority 0; policy drop; } }"},
		{name: "nft netdev, leaving", nft: "table netdev f { chain o { type filter hook egress device eth0 priority 0; } }", want: "is at the interface eth0"},
		{name: "nft inet ingress", nft: "table inet f { chain i { type filter hook ingress device eth0 priority 0; } }", want: "is at the interface eth0"},
		{name: "nft bridge, arp and IPv6 have nothing to do with it", nft: "table ip6 f { chain i { type filter hook input priority 0; policy drop; } }\ntable arp f { chain i { type filter hook input priority 0; policy drop; } }"},
		{name: "nft forward is another way", nft: "table inet f { chain i { type filter hook forward priority 0; policy drop; } }"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns, traffic := host(t)
			ns.Do(func() {
				if c.iptables != "" {
					restore(t, "iptables-nft-restore", c.iptables)
				}
				if c.nft != "" {
					file := t.TempDir() + "/rules"
					if err := os.WriteFile(file, []byte(lines.Replace(c.nft)), 0o600); err != nil {
						t.Fatal(err)
					}
					run(t, "nft -f "+file)
				}
				got := verdict(Judge(read(t), traffic))
				parts := strings.Split(c.want, "(handle ...)")
				for _, part := range parts {
					if c.want == "" && got != "" || !strings.Contains(got, part) {
						t.Fatalf("judged %q, want %q", got, c.want)
					}
				}
			})
		})
	}
}

// A rule that notes in a set, of packets of others, changes what another rule finds in it, and the kernel tells nobody. nft makes
// such sets dynamic; the kernel takes others as well.
func TestJudgeNoted(t *testing.T) {
	ns, traffic := host(t)
	ns.Do(func() {
		run(t, "nft 'table ip f { set bad { type ipv4_addr; size 100; flags dynamic; }; chain i { type filter hook input priority 0; tcp dport 22 add @bad { ip saddr }; ip saddr @bad drop; }; }'")
		rules := read(t)
		set := rules.Tables[0].Sets["bad"]
		if set == nil || !set.Noted {
			t.Fatalf("the set is %+v", set)
		}
		set.Flags &^= unix.NFT_SET_EVAL
		if got := verdict(Judge(rules, traffic)); !strings.Contains(got, "of chain i of table f drops what may be received") {
			t.Errorf("judged %q", got)
		}
	})
}
