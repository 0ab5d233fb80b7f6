package gossip

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// doubt reports whether all of the hosts doubt another one, or none.
func doubt(hosts []*host, of *host, want bool) func() bool {
	return func() bool {
		for _, h := range hosts {
			if m, ok := h.Member(of.id); h != of && (!ok || m.Doubtful != want) {
				return false
			}
		}
		return true
	}
}

// TestSilenceIsDoubted: all know within a second or so that a host is silent, whether there
// are two of them or many, and again that it is back. Nobody takes it for dead by that.
func TestSilenceIsDoubted(t *testing.T) {
	for _, n := range []int{2, 3, 4, 30} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			bubble(t, func(t *testing.T, net *memnet.Network) {
				hosts := cluster(t, net, n)
				time.Sleep(5 * time.Second)
				silent, others := hosts[n/2], slices.Delete(slices.Clone(hosts), n/2, n/2+1)
				for _, h := range others {
					net.Cut(silent.ip, h.ip)
				}
				t.Logf("doubted after %v", within(t, 1300*time.Millisecond, "all doubt it", doubt(others, silent, true)))
				for _, h := range others {
					if alive := h.Alive(); len(alive) != n-1 || alive[n-2] != silent.id {
						t.Errorf("host %s lists %v: want all, the silent one last", h.id, alive)
					}
				}
				net.Heal()
				t.Logf("trusted after %v", within(t, time.Second, "none doubts it", doubt(others, silent, false)))
			})
		})
	}
}

// TestDoubtEndsWithDeath: who is dead, or has left, is no longer in doubt, nor when it comes back.
func TestDoubtEndsWithDeath(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 5)
		time.Sleep(5 * time.Second)
		hosts[2].stop()
		rest := slices.Delete(slices.Clone(hosts), 2, 3)
		within(t, 1300*time.Millisecond, "all doubt it", doubt(rest, hosts[2], true))
		within(t, time.Minute, "it is dead", func() bool { return allSee(rest, 3) })
		within(t, time.Second, "none doubts it", doubt(rest, hosts[2], false))
		hosts[2] = start(t, net, 2, nil)
		within(t, 10*time.Second, "it is back", func() bool { return allSee(hosts, 4) })
		time.Sleep(15 * time.Second) // longer than any suspicion stands
		if !doubt(rest, hosts[2], false)() {
			t.Error("it is back and in doubt")
		}
		for _, h := range hosts {
			h.watch.mu.Lock()
			if len(h.watch.suspicions) > 0 || len(h.watch.heard) != watchers {
				t.Errorf("host %s keeps %v, and hears %d hosts", h.id, h.watch.suspicions, len(h.watch.heard))
			}
			h.watch.mu.Unlock()
		}
	})
}

// TestDoubtNeedsTwo: that one watcher hears nothing of a host, or a host hears nothing at all,
// puts nobody in doubt. Losses do not either.
func TestDoubtNeedsTwo(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 8)
		time.Sleep(5 * time.Second)
		never := func(d time.Duration, what string) {
			t.Helper()
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				for _, of := range hosts {
					for _, h := range hosts {
						if m, ok := h.Member(of.id); ok && m.Doubtful {
							t.Fatalf("%s: host %s doubts host %s", what, h.id, of.id)
						}
					}
				}
			}
		}
		net.Cut(hosts[2].ip, hosts[3].ip)
		never(5*time.Second, "a cut between two neighbours")
		net.Heal()
		for _, h := range hosts {
			net.CutOneWay(h.ip, hosts[4].ip)
		}
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			for _, of := range hosts {
				if !doubt(slices.Delete(slices.Clone(hosts), 4, 5), of, false)() {
					t.Fatalf("what a deaf host says of host %s is believed", of.id)
				}
			}
		}
		net.Heal()
		time.Sleep(time.Second)
		net.SetAll(memnet.Link{Loss: 0.05, Delay: time.Millisecond, Jitter: 5 * time.Millisecond})
		never(2*time.Minute, "a twentieth is lost")
	})
}

// TestOldHostsDoNotBeat: as long as one host does not know beats none are sent, so that neither
// it nor a host that goes back to an older program gets any.
func TestOldHostsDoNotBeat(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		older, newer := versions{protoMin, protoBeats - 1}, versions{protoMin, protoMax}
		hosts := []*host{startAs(t, net, 0, newer), startAs(t, net, 1, older), startAs(t, net, 2, newer), startAs(t, net, 3, newer)}
		within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, 3) })
		time.Sleep(5 * time.Second)
		hosts[2].stop()
		hosts[2] = startAs(t, net, 2, older)
		within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, 3) })
		time.Sleep(5 * time.Second)
		for _, h := range hosts {
			if c := h.Stats(); c[RefusedGarbage]+c[RefusedVersion] > 0 {
				t.Errorf("host %s has refused messages: %v", h.id, c)
			}
		}
		hosts[1].stop()
		hosts[2].stop()
		within(t, time.Minute, "the old ones are dead", func() bool { return allSee([]*host{hosts[0], hosts[3]}, 1) })
		time.Sleep(5 * time.Second)
		hosts[3].stop()
		within(t, 1300*time.Millisecond, "new ones among themselves doubt", doubt(hosts[:1], hosts[3], true))
	})
}

