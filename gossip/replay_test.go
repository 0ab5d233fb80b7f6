package gossip

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// recorder is a transport of which somebody on the wire keeps all that is sent, as it
// is: encrypted.
type recorder struct {
	*memnet.Transport
	tape *tape
}

type tape struct {
	mu      sync.Mutex
	packets []taped
	streams []*taped
}

type taped struct {
	to    string
	bytes []byte
}

func (r recorder) WriteTo(b []byte, to string) (time.Time, error) {
	r.tape.mu.Lock()
	r.tape.packets = append(r.tape.packets, taped{to, slices.Clone(b)})
	r.tape.mu.Unlock()
	return r.Transport.WriteTo(b, to)
}

func (r recorder) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	c, err := r.Transport.DialTimeout(to, timeout)
	if err != nil {
		return nil, err
	}
	s := &taped{to: to}
	r.tape.mu.Lock()
	r.tape.streams = append(r.tape.streams, s)
	r.tape.mu.Unlock()
	return tapedConn{c, r.tape, s}, nil
}

type tapedConn struct {
	net.Conn
	tape *tape
	s    *taped
}

func (c tapedConn) Write(b []byte) (int, error) {
	c.tape.mu.Lock()
	c.s.bytes = append(c.s.bytes, b...)
	c.tape.mu.Unlock()
	return c.Conn.Write(b)
}

// playTo sends every packet once more, to each of some hosts, from another address.
func (p *tape) playTo(t *testing.T, from *memnet.Transport, hosts ...*host) {
	for _, m := range p.packets {
		for _, h := range hosts {
			if _, err := from.WriteTo(m.bytes, h.Addr().String()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// TestReplayOfAnOldAddress: of a host that has moved, and whose words from before are sent
// again and again, nobody believes that there are two, least of all itself.
func TestReplayOfAnOldAddress(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		var record tape
		hosts := cluster(t, n, 2)
		begin := func(at int) *host {
			return start(t, n, 2, func(c *Config) {
				tr, err := n.Listen(hostAddr(at))
				if err != nil {
					t.Fatal(err)
				}
				c.Bind, c.Transport, c.ClusterID = hostAddr(at), recorder{tr, &record}, "alpha"
			})
		}
		hosts = append(hosts, begin(2))
		within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, 2) })
		time.Sleep(5 * time.Second)
		record.mu.Lock()
		packets := slices.Clone(record.packets)
		record.mu.Unlock()
		hosts[2].stop()
		hosts[2] = begin(7)
		within(t, 40*time.Second, "the host has moved", func() bool { return allSee(hosts, 2) })
		time.Sleep(2 * time.Minute) // what was said about it until then is forgotten
		attacker, err := n.Listen(hostAddr(9))
		if err != nil {
			t.Fatal(err)
		}
		old := tape{packets: packets}
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Second) {
			old.playTo(t, attacker, hosts...)
			if at, ok := hosts[2].Clone(); ok {
				t.Fatalf("the host takes what is said of its old address for another host, at %v", at)
			}
			for _, h := range hosts {
				if p := h.Problems(); len(p) > 0 {
					t.Fatalf("host %s: %v", h.id, p)
				}
			}
		}
		if s := hosts[2].Stats(); s[RefusedReplay] == 0 || s[RefusedClone] != 0 {
			t.Errorf("counted %v", s)
		}
		if !allSee(hosts, 2) {
			t.Error("the hosts have lost each other")
		}
	})
}

// TestReplayOfFetches: who sends again and again what hosts once asked of another one does not
// keep that from serving those that ask now.
func TestReplayOfFetches(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		var record tape
		hosts := cluster(t, n, 2)
		tr, err := n.Listen(hostAddr(2))
		if err != nil {
			t.Fatal(err)
		}
		hosts[0].state.put("k", "v")
		gone := start(t, n, 2, func(c *Config) { c.Transport = recorder{tr, &record} })
		for i := range 20 {
			hosts[0].state.put("k", strconv.Itoa(i))
			within(t, 10*time.Second, "it is fetched", func() bool { return gone.state.get("k") == strconv.Itoa(i) })
		}
		n.Partition([]netip.Addr{gone.ip})
		attacker, err := n.Listen(hostAddr(9))
		if err != nil {
			t.Fatal(err)
		}
		record.mu.Lock()
		var asked []*taped
		for _, s := range record.streams {
			if s.to == hosts[0].Addr().String() {
				asked = append(asked, s)
			}
		}
		record.mu.Unlock()
		over := make(chan struct{})
		go func() {
			defer close(over)
			for range 20 {
				(&tape{streams: asked}).play(t, attacker)
			}
		}()
		for i := 0; ; i++ {
			select {
			case <-over:
				if hosts[0].Stats()[RefusedReplay] == 0 || i < 10 {
					t.Errorf("after %d rounds it has counted %v", i, hosts[0].Stats())
				}
				return
			default:
			}
			hosts[0].state.put("now", strconv.Itoa(i))
			within(t, 5*time.Second, "what is new is fetched", func() bool { return hosts[1].state.get("now") == strconv.Itoa(i) })
		}
	})
}

