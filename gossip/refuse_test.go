package gossip

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// A host with another key gets nowhere, and both sides say why.
func TestWrongKeyIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 2)
		odd := start(t, net, 2, func(c *Config) { c.Keys = [][]byte{bytes.Repeat([]byte("k"), 32)} })
		time.Sleep(10 * time.Second)
		if len(odd.Alive()) != 0 || odd.ClusterID() != "" || !allSee(hosts, 1) {
			t.Errorf("the odd host sees %v of cluster %q", odd.Alive(), odd.ClusterID())
		}
		if hosts[0].Stats()[RefusedKey] == 0 || odd.Stats()[RefusedKey] == 0 {
			t.Errorf("counted %v and %v", hosts[0].Stats(), odd.Stats())
		}
		at := func(n int) netip.Addr { return hostAddr(n).Addr() }
		if s := odd.Strangers(); len(s) == 0 || s[0].Addr != at(0) {
			t.Errorf("the odd host knows of %v", s)
		}
		if s := hosts[0].Strangers(); len(s) != 1 || s[0].Addr != at(2) || time.Since(s[0].Since) < 5*time.Second || time.Since(s[0].Last) > rejoinLimit+time.Second {
			t.Errorf("the host that it has called knows of %v", s)
		}
		odd.stop()
		time.Sleep(strangerMemory + time.Second)
		if s := hosts[0].Strangers(); len(s) > 0 {
			t.Errorf("after it has gone: %v", s)
		}
	})
}

func TestOtherClusterIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 3)
		odd := start(t, net, 3, func(c *Config) { c.ClusterID = "beta" })
		odd.state.put("secret", "v")
		time.Sleep(time.Minute)
		if len(odd.Alive()) != 0 || !allSee(hosts, 2) {
			t.Errorf("the odd host sees %v", odd.Alive())
		}
		for _, h := range append(hosts, odd) {
			if h != odd && h.state.get("secret") != "" {
				t.Error("state has passed between clusters")
			}
		}
		for _, h := range []*host{hosts[0], odd} {
			met, theirs, at := h.Foreigners(), "beta", []netip.Addr{odd.ip}
			if h == odd { // of the hosts that it dials one names the others, in any order
				theirs, at = "alpha", []netip.Addr{hosts[0].ip, hosts[1].ip, hosts[2].ip}
			}
			if len(met) == 0 || met[0].Cluster != theirs || !slices.Contains(at, met[0].Addr) || h.Stats()[RefusedCluster] == 0 {
				t.Errorf("host %s met %+v, counts %v", h.id, met, h.Stats())
			}
			if h == odd && met[0].Hosts != 3 {
				t.Errorf("the odd host met a cluster of %d hosts", met[0].Hosts)
			}
		}
		if _, err := odd.Call(seconds(t, 5), hosts[0].id, "x", nil); err == nil {
			t.Error("call between clusters succeeds")
		}
		for range 60 {
			time.Sleep(time.Second)
			if p := hosts[0].Foreigners(); len(p) != 1 || !p[0].Addr.IsValid() {
				t.Fatalf("while it is there: met %+v", p)
			}
		}
		odd.stop()
		within(t, 15*time.Second, "it is no problem any more", func() bool { return len(hosts[0].Foreigners()) == 0 })
	})
}

// Packets in the name of a host, which anybody can send, do not make it one with another key.
func TestForgedPacketsAccuseNobody(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 3)
		hosts[2].stop()
		within(t, time.Minute, "it is dead", func() bool { return allSee(hosts[:2], 1) })
		forger, err := net.Listen(hostAddr(2))
		if err != nil {
			t.Fatal(err)
		}
		forged := append([]byte{1}, bytes.Repeat([]byte("x"), 60)...)
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			if _, err := forger.WriteTo(forged, hosts[0].Addr().String()); err != nil {
				t.Fatal(err)
			}
			if s := hosts[0].Strangers(); len(s) > 0 {
				t.Fatalf("after forged packets: %v", s)
			}
		}
		if hosts[0].Stats()[RefusedKey] == 0 {
			t.Error("they were not counted")
		}
	})
}

