package bypass

import (
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