// play sends everything once more, from another address, in the order in which it was sent.
func (p *tape) play(t *testing.T, from *memnet.Transport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, m := range p.packets {
		if _, err := from.WriteTo(m.bytes, m.to); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	var wg sync.WaitGroup
	for _, s := range p.streams {
		wg.Go(func() {
			c, err := from.DialTimeout(s.to, time.Second)
			if err != nil {
				return // a host that is not there any more
			}
			_, _ = c.Write(s.bytes)
			time.Sleep(time.Second)
			_ = c.Close()
		})
		time.Sleep(10 * time.Millisecond)
	}
	wg.Wait()
}

// TestReplay: who has no key, but has recorded all that was ever sent, and sends it again, gets
// nothing done: no state goes back, no call runs again, on a host that was started again
// neither, and no host goes for longer than it takes to say that it is there. Who has seen a
// host leave knows better than to believe that it is back; a dead host seems alive until it has
// been probed, as one does that has just died.
func TestReplay(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		var record tape
		calls := map[int]*atomic.Int32{}
		begin := func(i int) *host {
			h := start(t, n, i, func(c *Config) {
				tr, err := n.Listen(hostAddr(i))
				if err != nil {
					t.Fatal(err)
				}
				c.Transport = recorder{tr, &record}
			})
			ran := &atomic.Int32{}
			h.Handle("count", func(context.Context, string, []byte) ([]byte, error) { ran.Add(1); return nil, nil })
			calls[i] = ran
			return h
		}
		var hosts []*host
		for i := range 4 {
			hosts = append(hosts, begin(i))
		}
		within(t, 20*time.Second, "all hosts see each other", func() bool { return allSee(hosts, 3) })
		for i := range 40 {
			h := hosts[i%4]
			h.Broadcast(h.state.put("k", fmt.Sprint("from ", i)))
			if _, err := h.Call(seconds(t, 5), hosts[(i+1)%4].id, "count", nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		if err := hosts[2].Leave(seconds(t, 5)); err != nil {
			t.Fatal(err)
		}
		hosts[2].stop()
		hosts[3].stop()
		rest := hosts[:2]
		within(t, time.Minute, "two are gone", func() bool { return allSee(rest, 1) })
		hosts[1].stop()
		time.Sleep(20 * time.Second)
		hosts[1] = begin(1)
		within(t, 20*time.Second, "one is back", func() bool { return allSee(rest, 1) })
		hosts[1].state.put("k", "last")
		hosts[1].Broadcast(hosts[1].state.put("k", "the last"))
		within(t, 5*time.Second, "both know the last word", allHave(rest, "k", "the last"))
		time.Sleep(5 * time.Second)

		ran, sums := calls[0].Load(), [][]byte{rest[0].comparer.sum(), rest[1].comparer.sum()}
		attacker, err := n.Listen(hostAddr(9))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d packets, %d streams", len(record.packets), len(record.streams))
		over := make(chan struct{})
		played := tape{packets: slices.Clone(record.packets), streams: slices.Clone(record.streams)}
		go func() {
			defer close(over)
			played.play(t, attacker)
			played.play(t, attacker)
		}()
		met := []time.Time{time.Now(), time.Now()} // when they saw each other last
		for end := false; !end; time.Sleep(10 * time.Millisecond) {
			select {
			case <-over:
				end = true
			default:
			}
			for i, h := range rest {
				alive := h.Alive()
				if slices.Contains(alive, rest[1-i].id) {
					met[i] = time.Now()
				}
				if time.Since(met[i]) > time.Second || !slices.Equal(h.comparer.sum(), sums[i]) {
					t.Fatalf("host %s sees %v, and knows %q", h.id, alive, h.state.get("k"))
				}
				if i == 0 && slices.Contains(alive, hosts[2].id) {
					t.Fatal("a host that has left is back")
				}
			}
		}
		if again := calls[0].Load() - ran; ran != 10 || again != 0 || calls[1].Load() != 0 {
			t.Errorf("of %d calls %d ran again, and %d on the host that was started again", ran, again, calls[1].Load())
		}
		within(t, 20*time.Second, "the dead are dead", func() bool { return allSee(rest, 1) })
		if hosts[0].Stats()[RefusedReplay] == 0 {
			t.Errorf("counted nothing: %v", hosts[0].Stats())
		}
		if _, err := hosts[0].Call(seconds(t, 5), hosts[1].id, "count", nil); err != nil {
			t.Error(err)
		}
	})
}

// TestReplayOfAcks: that a host answers, said to an earlier run of the one that asks, does not keep it alive.
func TestReplayOfAcks(t *testing.T) {
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
		hosts := []*host{begin(0), begin(1)}
		within(t, 20*time.Second, "they see each other", func() bool { return allSee(hosts, 1) })
		time.Sleep(2 * time.Minute)
		hosts[0].stop()
		hosts[0] = begin(0)
		within(t, 20*time.Second, "they see each other", func() bool { return allSee(hosts, 1) })
		hosts[1].stop()
		record.mu.Lock()
		old := tape{packets: slices.DeleteFunc(slices.Clone(record.packets), func(p taped) bool { return p.to != hostAddr(0).String() })}
		record.mu.Unlock()
		attacker, err := n.Listen(hostAddr(9))
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			old.playTo(t, attacker, hosts[0])
			if m, ok := hosts[0].Member(hosts[1].id); ok && m.State != Alive {
				return
			}
		}
		t.Error("a host that is off is alive for as long as somebody sends again what it said")
	})
}
