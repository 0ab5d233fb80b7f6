package gossip

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

var (
	older = versions{protoMax, protoMax}
	newer = versions{protoMax, protoMax + 1}
)

// startAs runs host i, with an "echo" to call, as a program that speaks these versions.
func startAs(t *testing.T, n *memnet.Network, i int, speaks versions) *host {
	h := start(t, n, i, func(c *Config) { c.speaks, c.ClusterID = speaks, "alpha" })
	h.Handle("echo", func(_ context.Context, _ string, body []byte) ([]byte, error) { return body, nil })
	return h
}

// understand: calls, broadcasts and, with large values, fetches pass between all hosts,
// and none of their frames is refused.
func understand(t *testing.T, hosts []*host, round string) {
	t.Helper()
	within(t, 30*time.Second, "all hosts see each other", func() bool { return allSee(hosts, len(hosts)-1) })
	for i, from := range hosts {
		for _, to := range hosts {
			if got, err := from.Call(seconds(t, 5), to.id, "echo", []byte("hello")); err != nil || string(got) != "hello" {
				t.Errorf("%s: call from %s to %s: %q, %v", round, from.id, to.id, got, err)
			}
		}
		key := fmt.Sprint(round, i)
		from.Broadcast(from.state.put(key, "v"))
		from.state.put(key+" fetched", "v")
		within(t, 5*time.Second, round+": a broadcast from "+from.id, allHave(hosts, key, "v"))
		within(t, 10*time.Second, round+": what is fetched from "+from.id, allHave(hosts, key+" fetched", "v"))
	}
	time.Sleep(30 * time.Second) // push/pulls too
	for _, h := range hosts {
		if refused := h.Stats()[RefusedVersion]; refused > 0 {
			t.Errorf("%s: host %s has refused %d frames", round, h.id, refused)
		}
	}
}

// TestUpgradeHostByHost: while hosts of two versions are in a cluster all of them write
// the older one; when all speak the newer one they write that, until an older host comes.
func TestUpgradeHostByHost(t *testing.T) {
	t.Run("to the next version", func(t *testing.T) { upgradeHostByHost(t, older, newer) })
	t.Run("to this one", func(t *testing.T) {
		upgradeHostByHost(t, versions{protoMin, protoMax - 1}, versions{protoMin, protoMax})
	})
}

func upgradeHostByHost(t *testing.T, older, newer versions) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		var hosts []*host
		for i := range 3 {
			hosts = append(hosts, startAs(t, n, i, older))
		}
		understand(t, hosts, "all older")
		for i := range hosts {
			hosts[i].stop()
			hosts[i] = startAs(t, n, i, newer)
			understand(t, hosts, fmt.Sprintf("%d newer", i+1))
			want := older.max
			if i == len(hosts)-1 {
				want = newer.max
			}
			for _, h := range hosts {
				if got := h.roster.spoken.writes(); got != min(want, h.cfg.speaks.max) {
					t.Errorf("%d newer: host %s writes version %d, want %d", i+1, h.id, got, want)
				}
			}
		}
		hosts = append(hosts, startAs(t, n, len(hosts), older))
		understand(t, hosts, "an older one has come")
		for _, h := range hosts {
			if len(h.Problems()) > 0 {
				t.Errorf("host %s: %v", h.id, h.Problems())
			}
		}
	})
}

// TestNewerAnswersWhoIsNotKnownYet: a response is of no newer version than its request.
func TestNewerAnswersWhoIsNotKnownYet(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		hosts := []*host{startAs(t, n, 0, newer), startAs(t, n, 1, older)}
		understand(t, hosts, "both")
		g := hosts[0].roster
		g.mu.Lock()
		p := g.peers[hosts[1].id]
		g.change(p, func() { p.State = Dead })
		delete(g.peers, hosts[1].id)
		g.mu.Unlock()
		if v := g.spoken.writes(); v != newer.max {
			t.Fatalf("alone it writes %d", v)
		}
		if _, err := hosts[1].Call(seconds(t, 1), hosts[0].id, "echo", nil); err != nil {
			t.Error(err)
		}
	})
}

// TestCallsOfTheOlderVersion: a call without an epoch, which anybody may have recorded while
// there were older hosts, does not run where there are none any more.
func TestCallsOfTheOlderVersion(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		hosts := []*host{startAs(t, n, 0, versions{protoMin, protoMax}), startAs(t, n, 1, versions{protoMin, protoMax})}
		within(t, 20*time.Second, "both see each other", func() bool { return allSee(hosts, 1) })
		var ran atomic.Int32
		hosts[0].Handle("count", func(context.Context, string, []byte) ([]byte, error) { ran.Add(1); return nil, nil })
		g := hosts[1].Gossip
		for _, version := range []uint8{protoEpochs - 1, protoEpochs} {
			r := request{7, 0, time.Second, g.addr, "count", nil}
			if err := g.ml.SendReliable(g.roster.nodeOf(hosts[0].id), g.post.sealAs(version, kindRequest, r.encode(version))); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		if n := ran.Load(); n != 0 {
			t.Errorf("calls without the epoch ran %d times", n)
		}
		// Who does not know yet that all are newer is told the epoch, and asks again.
		to := g.roster.nodeOf(hosts[0].id)
		if _, err := g.caller.node(seconds(t, 5), to, protoEpochs-1, "count", nil); err != nil || ran.Load() != 1 {
			t.Errorf("a call of the older version: %v, %d ran", err, ran.Load())
		}
	})
}