// Who is refused for its key, and has the right one later, is no problem any more.
func TestKeyIsSetRight(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		odd := start(t, net, 2, func(c *Config) { c.Keys = [][]byte{bytes.Repeat([]byte("k"), 32)}; c.ClusterID = "alpha" })
		host := start(t, net, 0, func(c *Config) { c.Join = []string{hostAddr(2).String()} })
		within(t, 10*time.Second, "it is named", func() bool { return len(host.Strangers()) == 1 })
		odd.stop()
		within(t, strangerMemory+time.Second, "it is no problem any more", func() bool { return len(host.Strangers()) == 0 })
	})
}

// Fresh hosts meet each other before any has a cluster; nothing but membership
// passes. When a seed appears they all take its ID.
func TestFreshHostsWaitForASeed(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		var hosts []*host
		for i := range 4 {
			hosts = append(hosts, start(t, net, i, func(c *Config) { c.ClusterID = "" }))
		}
		hosts[1].state.put("k", "v")
		time.Sleep(10 * time.Second)
		if hosts[0].state.get("k") != "" {
			t.Error("state passes between hosts without a cluster")
		}
		if _, err := hosts[1].ClusterKnown(seconds(t, 1)); err == nil {
			t.Error("cluster known without a seed")
		}
		if err := hosts[2].SetClusterID("gamma"); err != nil {
			t.Fatal(err)
		}
		for _, h := range hosts {
			if id, err := h.ClusterKnown(seconds(t, 5)); err != nil || id != "gamma" {
				t.Errorf("host %s: %q, %v", h.id, id, err)
			}
		}
		if err := hosts[3].SetClusterID("delta"); err == nil || !strings.Contains(err.Error(), "gamma") {
			t.Errorf("second ID: %v", err)
		}
		within(t, 5*time.Second, "state passes", allHave(hosts, "k", "v"))
	})
}

// Two seeds were made by mistake. A fresh host joins one of them, whichever it
// meets first, and is refused by the other.
func TestFreshHostTakesOneCluster(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		a := start(t, net, 0, nil)
		b := start(t, net, 1, func(c *Config) { c.ClusterID, c.Join = "beta", nil })
		fresh := start(t, net, 2, func(c *Config) { c.Join = []string{hostAddr(0).String(), hostAddr(1).String()} })
		time.Sleep(time.Minute)
		mine, other := a, b
		if fresh.ClusterID() == "beta" {
			mine, other = b, a
		}
		if len(mine.Alive()) != 1 || len(other.Alive()) != 0 || len(fresh.Alive()) != 1 {
			t.Errorf("%v, %v and %v", mine.Alive(), other.Alive(), fresh.Alive())
		}
	})
}

// A machine was copied together with its state directory.
func TestCloneIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 3)
		clone := start(t, net, 3, func(c *Config) { c.Node = hosts[2].id })
		time.Sleep(5 * time.Second)
		for _, h := range []*host{hosts[0], clone} {
			p := strings.Join(h.Problems(), "\n")
			if h.Stats()[RefusedClone] == 0 || !strings.Contains(p, hosts[2].id) || !strings.Contains(p, hostAddr(3).String()) {
				t.Errorf("host %v: problems %q, counts %v", h.Addr(), p, h.Stats())
			}
		}
		if !allSee(hosts, 2) {
			t.Error("the first of the clones is gone")
		}
	})
}

// Who says in memberlist's words that it is another host, and has not its key, is no copy of it.
func TestNoCloneWithoutTheKey(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 3)
		forger := start(t, net, 3, func(c *Config) {
			c.Node, c.Sign = hosts[2].id, func(b []byte) []byte { return toySignature(hostID(3), b) }
		})
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			if at, ok := hosts[2].Clone(); ok || len(hosts[0].Problems())+len(hosts[2].Problems()) > 0 {
				t.Fatalf("a copy at %v: %v, %v", at, hosts[0].Problems(), hosts[2].Problems())
			}
		}
		if !hosts[0].Present(seconds(t, 5), hosts[2].id) || !hosts[0].Present(seconds(t, 5), hosts[2].id, forger.Addr()) {
			t.Error("the host does not prove that it is there")
		}
		hosts[2].stop()
		if hosts[0].Present(seconds(t, 5), hosts[2].id, forger.Addr()) {
			t.Error("another one proves that it is the host")
		}
		if hosts[0].Present(seconds(t, 5), hosts[2].id) {
			t.Error("a host that is off proves that it is there")
		}
	})
}

