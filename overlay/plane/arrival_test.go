package plane

import (
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/bypass"
)

// TestArrivals: a neighbour is asked about what was sent to it a moment ago, seldom once it has got some; of who gets none of several
// packets it is known, and tried again after a while.
func TestArrivals(t *testing.T) {
	const host = cluster.NodeID("00000000000000b2")
	peers := []barePeer{{Bare: cluster.Bare{Host: host, MAC: []byte{2, 0, 0, 0, 0, 2}}, name: "host2"}}
	var l arrivals
	l.keep(peers)
	now, sent, asked := time.Second, uint64(0), 0
	pass := func(packets, taken uint64) (name string) {
		now += time.Second
		sent += packets
		for _, h := range l.asks(func(bypass.MAC) (uint64, bool) { return sent, true }, now) {
			asked++
			name = l.answer(h, taken, now)
		}
		l.keep(peers)
		return name
	}
	// It answers once before anything is said of it, and nothing is known while nothing is sent.
	for range 100 {
		if name := pass(0, 7); name != "" || asked > 1 {
			t.Fatalf("with nothing sent: %q, asked %d times", name, asked)
		}
	}
	// What is sent arrives.
	asked = 0
	for i := range uint64(100) {
		if name := pass(1000, 7+900*i); name != "" {
			t.Fatalf("%s gets none", name)
		}
	}
	if asked == 0 || asked > 26 {
		t.Errorf("in 100 s it was asked %d times", asked)
	}
	// A few that do not are a lossy network.
	for range arrivalFew - 1 {
		if name := pass(1, 1<<20); name != "" {
			t.Fatalf("%s gets none of %d", name, arrivalFew)
		}
	}
	// Of none that arrives it is known soon, and not said twice.
	last, at := uint64(1<<20), now
	pass(0, last)
	for l.of[host].lost == 0 && now < at+time.Minute {
		pass(10, last)
	}
	if took := now - at; took > arrivalEvery+6*time.Second {
		t.Errorf("it took %v", took)
	}
	if !l.lost(host) || pass(10, last) != "" {
		t.Errorf("after %v: %+v", now-at, l.of[host])
	}
	at = now
	for l.lost(host) && now < at+2*arrivalAgain {
		pass(0, last)
	}
	if took := now - at; took > arrivalAgain {
		t.Errorf("it is tried again after %v", took)
	}
	// In vain: it is tried less often.
	for !l.lost(host) && now < at+2*arrivalAgain {
		pass(10, last)
	}
	at = now
	for l.lost(host) && now < at+5*arrivalAgain {
		pass(0, last)
	}
	if took := now - at; took < 4*arrivalAgain-time.Minute || l.lost(host) {
		t.Errorf("after the second time it is tried again after %v", took)
	}
	// What the neighbour has not got yet as it was sent just now says nothing.
	l = arrivals{}
	l.keep(peers)
	pass(0, 0)
	pass(0, 0)
	sent += arrivalFew
	if hosts := l.asks(func(bypass.MAC) (uint64, bool) { return sent, true }, now+time.Second); len(hosts) > 0 {
		t.Errorf("asked at once about what is on its way")
	}
	// Another MAC address is another way.
	l.of[host].lost = now
	peers[0].MAC = []byte{2, 0, 0, 0, 0, 3}
	if l.keep(peers); l.lost(host) {
		t.Errorf("a host with another MAC address is taken for what it was")
	}
}

// TestArrivalsOutage: nothing is said of the way without headers where nothing at all has passed for a while, nor where counters began anew.
func TestArrivalsOutage(t *testing.T) {
	const host = cluster.NodeID("00000000000000b2")
	peers := []barePeer{{Bare: cluster.Bare{Host: host, MAC: []byte{2, 0, 0, 0, 0, 2}}, name: "host2"}}
	for _, unheard := range []bool{true, false} { // whether the host is asked in vain meanwhile
		var l arrivals
		l.keep(peers)
		now, sent, taken, asked := time.Second, uint64(0), uint64(0), 0
		pass := func(packets uint64, passes bool) {
			now += time.Second
			if sent += packets; passes {
				taken += packets
			}
			for _, h := range l.asks(func(bypass.MAC) (uint64, bool) { return sent, true }, now) {
				if asked++; !passes && unheard {
					l.failed(h, now)
				} else {
					l.answer(h, taken, now)
				}
			}
			if l.lost(host) {
				t.Fatalf("after %v: nothing arrives, it seems", now)
			}
		}
		again := func(times int, packets uint64, passes bool) {
			for range times {
				pass(packets, passes)
			}
		}
		again(10, 10, true)
		again(30, 0, true)
		for range 3 { // what is sent meanwhile is lost, and after that others begin to send first
			asked = 0
			again(map[bool]int{true: 30, false: 2}[unheard], 10, false)
			if unheard && asked > 10 {
				t.Errorf("in 30 s a host that does not answer was asked %d times", asked)
			}
			again(2, 0, true)
			again(20, 10, true)
			again(30, 0, true)
		}
		sent = 0
		again(30, 0, true)
		again(30, 10, true)
	}
}
