package gossip

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// asked is a State that tells when it is first asked for what a peer lacks.
type asked struct {
	*toy
	first func()
}

func (s asked) Missing(digest []byte, limit int) iter.Seq[[]byte] {
	s.first()
	return s.toy.Missing(digest, limit)
}

// TestFetchGoesOnAfterAnOutage: in the middle of a fetch nothing arrives for longer than it
// takes to give a stream up, and not for so long that a host is taken for dead. Neither
// side goes on waiting for what the other could not say.
func TestFetchGoesOnAfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		a := start(t, net, 0, nil)
		healed := make(chan time.Time, 1)
		b := startWith(t, net, 1, func(s *toy) State {
			return asked{s, sync.OnceFunc(func() {
				net.Cut(hostAddr(0).Addr(), hostAddr(1).Addr())
				time.AfterFunc(4500*time.Millisecond, func() {
					net.Heal()
					healed <- time.Now()
				})
			})}
		})
		within(t, 20*time.Second, "both see each other", func() bool { return allSee([]*host{a, b}, 1) })
		time.Sleep(5 * time.Second)
		b.state.put("k", "v") // and no Broadcast
		began := <-healed
		within(t, 15*time.Second, "the other one has it", allHave([]*host{a}, "k", "v"))
		t.Logf("%v after the outage", time.Since(began))
	})
}

// TestLossyClusterForms: a cluster where every fifth packet is lost forms, and all know all
// soon: no host is left out for the minutes that a lost answer used to take.
func TestLossyClusterForms(t *testing.T) {
	const n = 40
	notRaced(t, n)
	for seed := range 3 {
		bubble(t, func(t *testing.T, _ *memnet.Network) {
			net := memnet.New(uint64(seed))
			net.SetAll(memnet.Link{Loss: 0.2, Duplicate: 0.005, Reorder: 0.01, Delay: 500 * time.Microsecond, Jitter: time.Millisecond})
			var hosts []*host
			for i := range n {
				h := start(t, net, i, nil)
				h.state.put(fmt.Sprint("k", i), "v") // and no Broadcast
				hosts = append(hosts, h)
				time.Sleep(20 * time.Millisecond)
			}
			t.Logf("seed %d: all know all after %v", seed, within(t, 20*time.Second, "all know all", func() bool {
				for i := range n {
					if !allHave(hosts, fmt.Sprint("k", i), "v")() {
						return false
					}
				}
				return allSee(hosts, n-1)
			}))
		})
	}
}

// TestDialAlongside: a stream whose opening is lost delays nobody for long, and of those that
// were opened beside it none is left.
func TestDialAlongside(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		g := start(t, n, 0, nil).Gossip
		inner, err := n.Listen(hostAddr(1))
		if err != nil {
			t.Fatal(err)
		}
		tr := newTransport(g.door, inner)
		var mu sync.Mutex
		dials, closed := 0, 0
		tr.dialer = func(ctx context.Context, _ string) (net.Conn, error) {
			mu.Lock()
			dials++
			first := dials == 1
			mu.Unlock()
			if first { // its SYN was lost, the next one arrives
				time.Sleep(time.Second)
			}
			here, _ := net.Pipe()
			return counted{here, func() { mu.Lock(); closed++; mu.Unlock() }}, nil
		}
		began := time.Now()
		c, err := tr.DialTimeout("10.0.0.1:7946", time.Minute)
		if took := time.Since(began); err != nil || took != dialAgain {
			t.Errorf("a stream after %v, %v", took, err)
		}
		time.Sleep(2 * time.Second)
		mu.Lock()
		if dials != 2 || closed != 1 || len(tr.open) != 1 {
			t.Errorf("%d streams were opened, %d are closed, %d open; want 2, 1, 1", dials, closed, len(tr.open))
		}
		mu.Unlock()
		_ = c.Close()

		refused := errors.New("connection refused")
		tr.dialer = func(context.Context, string) (net.Conn, error) { return nil, refused }
		if _, err := tr.DialTimeout("10.0.0.1:7946", time.Minute); !errors.Is(err, refused) {
			t.Errorf("a host that refuses: %v", err)
		}
		tr.dialer = func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
		began = time.Now()
		if _, err := tr.DialTimeout("10.0.0.1:7946", time.Minute); err == nil || time.Since(began) != dialTimeout {
			t.Errorf("a host that does not answer: %v after %v", err, time.Since(began))
		}
		if err := tr.Shutdown(); err != nil {
			t.Error(err)
		}
	})
}

