package gossip

import (
	"slices"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// idle has hosts beat slowly, or all hurry again.
func idle(hosts []*host, yes bool) {
	for _, h := range hosts {
		h.Hurry(!yes)
	}
}

// undoubted fails the test if a host is in doubt before d is over.
func undoubted(t *testing.T, hosts []*host, d time.Duration, when string) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, of := range hosts {
			if !doubt(hosts, of, false)() {
				t.Fatalf("%s: host %s is in doubt", when, of.id)
			}
		}
	}
}

// TestSlowBeats: hosts that need not hurry are in doubt a few seconds after they have gone silent, and not before; as soon as they have
// to, they are within a second or so. Neither the change nor that some hurry and others do not puts anybody in doubt.
func TestSlowBeats(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		net.SetAll(memnet.Link{Loss: 0.02, Delay: time.Millisecond, Jitter: 5 * time.Millisecond})
		hosts := cluster(t, net, 8)
		undoubted(t, hosts, 5*time.Second, "all hurry")
		idle(hosts[:5], true)
		undoubted(t, hosts, time.Minute, "some hurry")
		idle(hosts, true)
		undoubted(t, hosts, time.Minute, "none hurries")
		silent, others := hosts[4], slices.Delete(slices.Clone(hosts), 4, 5)
		cut := func() {
			for _, h := range others {
				net.Cut(silent.ip, h.ip)
			}
		}
		cut()
		t.Logf("doubted after %v", within(t, 5*time.Second, "all doubt it", doubt(others, silent, true)))
		net.Heal()
		within(t, 2*time.Second, "none doubts it", doubt(others, silent, false))
		for range 20 {
			time.Sleep(5 * time.Second)
			idle(hosts, false)
			undoubted(t, hosts, 1100*time.Millisecond, "all hurry again")
			cut()
			within(t, 1300*time.Millisecond, "all doubt it", doubt(others, silent, true))
			net.Heal()
			within(t, time.Second, "none doubts it", doubt(others, silent, false))
			idle(hosts, true)
		}
	})
}

// TestSlowBeatsNeedAll: while a host answers that does not know slow beats all hurry, and it takes nobody for silent: neither when it
// comes, be it by an upgrade host by host or back, nor later.
func TestSlowBeatsNeedAll(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		older, newer := versions{protoMin, protoSlow - 1}, versions{protoMin, protoMax}
		hosts := []*host{startAs(t, net, 0, newer), startAs(t, net, 1, newer), startAs(t, net, 2, newer), startAs(t, net, 3, older)}
		within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, 3) })
		idle(hosts, true)
		slow := func() (n int) {
			for _, h := range hosts {
				h.watch.mu.Lock()
				if h.watch.slow {
					n++
				}
				h.watch.mu.Unlock()
			}
			return n
		}
		rounds := 6
		if raced { // each may break the detector (golang/go 78156)
			rounds = 2
		}
		for round := range rounds {
			undoubted(t, hosts, 20*time.Second, "beside an older host")
			if n := slow(); n > 0 {
				t.Fatalf("%d hosts beat slowly beside one that does not know that", n)
			}
			hosts[3].stop()
			within(t, time.Minute, "it is dead", func() bool { return allSee(hosts[:3], 2) })
			if round%2 == 0 {
				hosts[3] = startAs(t, net, 3, newer)
				idle(hosts, true)
				within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, 3) })
				within(t, 2*time.Second, "all beat slowly", func() bool { return slow() == 4 })
				within(t, time.Second, "none doubts it, who may have been in doubt as it ended", doubt(hosts, hosts[3], false))
				undoubted(t, hosts, 20*time.Second, "all are new")
				hosts[3].stop()
				within(t, time.Minute, "it is dead", func() bool { return allSee(hosts[:3], 2) })
			}
			within(t, 2*time.Second, "those that are left beat slowly", func() bool { return slow() >= 3 })
			hosts[3] = startAs(t, net, 3, older)
			idle(hosts, true)
			within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, 3) })
			within(t, time.Second, "none doubts it, who may have been in doubt as it ended", doubt(hosts, hosts[3], false))
		}
	})
}

// TestAtRest: where nobody hurries a host wakes once a second for what it says of its own accord, and for what others say a few
// times more. It is a count, and not a share of a processor, which is another one on each machine.
func TestAtRest(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		const delay = 3 * time.Millisecond
		net.SetAll(memnet.Link{Delay: delay})
		began := time.Now()
		phase := func(i int) time.Duration { return time.Duration(i) * 61 * time.Millisecond }
		var hosts []*host
		var senders []*sender
		for i := range 3 {
			tr, err := net.Listen(hostAddr(i))
			if err != nil {
				t.Fatal(err)
			}
			senders = append(senders, &sender{Transport: tr})
			hosts = append(hosts, start(t, net, i, func(c *Config) {
				c.Transport = senders[i]
				c.Pulse = func(d time.Duration) time.Duration {
					apart := 200 * time.Millisecond
					if d >= time.Second {
						apart = time.Second
					}
					since := time.Since(began) - phase(i)
					return max((since+d).Round(apart)-since, time.Nanosecond)
				}
			}))
		}
		idle(hosts, true)
		within(t, 20*time.Second, "all see each other", func() bool { return allSee(hosts, 2) })
		time.Sleep(20 * time.Second)
		rest := time.Now()
		time.Sleep(time.Minute)
		for i, s := range senders {
			s.mu.Lock()
			moments := map[time.Duration]bool{}
			own, strays, packets := 0, 0, 0
			for _, at := range s.sent {
				if at.Before(rest) {
					continue
				}
				packets++
				since := at.Sub(began)
				if moments[since] {
					continue
				}
				moments[since] = true
				switch at := since % time.Second; {
				case at == phase(i):
					own++
				case !slices.ContainsFunc([]int{0, 1, 2}, func(other int) bool { return at == phase(other)+delay }):
					strays++
				}
			}
			s.mu.Unlock()
			t.Logf("host %d sends %d packets in a minute at %d moments, %d of them its own", i, packets, len(moments), own)
			if strays > 0 { // neither at its own moment nor asked at another host's
				t.Errorf("host %d sends something at %d other moments of the minute", i, strays)
			}
			// Of packets: two beats, a comparison, a probe, and what others' probes are answered by, each second.
			if packets > 60*6 || len(moments) > 60*4 || own > 61 {
				t.Errorf("host %d sends %d packets in a minute at %d moments, %d of them its own", i, packets, len(moments), own)
			}
		}
	})
}

// TestTurning: hosts that need to hurry and need not in turns, faster than memberlist probes, find out who is dead all the same.
func TestTurning(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		began := time.Now()
		var hosts []*host
		for i := range 4 {
			phase := time.Duration(i) * 61 * time.Millisecond
			hosts = append(hosts, start(t, net, i, func(c *Config) {
				c.Pulse = func(d time.Duration) time.Duration {
					apart := 200 * time.Millisecond
					if d >= time.Second {
						apart = time.Second
					}
					since := time.Since(began) - phase
					return max((since+d).Round(apart)-since, time.Nanosecond)
				}
			}))
		}
		within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, 3) })
		idle(hosts, true)
		time.Sleep(20 * time.Second)
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for yes := false; ; yes = !yes {
				select {
				case <-stop:
					return
				case <-time.After(300 * time.Millisecond):
					idle(hosts[:3], yes)
				}
			}
		}()
		time.Sleep(5 * time.Second)
		for _, h := range hosts[:3] {
			net.Cut(hosts[3].ip, h.ip)
		}
		within(t, 30*time.Second, "it is dead", func() bool { return allSee(hosts[:3], 2) })
	})
}
