package bypass

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link"
)

// Who hears of a change does not wait until rules are read.
func TestHeardWhileJudging(t *testing.T) {
	withdrawn := make(chan struct{}, 1)
	w := &Watch{tell: Tell{Withdraw: func() { withdrawn <- struct{}{} }}, changed: make(chan struct{}, 1)}
	w.mu.Lock() // as Judge does
	defer w.mu.Unlock()
	go w.hearOfNetwork(link.Change{Kind: link.RouteChange})
	select {
	case <-withdrawn:
	case <-time.After(20 * time.Second):
		t.Fatal("a change is not heard of while rules are read")
	}
}

// What is looked at each second costs little; so does a judgement.
func BenchmarkGlance(b *testing.B) { benchmark(b, func(t Traffic) error { return unheard(t, "none") }) }
func BenchmarkLook(b *testing.B)   { benchmark(b, func(t Traffic) error { return look(t, "none") }) }

func benchmark(b *testing.B, f func(Traffic) error) {
	ns, traffic := host(b)
	ns.Do(func() {
		run(b, "ip neigh flush all", "iptables-legacy -L", "ip route add 10.9.1.3/32 dev eth0")
		restore(b, "iptables-nft-restore", docker("28"))
		restore(b, "iptables-nft-restore", kubernetes)
		restore(b, "iptables-nft-restore", ufw("-A ufw-user-input -p udp -m udp --dport 4789 -j ACCEPT\n"))
		for b.Loop() {
			if err := f(traffic); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// With many hosts, beside the agent's own rules, in which a set has ranges that hosts' addresses lie between, and one has them all.
func BenchmarkPeers(b *testing.B) {
	for _, n := range []int{2, 100, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			ns, traffic := host(b)
			traffic.Peers = nil
			var all []string
			for i := range n {
				a := netip.AddrFrom4([4]byte{10, byte(i * 37), byte(64 + i/250), byte(1 + i%250)})
				traffic.Peers, all = append(traffic.Peers, a), append(all, a.String())
			}
			own := fmt.Sprintf(`table inet grapevine {
				set containers { type ifname; elements = { "gv0", "docker0" }; }
				set vteps4 { type ipv4_addr; elements = { %s }; }
				set own4 { type ipv4_addr; elements = { 10.9.0.1 }; }
				set claimed4 { type ipv4_addr; flags interval; elements = { 10.128.0.0/20, 10.200.7.0/24, 240.0.0.0/5 }; }
				chain claimed-in { type filter hook input priority -11; iifname != "lo" iifname != @containers ip saddr @claimed4 counter drop; }
				chain input { type filter hook input priority -10; iifname @containers meta l4proto { tcp, udp } th dport { 4789, 7947 } counter drop
				meta nfproto ipv4 ip saddr @vteps4 ip daddr != @own4 udp dport 4789 counter drop; }
				chain masqueraded { type filter hook postrouting priority 150; ip daddr @vteps4 ip saddr @own4 udp dport 4789 ct status & snat != 0 ct original ip saddr != @own4 counter drop; }
			}`, strings.Join(all, ", "))
			ns.Do(func() {
				restore(b, "iptables-nft-restore", docker("28"))
				file := b.TempDir() + "/rules"
				if err := os.WriteFile(file, []byte(lines.Replace(own)), 0o600); err != nil {
					b.Fatal(err)
				}
				run(b, "nft -f "+file)
				run(b, "ip route add 10.0.0.0/8 dev eth0")
				rules := read(b)
				for name, f := range map[string]func() error{"judge": func() error { return Judge(rules, traffic) }, "look": func() error { return look(traffic, "none") }} {
					b.Run(name, func(b *testing.B) {
						ns.Do(func() { // another thread's
							for b.Loop() {
								if err := f(); err != nil {
									b.Fatal(err)
								}
							}
						})
					})
				}
			})
		})
	}
}