// A host that comes back with another address is taken as soon as the old one is
// found dead.
func TestHostMayMove(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 3)
		hosts[2].stop()
		hosts[2] = start(t, net, 7, func(c *Config) { c.Node, c.ClusterID = hostID(2), "alpha" })
		t.Logf("after %v", within(t, 30*time.Second, "all see it there", func() bool {
			for _, h := range hosts {
				for _, m := range h.Members() {
					if m.ID == hostID(2) && (m.Addr != hostAddr(7) || m.State != Alive) {
						return false
					}
				}
			}
			return true
		}))
	})
}

// raw sends a packet from an address of its own.
func raw(t *testing.T, n *memnet.Network, to netip.AddrPort, packets ...[]byte) *memnet.Transport {
	t.Helper()
	tr, err := n.Listen(netip.MustParseAddrPort("10.7.7.7:1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packets {
		if _, err := tr.WriteTo(p, to.String()); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

func send(t *testing.T, tr *memnet.Transport, to netip.AddrPort, b []byte) {
	t.Helper()
	c, err := tr.DialTimeout(to.String(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write(b)
	time.Sleep(100 * time.Millisecond)
	_ = c.Close()
}

// What comes from outside, without the key.
func TestGarbageFromOutside(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		hosts := cluster(t, n, 2)
		to := hosts[0].Addr()
		tr := raw(t, n, to, []byte{0}, []byte("hello world"), bytes.Repeat([]byte{1}, 1400), []byte{244, 200}, bytes.Repeat([]byte{255}, 60000))
		send(t, tr, to, []byte("GET / HTTP/1.0\r\n\r\n"))
		send(t, tr, to, []byte{6, 1, 2, 3})
		send(t, tr, to, binary.BigEndian.AppendUint32([]byte{10}, 1<<31)) // encrypted, 2 GiB
		send(t, tr, to, append(binary.BigEndian.AppendUint32([]byte{10}, 64), make([]byte, 64)...))
		stats := hosts[0].Stats()
		for _, reason := range []string{RefusedGarbage, RefusedPlain, RefusedSize, RefusedKey} {
			if stats[reason] == 0 {
				t.Errorf("nothing counted as %s: %v", reason, stats)
			}
		}
		if !allSee(hosts, 1) {
			t.Error("the hosts have lost each other")
		}
	})
}

// Streams that say nothing are bounded, and are closed in the end.
func TestIdleStreamsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		hosts := cluster(t, n, 2)
		tr := raw(t, n, hosts[0].Addr())
		var conns []net.Conn
		for range allowances[stranger].guests + 50 {
			c, err := tr.DialTimeout(hosts[0].Addr().String(), time.Second)
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(streamTimeout / 2)
		if got := hosts[0].Stats()[LostBusy]; got == 0 || got > 50 {
			t.Errorf("refused %d streams", got)
		}
		time.Sleep(3 * streamTimeout)
		for _, c := range conns {
			if _, err := c.Write(make([]byte, 1)); err == nil {
				t.Fatal("a silent stream is still open")
			}
		}
		if got := len(hosts[0].ml.Members()); got != 2 || !allSee(hosts, 1) {
			t.Error("the hosts have lost each other")
		}
	})
}

// What comes from inside: with the key, but wrong.
func TestBadMessagesFromInside(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		hosts := cluster(t, n, 2)
		from, to := hosts[0], hosts[0].roster.nodeOf(hosts[1].id)
		envelope := func(k kind, body string) []byte {
			return envelope{protoMax, k, "alpha", from.self, []byte(body)}.encode()
		}
		newer := envelope(kindDelta, "{}")
		newer[0] = protoMax + 1
		for _, c := range []struct {
			msg    []byte
			reason string
		}{
			{newer, RefusedVersion},
			{[]byte{protoMax}, RefusedGarbage},
			{[]byte{protoMin - 1, 1, 0}, RefusedVersion},
			{[]byte{protoMax, 0, 0}, RefusedGarbage},
			{envelope(99, ""), RefusedGarbage},
			{envelope(kindSum, "short"), RefusedGarbage},
			{envelope(kindRequest, "short"), RefusedGarbage},
			{envelope(kindResponse, "short"), RefusedGarbage},
			{envelope(kindDelta, "not json"), RefusedMerge},
			{envelope(kindDelta, `{"panic":{}}`), HandlerPanic},
			{envelope(kindDelta, strings.Repeat("x", 20<<20)), RefusedSize},
			{from.post.seal(kindRequest, request{1, 0, time.Second, from.addr, methodChunk, make([]byte, 12)}.encode(protoMax)), RefusedCall},
		} {
			before := hosts[1].Stats()[c.reason]
			_ = from.ml.SendReliable(to, c.msg)
			time.Sleep(time.Second)
			if got := hosts[1].Stats()[c.reason]; got == before {
				t.Errorf("message %.40q: not counted as %s: %v", c.msg, c.reason, hosts[1].Stats())
			}
		}
		if len(hosts[1].Suspects()) == 0 {
			t.Error("the sender is not suspected")
		}
		from.Broadcast(from.state.put("k", "v"))
		within(t, 3*time.Second, "the host still merges", allHave(hosts, "k", "v"))
	})
}

