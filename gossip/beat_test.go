package gossip

import (
	"slices"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// TestBeatsWithoutNumbers: in the middle of an upgrade from an agent whose beats are a list of hosts alone,
// none of those is refused, and who says one is not silent, though another host is.
func TestBeatsWithoutNumbers(t *testing.T) {
	const every = 200 * time.Millisecond
	self, older, gone := nodeID{1}, nodeID{2}, nodeID{3}
	circle, now := []nodeID{self, older, gone}, time.Now()
	c := &core{self: self}
	g := &beater{core: c, watch: newWatch(self, every, 1), roster: &roster{core: c, peers: map[string]*peer{older.String(): {}, gone.String(): {}}}}
	say := func(from nodeID, silent ...nodeID) {
		g.heardBeat(envelope{from: from, body: slices.Concat(bytesOf(silent)...)})
	}
	say(older, gone) // before the first round
	say(older, self)
	g.watch.round(circle, now)
	say(gone)
	for range 100 {
		now = now.Add(every)
		g.watch.heard[gone] = sign{at: now.Add(-time.Minute)}
		say(older, gone)
		g.watch.round(circle, time.Now())
	}
	if n := g.stats.m[RefusedGarbage] + g.stats.m[RefusedReplay]; n > 0 {
		t.Errorf("%d beats of an honest host are refused: %v", n, g.stats.m)
	}
	if !g.watch.doubts(gone) || g.watch.heard[older].silent == nil {
		t.Errorf("what the older host says of another one is not heard: %v", g.watch.heard)
	}
	// It is upgraded: what it said before counts no more, whoever sends it again.
	g.heardBeat(envelope{from: older, body: beat{number: 1 << 32}.encode()})
	before := g.watch.heard[older]
	say(older)
	if got := g.watch.heard[older]; !got.at.Equal(before.at) {
		t.Error("a beat from before the upgrade makes the host heard")
	}
}

func bytesOf(ids []nodeID) (list [][]byte) {
	for _, id := range ids {
		list = append(list, id[:])
	}
	return list
}

// TestBeatsOvertakeEachOther: beats that come in another order, as memberlist hands them on when several wait, are no
// replays; each that comes again is one; and none that is older than another one makes its host heard.
func TestBeatsOvertakeEachOther(t *testing.T) {
	from, now := nodeID{2}, time.Unix(1, 0)
	w := newWatch(nodeID{1}, time.Second, 1)
	for round := range 3 {
		for i, n := range []uint64{1000, 1003, 1001, 1002, 1070, 1064, 2000, 1937} {
			if got := w.hear(from, beat{number: n}, false, now.Add(time.Duration(i))); got != (round == 0) {
				t.Errorf("round %d: beat %d is taken: %t", round, n, got)
			}
		}
	}
	if got := w.heard[from].at; !got.Equal(now.Add(6)) {
		t.Errorf("heard last at %v", got)
	}
	if w.hear(from, beat{number: 1936}, false, now) {
		t.Error("a beat from long before is taken")
	}
}

// TestNumbersThatBeginAnew: a host whose disk and clock were set back to those of long ago, so that its beats have
// lower numbers than before, is heard all the same once it has proven to be there.
func TestNumbersThatBeginAnew(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		hosts := cluster(t, n, 3)
		time.Sleep(5 * time.Second)
		hosts[2].stop()
		hosts[2] = start(t, n, 2, func(c *Config) { c.Run = 1 })
		within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, 2) })
		heard := func() bool {
			for _, h := range hosts[:2] {
				h.watch.mu.Lock()
				_, ok := h.watch.heard[hosts[2].self]
				low := h.watch.latest[saying{by: hosts[2].self}] < 1<<33
				h.watch.mu.Unlock()
				if m, _ := h.Member(hosts[2].id); !ok || !low || m.Doubtful {
					return false
				}
			}
			return true
		}
		within(t, 20*time.Second, "it is heard", heard)
		time.Sleep(10 * time.Second)
		if !heard() {
			t.Error("it is not heard for long")
		}
	})
}
