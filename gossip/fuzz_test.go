package gossip

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// FuzzFetch sends any bytes as the calls of a fetch: a chunk, to a host that waits for its first
// one, and a digest.
func FuzzFetch(f *testing.F) {
	const id = 7
	chunk := func(id uint64, number uint32, msg string) []byte {
		return append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, id), number), msg...)
	}
	f.Add(chunk(id, 0, `{"a":{"Version":1,"Value":"x"}}`))
	f.Add(chunk(id, 1, `{}`))
	f.Add(chunk(id, 0, `{"panic":{}}`))
	f.Add(chunk(8, 0, ``))
	f.Add(append(binary.BigEndian.AppendUint64(nil, id), `{"own":1}`...))
	f.Add([]byte{1})
	tr, err := memnet.New(1).Listen(hostAddr(0))
	if err != nil {
		f.Fatal(err)
	}
	state := newToy()
	state.put("own", "y")
	g, err := New(Config{
		Node: hostID(0), Name: "host0", Bind: hostAddr(0), Keys: [][]byte{testKey}, Log: quiet(), Transport: tr, ClusterID: "alpha",
		Sign: func(b []byte) []byte { return toySignature(hostID(0), b) }, Signed: func(string, []byte, []byte) bool { return true },
		Left: func(string) bool { return false }, SaveKnown: func([]Peer) {},
	}, state)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = g.Close() })
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	f.Fuzz(func(t *testing.T, body []byte) {
		s := &session{from: hostID(1), idle: time.NewTimer(time.Hour)}
		defer s.idle.Stop()
		g.fetcher.sessions.mu.Lock()
		g.fetcher.sessions.open[id] = s
		g.fetcher.sessions.mu.Unlock()
		if _, err := g.fetcher.serveChunk(hostID(2), body); err == nil || s.next != 0 {
			t.Errorf("%x is taken from a host that was not asked", body)
		}
		if _, err := g.fetcher.serveChunk(hostID(1), body); (err == nil) != (s.next == 1) {
			t.Errorf("%x: %v, and %d is next", body, err, s.next)
		}
		_, _ = g.fetcher.serveFetch(gone, &memberlist.Node{Name: hostID(1), Addr: net.IPv4(10, 0, 0, 2), Port: DefaultPort}, protoMax, body)
		if state.get("own") != "y" {
			t.Error("an entry is lost")
		}
	})
}

// FuzzLog: memberlist's log has in it what others sent. A line is counted once at most, all of it
// is taken, and what is remembered of lines does not grow without end.
func FuzzLog(f *testing.F) {
	f.Add([]byte("[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=192.0.2.3:7947\n"))
	f.Add([]byte("[WARN] memberlist: handler queue full, dropping message (3) from=[fd00::1]:7947"))
	f.Add([]byte("[DEBUG] memberlist: Stream connection from=192.0.2.3:7947"))
	f.Add([]byte("[ERR] x from=from= no installed keys could decrypt"))
	w := newLogWriter(quiet(), &counters{})
	f.Fuzz(func(t *testing.T, line []byte) {
		if n, err := w.Write(line); n != len(line) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		for a := range w.strangers.m {
			if !a.IsValid() || a.Is4In6() {
				t.Errorf("stranger %v", a)
			}
		}
		if len(w.last) > 257 || len(w.strangers.m) > maxProblems {
			t.Errorf("%d sorts of lines, %d strangers", len(w.last), len(w.strangers.m))
		}
	})
}

// FuzzKnown: whatever is remembered of the hosts of an earlier run, the host starts, takes for a
// member what may be one, dials it, and remembers no more than it had.
func FuzzKnown(f *testing.F) {
	f.Add([]byte(`[{"ID":"0000000000000002","Addr":"10.0.0.2:7946"},{"ID":"0000000000000001","Addr":"10.0.0.9:7946"}]`))
	f.Add([]byte(`[{"ID":"","Addr":""},{"ID":"x","Addr":"[fe80::1%eth0]:0"},{"ID":"0000000000000002"}]`))
	f.Add([]byte(`[{"ID":"0000000000000002","Addr":"[::ffff:10.0.0.2]:7946"},{"ID":"0000000000000002","Addr":"10.0.0.1:7946"}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var known []Peer
		if json.Unmarshal(b, &known) != nil {
			return
		}
		known = known[:min(len(known), 20)]
		bubble(t, func(t *testing.T, n *memnet.Network) {
			h := start(t, n, 0, func(c *Config) { c.Known = known })
			time.Sleep(10 * time.Second)
			for _, m := range h.Members() {
				if _, err := parseNode(m.ID); err != nil || !m.Addr.IsValid() {
					t.Errorf("%+v is a member of %+v", m, known)
				}
			}
			for _, p := range h.roster.known() {
				if !slices.Contains(known, p) {
					t.Errorf("%+v was not in %+v", p, known)
				}
			}
		})
	})
}
