package sim

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/internal/store"
	"github.com/grapevine-net/grapevine/replica"
)

var big = flag.Int("catch-up", 20, "hosts, with 100 endpoints each, whose records a new host catches up with in real time")

// TestCatchUp lets a new host, over real sockets and in real time, learn what a
// cluster has: the part of joining that takes processors. It measures, and fails only if
// the new host does not come to know the same.
func TestCatchUp(t *testing.T) {
	w := &world{t: t, dir: t.TempDir(), seed: *seed}
	if *dir != "" {
		w.dir = *dir
	}
	old, stopOld := w.socket(0, nil)
	defer stopOld()
	wire := 0
	for i := range *big {
		for _, m := range w.words(100+i, i) {
			wire += len(m)
			_, err := old.replica.Merge(m)
			w.must(err)
		}
	}
	records := old.replica.Snapshot().Len()
	before := heap()
	begin := time.Now()
	young, stopYoung := w.socket(1, []string{old.Addr().String()})
	defer stopYoung()
	for young.replica.Snapshot().Len() < records {
		if time.Since(begin) > 5*time.Minute {
			t.Fatalf("%d records of %d", young.replica.Snapshot().Len(), records)
		}
		time.Sleep(tick)
	}
	took := time.Since(begin)
	caughtUp = fmt.Sprintf("%d hosts with 100 endpoints each, %d records, %.1f MB on the wire: a new host knows them %.2f s after its start,\nwith %.0f MB of memory for them, and compares digests of %d bytes from then on.",
		*big, records, float64(wire)/1e6, took.Seconds(), float64(heap()-before)/(1<<20), len(young.replica.Digest()))
	t.Log("\n" + caughtUp)
}

// caughtUp is what TestCatchUp found.
var caughtUp string

// heap is the bytes in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// words are the records of host i, as it would send them.
func (w *world) words(i, n int) (messages [][]byte) {
	key := w.key(i)
	s := cluster.New(cluster.HostID(cluster.Public(key)))
	w.must(s.SignWith(key))
	put := func(b cluster.Body) {
		_, _, err := s.Put(b)
		w.must(err)
	}
	put(cluster.Node{ID: s.Self(), Name: fmt.Sprintf("host%d", n), VTEP: addr(n).Addr(), VXLANPort: 4789, MTU: 1500, Datapath: "kernel"})
	for e := range 100 {
		id := fmt.Sprintf("%064x", n*100+e)
		put(cluster.Endpoint{
			ID: id, Network: fmt.Sprintf("network%d", e), Host: s.Self(), MAC: "02:42:0a:80:00:02", Container: id, Name: fmt.Sprintf("container-%d", n*100+e),
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 128 + byte((n*100+e)>>16), byte((n*100 + e) >> 8), byte(n*100 + e)})},
		})
	}
	for m := range s.Snapshot().Answer(cluster.Digest{}, 256<<10, uint64(i)) {
		messages = append(messages, m)
	}
	return messages
}

// socket starts a host on a real socket of the loopback interface, without an
// allocator. stop ends it.
func (w *world) socket(i int, join []string) (h *host, stop func()) {
	h = &host{id: cluster.HostID(cluster.Public(w.key(i)))}
	db, err := store.Open(filepath.Join(w.t.TempDir(), fmt.Sprintf("catch-up-%d.db", i)))
	w.must(err)
	h.replica, err = replica.Open(db, h.id, replica.Signed(w.key(i)))
	w.must(err)
	cfg := gossip.Config{
		Node: string(h.id), Name: fmt.Sprintf("host%d", i), Bind: netip.MustParseAddrPort("127.0.0.1:0"), Join: join,
		Keys: [][]byte{[]byte("0123456789abcdef0123456789abcdef")}, Log: slog.New(slog.DiscardHandler),
	}
	if join == nil {
		cfg.ClusterID = "simulated"
	}
	h.Gossip, err = gossip.New(cfg, h.replica)
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return h.Run(ctx) })
	tasks.Go(func() error { return h.replica.Run(ctx) })
	return h, func() {
		cancel()
		w.must(tasks.Wait())
		_ = h.Close()
		w.must(db.Close())
	}
}
