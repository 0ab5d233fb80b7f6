package gossip

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

func TestBroadcastReachesAll(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 30)
		hosts[7].Broadcast(hosts[7].state.put("k", "v"))
		took := within(t, time.Second, "all have k", allHave(hosts, "k", "v"))
		t.Logf("30 hosts have it after %v", took)
		for _, h := range hosts {
			if h.ClusterID() != "alpha" {
				t.Errorf("host %s is in cluster %q", h.id, h.ClusterID())
			}
		}
	})
}

// What a host said before it met anybody is told whom it meets, not only found when they compare.
func TestEarlyBroadcastIsHeard(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		never := func(c *Config) { c.Timing.Digest, c.Timing.PushPull = time.Hour, time.Hour }
		net.SetAll(memnet.Link{Delay: time.Millisecond}) // or they may meet before it speaks
		seed, newcomer := start(t, net, 0, never), start(t, net, 1, never)
		newcomer.Broadcast(newcomer.state.put("k", "v"))
		if len(newcomer.Alive()) > 0 {
			t.Fatal("it has met somebody before it spoke")
		}
		t.Logf("after %v", within(t, time.Second, "the other host has k", allHave([]*host{seed}, "k", "v")))
	})
}

func TestLargeDeltaReachesAll(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 30)
		big := strings.Repeat("x", 100<<10)
		hosts[3].Broadcast(hosts[3].state.put("k", big))
		t.Logf("after %v", within(t, 5*time.Second, "all have k", allHave(hosts, "k", big)))
	})
}

// What no broadcast told is found by comparing digests.
func TestLostBroadcastIsMended(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 10)
		hosts[4].state.put("k", "v") // and no Broadcast
		t.Logf("after %v", within(t, 4*time.Second, "all have k", allHave(hosts, "k", "v")))
	})
}

// A long difference comes in chunks, in order, and a host that joins gets it.
func TestLargeStateIsFetchedByNewcomer(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 3)
		for i := range 2000 {
			hosts[0].state.put(strconv.Itoa(i), strings.Repeat("x", 1000))
		}
		hosts = append(hosts, start(t, net, 3, nil))
		within(t, 10*time.Second, "all have all", func() bool {
			return allHave(hosts, "0", strings.Repeat("x", 1000))() && allHave(hosts, "1999", strings.Repeat("x", 1000))()
		})
		if m := hosts[3].state.merges; m < 2000*1000/chunkSize {
			t.Errorf("newcomer merged %d messages: not in chunks", m)
		}
	})
}

func TestBadNetworkConverges(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 10)
		net.SetAll(memnet.Link{Loss: 0.3, Duplicate: 0.2, Reorder: 0.2, Delay: 5 * time.Millisecond, Jitter: 20 * time.Millisecond})
		for i := range 50 {
			h := hosts[i%10]
			h.Broadcast(h.state.put(fmt.Sprint("k", i), "v"))
			time.Sleep(10 * time.Millisecond)
		}
		within(t, 15*time.Second, "all have all", func() bool {
			for i := range 50 {
				if !allHave(hosts, fmt.Sprint("k", i), "v")() {
					return false
				}
			}
			return true
		})
	})
}

// Halves that were apart for minutes, so that memberlist has forgotten the other
// one, find each other again and exchange what each has missed.
func TestPartitionHeals(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 30)
		var left []netip.Addr
		for _, h := range hosts[:15] {
			left = append(left, h.ip)
		}
		net.Partition(left)
		within(t, time.Minute, "each half sees itself", func() bool { return allSee(hosts, 14) })
		time.Sleep(3 * time.Minute)
		hosts[0].Broadcast(hosts[0].state.put("left", "v"))
		hosts[20].Broadcast(hosts[20].state.put("right", "v"))
		time.Sleep(time.Second)
		if hosts[1].state.get("left") != "v" || hosts[1].state.get("right") != "" {
			t.Error("the partition does not part")
		}
		net.Heal()
		t.Logf("data after %v", within(t, 8*time.Second, "all have both", func() bool {
			return allHave(hosts, "left", "v")() && allHave(hosts, "right", "v")()
		}))
		t.Logf("members after %v more", within(t, 8*time.Second, "all see all", func() bool { return allSee(hosts, 29) }))
	})
}

// Two hosts, the worst case: nobody else can bring them together.
func TestPairHeals(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 2)
		net.Cut(hosts[0].ip, hosts[1].ip)
		within(t, time.Minute, "they lose each other", func() bool { return allSee(hosts, 0) })
		time.Sleep(10 * time.Minute)
		net.Heal()
		t.Logf("after %v", within(t, 5*time.Second, "they see each other", func() bool { return allSee(hosts, 1) }))
	})
}

// A host that restarts with nothing but its list of known peers finds them,
// although its JOIN list leads nowhere.
func TestKnownPeersAreRejoined(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 3)
		time.Sleep(2 * time.Second)
		hosts[2].mu.Lock()
		known := hosts[2].known
		hosts[2].mu.Unlock()
		if len(known) != 2 {
			t.Fatalf("saved %v, want the two others", known)
		}
		hosts[2].stop()
		hosts[2] = start(t, net, 2, func(c *Config) {
			c.Join, c.Known, c.ClusterID = []string{"10.9.9.9"}, known, "alpha"
		})
		if m := hosts[2].Members(); len(m) != 3 {
			t.Errorf("members %v, want three", m)
		}
		within(t, 5*time.Second, "all see all", func() bool { return allSee(hosts, 2) })
	})
}

func TestLeaveIsNotDeath(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 4)
		if err := hosts[1].Leave(context.Background()); err != nil {
			t.Fatal(err)
		}
		hosts[1].stop()
		hosts[2].stop()
		stateOf := func(id string) (s MemberState) {
			for _, m := range hosts[3].Members() {
				if m.ID == id {
					s = m.State
				}
			}
			return s
		}
		within(t, time.Second, "host 1 has left", func() bool { return stateOf(hosts[1].id) == Left })
		within(t, time.Minute, "host 2 is dead", func() bool { return stateOf(hosts[2].id) == Dead })
		time.Sleep(2 * time.Second)
		hosts[3].mu.Lock()
		known := hosts[3].known
		hosts[3].mu.Unlock()
		if len(known) != 2 {
			t.Errorf("remembers %v: want hosts 0 and 2", known)
		}
		hosts[3].Forget(hosts[2].id)
		if s := stateOf(hosts[2].id); s != "" {
			t.Errorf("forgotten host is %s", s)
		}
	})
}

// TestMetaIsTold: a host that was killed and is started anew, under another name, is known by
// that, though it learns its cluster just when the others' word about its former life reaches it.
func TestMetaIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		h := cluster(t, net, 3)[2]
		for i := range 50 {
			h.stop()
			name := fmt.Sprint("life ", i)
			h = start(t, net, 2, func(c *Config) { c.Name = name })
			other := start(t, net, 3, nil)
			within(t, 5*time.Second, "a new host knows it as "+name, func() bool {
				m, ok := other.Member(h.id)
				return ok && m.Name == name && m.Addr == hostAddr(2) && other.roster.epochOf(h.id) == h.server.epochs.current()
			})
			other.stop()
		}
	})
}
