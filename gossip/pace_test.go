package gossip

import (
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

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

// sender notes when packets are sent.
type sender struct {
	memberlist.Transport
	mu   sync.Mutex
	sent []time.Time
}

func (s *sender) WriteTo(b []byte, addr string) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, time.Now())
	return s.Transport.WriteTo(b, addr)
}

// TestPulse: a host that keeps to a pulse says all that it says of its own accord, beats, comparisons and probes, at its
// moments; answers come when they are asked for.
func TestPulse(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		const every, delay = 200 * time.Millisecond, 3 * time.Millisecond
		net.SetAll(memnet.Link{Delay: delay})
		began := time.Now()
		phase := func(i int) time.Duration { return time.Duration(i) * 61 * time.Millisecond }
		var hosts []*host
		var senders []*sender
		for i := range 2 {
			time.Sleep(137 * time.Millisecond)
			tr, err := net.Listen(hostAddr(i))
			if err != nil {
				t.Fatal(err)
			}
			s := &sender{Transport: tr}
			senders = append(senders, s)
			hosts = append(hosts, start(t, net, i, func(c *Config) {
				c.Transport = s
				c.Pulse = func(d time.Duration) time.Duration {
					since := time.Since(began) - phase(i)
					return max((since+d).Round(every)-since, time.Nanosecond)
				}
			}))
		}
		within(t, 20*time.Second, "both see each other", func() bool { return allSee(hosts, 1) })
		time.Sleep(10 * time.Second)
		rest := time.Now()
		time.Sleep(5 * time.Second)
		for i, s := range senders {
			s.mu.Lock()
			own, answers := 0, 0
			for _, at := range s.sent {
				if at.Before(rest) {
					continue
				}
				switch at.Sub(began) % every {
				case phase(i):
					own++
				case phase(1-i) + delay:
					answers++
				default:
					t.Errorf("host %d says something %v after its moment", i, at.Sub(began)%every-phase(i))
				}
			}
			s.mu.Unlock()
			if own < 25+3 || answers == 0 { // 25 beats and some comparisons; memberlist probes itself, too
				t.Errorf("host %d said something %d times and answered %d times", i, own, answers)
			}
			hosts[i].spreader.pace.mu.Lock()
			if p := hosts[i].spreader.pace; !p.long || !p.step {
				t.Errorf("host %d gossips in long rounds: %v, in step with its beats: %v", i, p.long, p.step)
			}
			hosts[i].spreader.pace.mu.Unlock()
		}
	})
}
