package gossip

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// TestFirstMessages: nothing that reaches a host of the older version has a form that it does not
// read, whoever has met whom.
func TestFirstMessages(t *testing.T) {
	old, both := versions{protoBeats - 1, protoBeats - 1}, versions{protoBeats - 1, protoBeats}
	understood := func(t *testing.T, h *host) {
		t.Helper()
		time.Sleep(time.Second)
		if c := h.Stats(); c[RefusedVersion]+c[RefusedGarbage] > 0 {
			t.Errorf("the older host has refused %v", c)
		}
	}
	id := func(h *host) nodeID { id, _ := parseNode(h.id); return id }
	t.Run("a proof of who was not met", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *memnet.Network) {
			asks, older := startAs(t, n, 0, both), startAs(t, n, 1, old)
			n.Cut(asks.ip, older.ip)
			time.Sleep(time.Second)
			n.Heal()
			asks.Present(t.Context(), older.id, older.Addr())
			understood(t, older)
		})
	})
	t.Run("a beat to a host that came when it was said who gets them", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *memnet.Network) {
			hosts := []*host{startAs(t, n, 0, both), startAs(t, n, 1, old)}
			within(t, 20*time.Second, "both see each other", func() bool { return allSee(hosts, 1) })
			hosts[0].beater.send([]nodeID{id(hosts[1])}, nil, false)
			understood(t, hosts[1])
		})
	})
	// What waits to be sent is written in the newest form, and then the older host comes.
	t.Run("news from before it came", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *memnet.Network) {
			hosts := []*host{startAs(t, n, 0, both), startAs(t, n, 1, both)}
			within(t, 20*time.Second, "both see each other", func() bool { return allSee(hosts, 1) })
			time.Sleep(time.Minute)
			// The other newer host hears of it a moment later, and would until then answer its pings with news.
			n.Cut(hosts[1].ip, hostAddr(2).Addr())
			older := startAs(t, n, 2, old)
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
				for i, h := range hosts {
					h.Broadcast(h.state.put(fmt.Sprint("small ", i), time.Now().String()))
					h.beater.relayDoubt(suspicion{id(h), id(hosts[1-i]), uint64(time.Now().UnixNano()), false}.encode())
				}
			}
			within(t, 20*time.Second, "both that can see each other", func() bool { return allSee([]*host{hosts[0], older}, 2) })
			understood(t, older)
		})
	})
	t.Run("news for one that is taken for dead", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *memnet.Network) {
			hosts := []*host{startAs(t, n, 0, both), startAs(t, n, 1, both)}
			older := startAs(t, n, 2, old)
			within(t, 20*time.Second, "all see each other", func() bool { return allSee([]*host{hosts[0], hosts[1], older}, 2) })
			for _, h := range hosts {
				n.CutOneWay(older.ip, h.ip)
			}
			within(t, time.Minute, "it is taken for dead", func() bool { return allSee(hosts, 1) })
			for end := time.Now().Add(45 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				for i, h := range hosts {
					h.Broadcast(h.state.put(fmt.Sprint("small ", i), time.Now().String()))
				}
			}
			understood(t, older)
		})
	})
}

// TestProofOfAnyVersion: hosts that have no version in common prove to each other that they are there,
// and do nothing else for each other.
func TestProofOfAnyVersion(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		hosts := []*host{startAs(t, n, 0, versions{protoMin, protoMin}), startAs(t, n, 1, versions{protoMax, protoMax})}
		time.Sleep(5 * time.Second)
		for i, h := range hosts {
			if !h.Present(t.Context(), hosts[1-i].id, hosts[1-i].Addr()) {
				t.Errorf("host %s has no proof of the other", h.id)
			}
		}
		var ran atomic.Bool
		hosts[1].Handle("echo", func(context.Context, string, []byte) ([]byte, error) { ran.Store(true); return nil, nil })
		g := hosts[0].Gossip
		r := request{7, 0, time.Second, g.addr, "echo", []byte("hello")}
		at := hosts[1].Addr()
		before := hosts[1].Stats()[RefusedVersion]
		to := (&peer{Member: Member{ID: hosts[1].id, Addr: netip.AddrPortFrom(at.Addr(), at.Port())}}).node()
		if err := g.ml.SendReliable(to, envelope{protoMin, kindRequest, "alpha", g.self, r.encode(protoMin)}.encode()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if hosts[1].Stats()[RefusedVersion] <= before || ran.Load() {
			t.Error("a call of a version that is not spoken was not refused")
		}
	})
}
