package former

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
)

// hosts has a machine hear of so many other hosts that enforce policies.
func (m *machine) hosts(t *testing.T, n int) (ids []cluster.NodeID) {
	t.Helper()
	var recs []cluster.Record
	for i := range n {
		id := cluster.NodeID(fmt.Sprintf("30000000%08x", i))
		rec, _, err := cluster.New(id).Put(node(id, 4))
		if err != nil {
			t.Fatal(err)
		}
		ids, recs = append(ids, id), append(recs, rec)
	}
	for len(recs) > 0 {
		part := recs[:min(100, len(recs))]
		recs = recs[len(part):]
		if _, err := m.replica.Merge(cluster.Encode(part)); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

// removed has a machine know so many addresses from which containers were removed.
func (m *machine) removed(t *testing.T, n int) {
	t.Helper()
	var list []Entry
	for i := range n {
		a := netip.AddrFrom4([4]byte{10, 78, byte(i >> 8), byte(i)})
		list = append(list, Entry{Block: netip.PrefixFrom(a, 32), By: m.self, Counter: 1, Any: true})
	}
	b, err := cbor.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.keeper.Take(b); err != nil {
		t.Fatal(err)
	}
}

// TestManyAnswers: where many hosts answer, and a few do not, a container made anew waits for those few alone a moment later, however
// many addresses are remembered; and nobody who asks Waiting waits.
func TestManyAnswers(t *testing.T) {
	for _, test := range []struct {
		name        string
		hosts, deaf int
		hang        bool
	}{{"one is dead", 1000, 1, false}, {"140 of 300 hang", 300, 140, true}} {
		t.Run(test.name, func(t *testing.T) {
			a := newMachine(t, here)
			ids := a.hosts(t, test.hosts)
			deaf := map[string]bool{}
			for _, id := range ids[:test.deaf] {
				deaf[string(id)] = true
			}
			a.put(t, node(here, 4), cluster.Network{Name: "blue", VNID: 5, Labelled: true})
			a.removed(t, 20000)
			end := make(chan struct{})
			t.Cleanup(func() { close(end) })
			a.dial(func(node string, body []byte) ([]byte, error) {
				if deaf[node] {
					if test.hang {
						select {
						case <-end:
						case <-time.After(patience):
						}
						return nil, context.DeadlineExceeded
					}
					return nil, gossip.ErrUnreachable
				}
				var q question
				if err := cbor.Unmarshal(body, &q); err != nil {
					return nil, err
				}
				return cbor.Marshal(answer{Marks: q.Marks})
			})
			a.put(t, container(here, "web", "web", "10.77.0.9"))
			a.remove(t, "web")
			a.put(t, container(here, "bad", "bad", "10.77.0.9"))
			began, worst := time.Now(), time.Duration(0)
			for {
				at := time.Now()
				w := a.keeper.Waiting(a.replica.Snapshot())["bad"]
				worst = max(worst, time.Since(at))
				if len(w.Hosts) == test.deaf && !w.All {
					break
				}
				if time.Since(began) > 30*time.Second {
					t.Fatalf("still waits for %d hosts, all: %t", len(w.Hosts), w.All)
				}
				time.Sleep(time.Millisecond)
			}
			took := time.Since(began)
			t.Logf("open to the living after %s; Waiting took %s at most", took, worst)
			if took > 5*time.Second || worst > 2*time.Second { // of a busy machine with the race detector
				t.Errorf("open to the living after %s, and Waiting took up to %s", took, worst)
			}
		})
	}
}

// TestTidy: where much is remembered hosts are asked for it, also if no container waits, and it is forgotten.
func TestTidy(t *testing.T) {
	a := newMachine(t, here)
	a.hosts(t, 3)
	a.put(t, node(here, 4))
	a.removed(t, much)
	a.dial(func(_ string, body []byte) ([]byte, error) {
		var q question
		if err := cbor.Unmarshal(body, &q); err != nil {
			return nil, err
		}
		return cbor.Marshal(answer{Marks: q.Marks})
	})
	a.keeper.tidy(t.Context())
	if n := a.asked(); n != 0 {
		t.Errorf("asked %d times for what is little", n)
	}
	a.put(t, container(here, "web", "web", "10.77.0.9"))
	a.remove(t, "web")
	a.keeper.tidy(t.Context())
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		a.keeper.mu.Lock()
		n := len(a.keeper.table.entries)
		a.keeper.mu.Unlock()
		if n == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d entries are left", n)
		}
	}
	a.start(t)
	if n := len(a.keeper.table.entries); n != 0 {
		t.Errorf("%d entries are on the disk", n)
	}
}