// A host that cannot keep what others say, on a full disk, suspects nobody, and gets it again.
func TestFullDiskIsNobodysFault(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		hosts := cluster(t, n, 2)
		hosts[1].state.full(true)
		hosts[0].Broadcast(hosts[0].state.put("k", "v"))
		time.Sleep(5 * time.Second)
		if hosts[1].state.refused() == 0 {
			t.Error("the disk was not full: the test shows nothing")
		}
		if list, n := hosts[1].Suspects(), hosts[1].Stats()[RefusedMerge]; len(list) > 0 || n > 0 {
			t.Errorf("%d messages are counted as refused, and suspected are %q", n, list)
		}
		hosts[1].state.full(false)
		within(t, 10*time.Second, "the host merges again", allHave(hosts, "k", "v"))
	})
}

// Hosts whose versions do not overlap with ours do not become members.
func TestNewerVersionIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		h := start(t, n, 0, nil)
		m := nodeMeta{speaks: versions{protoMax + 1, protoMax + 3}, cluster: "alpha"}
		// memberlist writes to its own node while others run.
		other := memberlist.Node{Name: m.node.String(), Meta: m.encode(), Addr: h.addr.Addr().AsSlice(), Port: h.addr.Port()}
		if err := (admission{h.Gossip}).NotifyAlive(&other); err == nil || h.Stats()[RefusedVersion] != 1 {
			t.Errorf("newer version: %v, %v", err, h.Stats())
		}
		other.Meta[0] = metaFormat + 1
		if err := (admission{h.Gossip}).NotifyAlive(&other); err == nil || h.Stats()[RefusedVersion] != 2 {
			t.Errorf("newer meta: %v, %v", err, h.Stats())
		}
	})
}

// A flood of deltas is bounded by dropping, and the hosts agree in the end.
func TestFloodIsBoundedAndMended(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		hosts := cluster(t, n, 3)
		for i := range 3 * outboxLimit {
			hosts[0].Broadcast(hosts[0].state.put(strings.Repeat("k", 100)+string(rune('0'+i)), "v"))
		}
		if q := hosts[0].spreader.out.queue.NumQueued(); q > outboxLimit {
			t.Errorf("%d queued", q)
		}
		if hosts[0].Stats()[LostQueueFull] == 0 {
			t.Error("drops are not counted")
		}
		within(t, 10*time.Second, "digests are equal", func() bool {
			return bytes.Equal(hosts[0].comparer.sum(), hosts[1].comparer.sum()) && bytes.Equal(hosts[0].comparer.sum(), hosts[2].comparer.sum())
		})
	})
}

func TestRunOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		h := start(t, n, 0, nil)
		time.Sleep(time.Second)
		if err := h.Run(context.Background()); err == nil {
			t.Error("second Run succeeds")
		}
	})
}
