package gossip

import (
	"slices"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// TestReplayOfDoubts: all that was said while a host was silent, sent again and again when it is back,
// puts it in doubt nowhere. A host that was started since, and has heard none of it, is told better at once.
func TestReplayOfDoubts(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		var record tape
		begin := func(i int) *host {
			return start(t, n, i, func(c *Config) {
				tr, err := n.Listen(hostAddr(i))
				if err != nil {
					t.Fatal(err)
				}
				c.Transport, c.ClusterID = recorder{tr, &record}, "alpha"
			})
		}
		var hosts []*host
		for i := range 4 {
			hosts = append(hosts, begin(i))
		}
		within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, 3) })
		time.Sleep(5 * time.Second)
		rest := func() []*host { return hosts[:3] }
		hosts[3].stop()
		within(t, 1300*time.Millisecond, "all doubt it", doubt(rest(), hosts[3], true))
		time.Sleep(25 * time.Second)
		record.mu.Lock()
		old := tape{packets: slices.Clone(record.packets)}
		record.mu.Unlock()
		hosts[3] = begin(3)
		within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, 3) })
		time.Sleep(20 * time.Second)
		attacker, err := n.Listen(hostAddr(9))
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			for range 8 {
				old.playTo(t, attacker, hosts...)
				time.Sleep(time.Second)
			}
		}()
		doubted, restarted := time.Duration(0), false
		for i := 0; ; i++ {
			select {
			case <-over:
				if restarted && doubted > 500*time.Millisecond {
					t.Errorf("it is in doubt for %v on a host that was started again", doubted)
				}
				return
			case <-time.After(10 * time.Millisecond):
			}
			for _, h := range rest() {
				if m, ok := h.Member(hosts[3].id); ok && m.Doubtful {
					if !restarted {
						t.Fatalf("host %s doubts a host that is well", h.id)
					}
					doubted += 10 * time.Millisecond
				}
			}
			if i == 1000 {
				hosts[1].stop()
				hosts[1], restarted = begin(1), true
			}
		}
	})
}

// TestReplayOfAnotherCluster: of a host of another cluster that has gone, and whose words are sent again and
// again, it is said for some seconds that it is there.
func TestReplayOfAnotherCluster(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		var record tape
		hosts := cluster(t, n, 2)
		tr, err := n.Listen(hostAddr(2))
		if err != nil {
			t.Fatal(err)
		}
		odd := start(t, n, 2, func(c *Config) { c.Transport, c.ClusterID = recorder{tr, &record}, "beta" })
		within(t, 10*time.Second, "it is named", func() bool { return len(hosts[0].Foreigners()) == 1 })
		time.Sleep(10 * time.Second)
		odd.stop()
		time.Sleep(10 * time.Second)
		hosts[0].stop()
		hosts[0] = start(t, n, 0, nil) // it remembers nothing of that
		within(t, 10*time.Second, "it is back", func() bool { return allSee(hosts, 1) })
		attacker, err := n.Listen(hostAddr(9))
		if err != nil {
			t.Fatal(err)
		}
		var said int
		for i := range 60 {
			record.play(t, attacker)
			if len(hosts[0].Foreigners()) > 0 {
				if said++; said > 15 {
					t.Fatalf("in round %d it is still named", i)
				}
			}
			time.Sleep(time.Second)
		}
		if said == 0 || hosts[0].Stats()[RefusedCluster] < 60 {
			t.Errorf("it was never named: nothing is shown; counted %v", hosts[0].Stats())
		}
	})
}

// TestReplayOfBeats: the beats of a host that is silent, sent again, do not make it heard.
func TestReplayOfBeats(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		var record tape
		hosts := cluster(t, n, 2)
		tr, err := n.Listen(hostAddr(2))
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, start(t, n, 2, func(c *Config) { c.Transport = recorder{tr, &record} }))
		within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, 2) })
		time.Sleep(5 * time.Second)
		hosts[2].stop()
		attacker, err := n.Listen(hostAddr(9))
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				record.playTo(t, attacker, hosts[:2]...)
			}
		}()
		within(t, 1300*time.Millisecond, "all doubt it", doubt(hosts[:2], hosts[2], true))
		<-over
	})
}

// TestSaidAfterTheClockWasSetBack: what a host says after a restart is believed, though its clock was set back.
func TestSaidAfterTheClockWasSetBack(t *testing.T) {
	const every = 200 * time.Millisecond
	host, teller, hearer := nodeID{1}, nodeID{2}, nodeID{3}
	all, noon := []nodeID{host, teller, hearer}, time.Unix(1e9, 0)
	hears := newWatch(hearer, every, 1)
	hears.round(all, noon)
	told := 0
	for run, clock := range []time.Time{noon, noon.Add(-time.Hour)} {
		tells := newWatch(teller, every, uint32(run+1))
		tells.hear(host, beat{number: 1}, false, clock)
		for n := range 10 {
			tells.hear(hearer, beat{uint64(n), []nodeID{host}}, false, clock)
			_, tell := tells.round(all, clock)
			for _, v := range tell {
				if told++; !hears.take(v, noon) {
					t.Errorf("run %d: %v is not believed", run, v)
				}
			}
			if b := tells.say(nil); !hears.hear(teller, b, false, noon) {
				t.Errorf("run %d: beat %d is not heard", run, b.number)
			}
			clock = clock.Add(every)
		}
	}
	if told != 2 || !hears.doubts(host) {
		t.Errorf("told %d times", told)
	}
}
