package gossip

import (
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// TestRest: hosts without news gossip and look for silence in long rounds, and news spreads from there as fast as ever.
func TestRest(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 30)
		atRest := func() (n int) {
			for _, h := range hosts {
				h.spreader.pace.mu.Lock()
				if h.spreader.pace.long && h.watch.calm(time.Now()) {
					n++
				}
				h.spreader.pace.mu.Unlock()
			}
			return n
		}
		time.Sleep(5 * time.Second)
		if n := atRest(); n != len(hosts) {
			t.Fatalf("%d of %d hosts rest", n, len(hosts))
		}
		hosts[7].Broadcast(hosts[7].state.put("k", "v"))
		took := within(t, 200*time.Millisecond, "all have k", allHave(hosts, "k", "v"))
		t.Logf("30 hosts have it after %v", took)
		if n := atRest(); n > 0 {
			t.Errorf("%d hosts rest with news to spread", n)
		}
		time.Sleep(5 * time.Second)
		if n := atRest(); n != len(hosts) {
			t.Errorf("%d of %d hosts rest again", n, len(hosts))
		}
		hosts[3].stop()
		time.Sleep(500 * time.Millisecond)
		if n := atRest(); n == len(hosts)-1 {
			t.Error("all rest though one is not heard")
		}
	})
}
