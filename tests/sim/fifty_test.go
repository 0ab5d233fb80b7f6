package sim

import (
	"flag"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip/memnet"
	"github.com/grapevine-net/grapevine/replica"
)

// truthHosts take processors by the square: fifty of them 48 s, and all that there is while they do.
var truthHosts = flag.Int("truth", 12, "hosts of which the same is done on real sockets and simulated: is the simulation to be believed?")

// TestTruth does the same with hosts on real sockets, in real time, as with as many
// simulated ones, and prints what both took. It fails if the hosts do not all meet and hear of everything.
func TestTruth(t *testing.T) {
	live := &world{t: t, seed: *seed}
	first, stop := live.socket(0, nil, nil)
	defer stop()
	live.hosts = append(live.hosts, first)
	for i := 1; i < *truthHosts; i++ {
		h, stop := live.socket(i, []string{first.Addr().String()}, nil)
		defer stop()
		live.hosts = append(live.hosts, h)
	}
	sockets := live.trial()
	var simulated string
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // memberlist's timers run out
		w := newWorld(t, t.TempDir())
		w.net.SetAll(memnet.Link{Delay: 50 * time.Microsecond, Jitter: 50 * time.Microsecond})
		for range *truthHosts {
			w.add()
		}
		defer func() {
			for _, h := range w.hosts {
				h.stop()
			}
		}()
		simulated = w.trial()
	})
	truth = fmt.Sprintf("| %d on sockets of the loopback interface | %s |\n| %d simulated | %s |\n", *truthHosts, sockets, *truthHosts, simulated)
	t.Log("\n" + truth)
}

// truth is what TestTruth found.
var truth string

// trial waits until all hosts agree, lets endpoints come up, and says how long each took.
func (w *world) trial() string {
	w.t.Helper()
	met := w.unanimous(patience)
	if met < 0 {
		w.t.Fatalf("%d hosts do not agree", len(w.hosts))
	}
	s := newStopwatch(w)
	for i := range 30 {
		h := w.hosts[i*7%len(w.hosts)]
		body := cluster.Endpoint{
			ID: fmt.Sprintf("%064x", i), Network: "blue", Host: h.id, MAC: "02:42:0a:80:00:02", Name: "app",
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 128, 0, byte(i)})},
		}
		w.must(h.write(func(tx *replica.Tx) error { return tx.Put(body) }))
		s.wrote("up", h, body.Key())
		s.run(200 * time.Millisecond)
	}
	s.settle(patience)
	if s.late > 0 {
		w.t.Fatalf("%d endpoints were not known everywhere within %v", s.late, patience)
	}
	up := s.times["up"]
	return fmt.Sprintf("%.1f s | %.2f s | %.2f s | %.2f s | %.2f s", met.Seconds(), quantile(up.each, 50), quantile(up.each, 99), quantile(up.all, 50), quantile(up.all, 100))
}