// counted is a connection that tells when it is closed.
type counted struct {
	net.Conn
	closed func()
}

func (c counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

// suspicions counts how often memberlist suspects a host.
type suspicions struct {
	slog.Handler
	n *atomic.Int32
}

func (s suspicions) Enabled(context.Context, slog.Level) bool { return true }

func (s suspicions) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "memberlist: Suspect") {
		s.n.Add(1)
	}
	return nil
}

// TestFewAreSuspected: where packets are lost a host that answers is rarely suspected, since
// each suspicion, and its denial, goes to all: what all send would grow with the square of the hosts.
func TestFewAreSuspected(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		const n, minutes = 40, 1
		notRaced(t, n)
		var count atomic.Int32
		var hosts []*host
		for i := range n {
			hosts = append(hosts, start(t, net, i, func(c *Config) { c.Log = slog.New(suspicions{slog.DiscardHandler, &count}) }))
		}
		within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, n-1) })
		if count.Load() > 0 {
			t.Errorf("%d suspicions without loss", count.Load())
		}
		net.SetAll(memnet.Link{Loss: 0.2, Delay: 500 * time.Microsecond, Jitter: time.Millisecond})
		time.Sleep(minutes * time.Minute)
		share := float64(count.Load()) / (n * minutes * 60)
		t.Logf("%.2f%% of the probes end in a suspicion", 100*share)
		if share > 0.005 {
			t.Errorf("%d suspicions", count.Load())
		}
	})
}

// TestLargeNewsSpread: what fits no packet is sent to a few hosts by each that hears of it.
// Those whom nobody chooses are asked at once what they know, and do not wait for a second.
func TestLargeNewsSpread(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		const n, rounds = 100, 20
		hosts := cluster(t, net, n)
		time.Sleep(5 * time.Second)
		var all []time.Duration
		for i := range rounds {
			key, value := fmt.Sprint("k", i), strings.Repeat("v", 3*MaxBroadcast)
			h := hosts[i%n]
			h.Broadcast(h.state.put(key, value))
			all = append(all, within(t, 5*time.Second, "all have it", allHave(hosts, key, value)))
			time.Sleep(2 * time.Second)
		}
		slices.Sort(all)
		t.Logf("all have it after %v", all)
		// About six of a million hosts (e^-12) are neither sent it nor asked: one late piece of news is chance.
		if all[rounds-2] > grace+100*time.Millisecond {
			t.Error("that is late")
		}
	})
}

// TestNewsUnderChurnSpreads: while more changes than usual are told each piece of news is
// still sent often enough to reach every host: none waits to be compared.
func TestNewsUnderChurnSpreads(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		const n, changes, pace = 60, 200, 5 * time.Millisecond
		hosts := cluster(t, net, n)
		time.Sleep(5 * time.Second)
		value := strings.Repeat("v", 250) // an endpoint with its signature, sealed
		began := make([]time.Time, changes)
		var took []time.Duration
		waiting := map[int]bool{}
		for i := 0; i < changes || len(waiting) > 0; i++ {
			if i < changes {
				h := hosts[i*7%n]
				h.Broadcast(h.state.put(fmt.Sprint("k", i), value))
				began[i], waiting[i] = time.Now(), true
			}
			time.Sleep(pace)
			for k := range waiting {
				if allHave(hosts, fmt.Sprint("k", k), value)() {
					took = append(took, time.Since(began[k]))
					delete(waiting, k)
				}
			}
		}
		slices.Sort(took)
		t.Logf("half after %v, 99%% %v, all %v", took[changes/2], took[changes*99/100], took[changes-1])
		if took[changes*99/100] > 200*time.Millisecond {
			t.Error("that is late")
		}
	})
}
