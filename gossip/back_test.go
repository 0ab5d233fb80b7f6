package gossip

import (
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// TestBackInDoubtOfNobody: a host that was cut off and comes back brings no doubt of hosts that have heard each other all the while.
func TestBackInDoubtOfNobody(t *testing.T) {
	for _, c := range []struct {
		hosts  int
		jitter time.Duration
		step   time.Duration // between two lengths of the cut
	}{{3, 0, 370 * time.Millisecond}, {3, 30 * time.Millisecond, 370 * time.Millisecond}, {9, 10 * time.Millisecond, 3 * time.Second}} {
		for cut := 2 * time.Second; cut < 13*time.Second; cut += c.step {
			bubble(t, func(t *testing.T, n *memnet.Network) {
				n.SetAll(memnet.Link{Delay: time.Millisecond, Jitter: c.jitter})
				var hosts []*host
				for i := range c.hosts {
					hosts = append(hosts, start(t, n, i, nil))
				}
				within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, c.hosts-1) })
				time.Sleep(3 * time.Second)
				for away := range min(c.hosts, 3) {
					var stay []*host
					var far []netip.Addr
					for i, h := range hosts {
						if i != away {
							stay, far = append(stay, h), append(far, hostAddr(i).Addr())
						}
					}
					n.Partition([]netip.Addr{hostAddr(away).Addr()}, far)
					for range int(cut / (10 * time.Millisecond)) {
						time.Sleep(10 * time.Millisecond)
					}
					n.Heal()
					for ms := range 800 {
						for _, h := range stay {
							for _, m := range h.Members() {
								if m.ID == hosts[away].id || m.State == Alive && !m.Doubtful {
									continue
								}
								t.Fatalf("host %d was away for %v; %d ms after it is back, one of those that stayed takes the other one for %v, in doubt: %v", away, cut, 10*ms, m.State, m.Doubtful)
							}
						}
						time.Sleep(10 * time.Millisecond)
					}
					within(t, 20*time.Second, "all see each other again", func() bool { return allSee(hosts, c.hosts-1) })
				}
			})
		}
	}
}