// TestUpgradedHostIsWatched: who comes back with a newer program before anybody has missed it
// is among those who beat, without a change of the members.
func TestUpgradedHostIsWatched(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := []*host{startAs(t, net, 0, versions{protoMin, protoMax}), startAs(t, net, 1, versions{protoMin, protoMin})}
		within(t, 20*time.Second, "they see each other", func() bool { return allSee(hosts, 1) })
		hosts[1].stop()
		hosts[1] = startAs(t, net, 1, versions{protoMin, protoMax})
		within(t, 20*time.Second, "they see each other", func() bool { return allSee(hosts, 1) })
		time.Sleep(10 * time.Second)
		hosts[1].stop()
		within(t, 1300*time.Millisecond, "it is doubted", doubt(hosts[:1], hosts[1], true))
	})
}

// TestDeadAndBack: who was in doubt here, then dead, and then is back, may be in doubt on others
// all that time: they are told that it is not.
func TestDeadAndBack(t *testing.T) {
	const every = 200 * time.Millisecond
	host, self, third := nodeID{1}, nodeID{2}, nodeID{3}
	all, now := []nodeID{host, self, third}, time.Unix(1, 0)
	w := newWatch(self, every, 1)
	number := uint64(0)
	hear := func(from nodeID, silent ...nodeID) {
		number++
		w.hear(from, beat{number, silent}, false, now)
	}
	hear(host)
	var told []suspicion
	pass := func(circle []nodeID, d time.Duration) {
		for end := now.Add(d); now.Before(end); now = now.Add(every / roundsPerBeat) {
			hear(third, host)
			_, tell := w.round(circle, now)
			told = append(told, tell...)
		}
	}
	pass(all, time.Second)
	if len(told) != 1 || !told[0].silent {
		t.Fatalf("a silent host: told %v", told)
	}
	pass([]nodeID{self, third}, 3*time.Second)
	hear(host)
	pass(all, 3*every)
	if len(told) != 2 || told[1].silent || told[1].number <= told[0].number || w.doubts(host) {
		t.Errorf("it is dead and back: told %v", told)
	}
}

// TestSuspicionsOfStrangers: only hosts that follow one in the circle are heard on it, and the
// later word counts, in whichever order they come.
func TestSuspicionsOfStrangers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "hosts")
		var circle []nodeID
		for i := range n {
			circle = append(circle, nodeID{byte(i)})
		}
		w := newWatch(nodeID{0}, time.Second, 1)
		now := time.Unix(1, 0)
		w.round(circle, now)
		id := rapid.Custom(func(t *rapid.T) nodeID { return nodeID{byte(rapid.IntRange(0, n+1).Draw(t, "id"))} })
		latest := map[[2]nodeID]suspicion{}
		for range rapid.IntRange(0, 20).Draw(t, "words") {
			v := suspicion{id.Draw(t, "watcher"), id.Draw(t, "host"), rapid.Uint64Range(1, 5).Draw(t, "number"), rapid.Bool().Draw(t, "silent")}
			last, key := latest[[2]nodeID{v.watcher, v.host}], [2]nodeID{v.watcher, v.host}
			after := (int(v.watcher[0]) - int(v.host[0]) + n) % n
			want := int(v.host[0]) < n && int(v.watcher[0]) < n && after > 0 && after <= 2*watchers && v.number > last.number
			if got := w.take(v, now); got != want {
				t.Fatalf("of %d hosts, %v after %v: news %t", n, v, last, got)
			}
			if want {
				latest[key] = v
			}
		}
		for _, host := range circle {
			doubted := false
			for key, v := range latest {
				doubted = doubted || key[1] == host && v.silent
			}
			if w.doubts(host) != doubted {
				t.Fatalf("of %v host %v is in doubt: %t", latest, host, !doubted)
			}
		}
		w.round(circle, now.Add(3*retell*time.Second+time.Nanosecond))
		if len(w.suspicions)+len(w.doubted) > 0 {
			t.Fatalf("kept for ever: %v", w.suspicions)
		}
	})
}

// TestAbsentWatcherForgives: a watcher that was itself stopped does not take what it did not
// hear in that time for silence.
func TestAbsentWatcherForgives(t *testing.T) {
	circle := []nodeID{{0}, {1}}
	w, now := newWatch(nodeID{0}, time.Second, 1), time.Unix(1, 0)
	w.hear(nodeID{1}, beat{number: 1}, false, now)
	w.forgive(now.Add(time.Minute))
	if silent, _ := w.round(circle, now.Add(time.Minute)); len(silent) > 0 {
		t.Errorf("%v are silent", silent)
	}
	if silent, _ := w.round(circle, now.Add(time.Minute+4*time.Second)); len(silent) != 1 || !w.doubts(nodeID{1}) {
		t.Errorf("%v are silent, later", silent)
	}
}

// BenchmarkHalfIsSilent is what a host has to do with the suspicions that come when half of a
// thousand hosts are cut off: three on each of these.
func BenchmarkHalfIsSilent(b *testing.B) {
	var circle []nodeID
	for i := range 1000 {
		circle = append(circle, nodeID{byte(i >> 8), byte(i)})
	}
	for b.Loop() {
		w, now := newWatch(circle[0], time.Second, 1), time.Unix(1, 0)
		w.round(circle, now)
		for i := 1; i < len(circle); i += 2 {
			for _, watcher := range following(circle, circle[i], watchers) {
				w.take(suspicion{watcher, circle[i], 1, true}, now)
			}
		}
		w.round(circle, now)
	}
}
