package gossip

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// TestHeardSinceAStall: who was cut off from the others while it slept takes them for alive when it wakes, and for heard
// not before they have proven to be there; so has who was started. What was asked before does not count.
func TestHeardSinceAStall(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		began := time.Now()
		var slept atomic.Int64
		hosts := []*host{start(t, n, 0, func(c *Config) {
			c.Awake = func() time.Duration { return time.Since(began) + time.Duration(slept.Load()) }
		})}
		for i := range 2 {
			hosts = append(hosts, start(t, n, i+1, nil))
		}
		within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, 2) })
		first := hosts[0]
		hears := func() (n int) {
			for _, h := range hosts[1:] {
				if heard, _ := first.Heard(h.id); heard {
					n++
				}
			}
			return n
		}
		if hears() != 0 {
			t.Error("a host is heard of which nothing was asked since the start")
		}
		within(t, time.Second, "both others are heard", func() bool { return hears() == 2 })
		time.Sleep(time.Minute)
		if hears() != 2 {
			t.Error("they were heard, and are not any more")
		}
		for _, nobody := range []string{first.id, "00000000000000ff"} {
			if heard, known := first.Heard(nobody); heard || !known {
				t.Errorf("%s, who is no other host, is heard: %v, and that is known: %v", nobody, heard, known)
			}
		}

		sleepCut := func() {
			n.Partition([]netip.Addr{hostAddr(0).Addr()}, []netip.Addr{hostAddr(1).Addr(), hostAddr(2).Addr()})
			slept.Add(int64(20 * time.Second))
		}
		sleepCut()
		if !allSee(hosts[:1], 2) || doubt(hosts[:1], hosts[1], true)() {
			t.Error("this test shows nothing: it sees at once that it is alone")
		}
		for i := range 500 {
			if hears() > 0 {
				t.Fatal("a host is heard that has been beyond a cut since before this one woke")
			}
			if _, known := first.Heard(hosts[1].id); known != (i > int(answerTime/(10*time.Millisecond))) {
				t.Fatalf("%d ms after it woke it is known: %v", 10*i, known)
			}
			time.Sleep(10 * time.Millisecond)
		}
		n.Heal()
		within(t, 20*time.Second, "both are heard when the cut has ended", func() bool { return hears() == 2 })

		// A stall that is as long as all take for a busy host is none.
		time.Sleep(5 * time.Second)
		slept.Add(int64(500 * time.Millisecond))
		if hears() != 2 {
			t.Error("a host that was busy for a moment hears nobody")
		}

		// The answers to what was asked before it are on their way while it sleeps.
		time.Sleep(5 * time.Second)
		slept.Add(int64(time.Second))
		n.SetAll(memnet.Link{Delay: 100 * time.Millisecond})
		hears()
		time.Sleep(350 * time.Millisecond)
		slept.Add(int64(time.Second))
		time.Sleep(100 * time.Millisecond)
		sleepCut()
		for range 300 {
			if hears() > 0 {
				t.Fatal("an answer from before the stall counts")
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}
