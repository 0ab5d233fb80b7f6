package sim

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/agent"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/dns/names"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/replica"
)

var big = flag.Int("catch-up", 20, "hosts, with 100 endpoints each, whose records a new host catches up with in real time")

// youngEnv tells the process of a new host whom to join, and how many records there are.
const youngEnv = "GRAPEVINE_SIM_JOIN"

// TestCatchUp lets a new host, a process of its own, over real sockets and in real time,
// learn what a cluster has: the part of joining that takes processors. It measures, and
// fails only if the new host does not come to know the same.
func TestCatchUp(t *testing.T) {
	w := &world{t: t, seed: *seed}
	if job := os.Getenv(youngEnv); job != "" {
		w.young(job)
		return
	}
	old, stop := w.socket(0, nil, nil)
	defer stop()
	for i := range *big {
		for _, m := range w.words(100+i, i) {
			_, err := old.replica.Merge(m)
			w.must(err)
		}
	}
	w.must(old.replica.Flush(t.Context()))
	records, size := old.replica.Snapshot().Len(), 0
	for rec := range old.replica.Snapshot().Records() {
		size += len(cluster.Encode([]cluster.Record{rec}))
	}
	self, err := os.Executable()
	w.must(err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestCatchUp$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", youngEnv, old.Addr(), records))
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("the new host: %v\n%s", err, text)
	}
	_, found, _ := strings.Cut(string(text), youngEnv)
	found, _, _ = strings.Cut(found, "\n")
	caughtUp = fmt.Sprintf("Of %d hosts with 100 endpoints each there are %d records, %.1f MB. %s", *big, records, float64(size)/1e6, strings.TrimSpace(found))
	t.Log("\n" + caughtUp)
}

// caughtUp is what TestCatchUp found.
var caughtUp string

// young is the new host.
func (w *world) young(job string) {
	join, number, _ := strings.Cut(job, " ")
	records, err := strconv.Atoi(number)
	w.must(err)
	debug.SetGCPercent(agent.GCPercent)
	var heard atomic.Int64
	begin := time.Now()
	stopped, most := make(chan struct{}), make(chan float64)
	go func() {
		high := 0.0
		for {
			select {
			case <-stopped:
				most <- high
				return
			case <-time.After(tick):
				high = max(high, resident("RssAnon"))
			}
		}
	}()
	h, stop := w.socket(1, []string{join}, &heard)
	index := names.New() // of which an agent has one, too, and follows as package dns does
	for h.replica.Snapshot().Len() < records {
		index.Advance(h.replica.Snapshot())
		if time.Since(begin) > 5*time.Minute {
			w.t.Fatalf("%d records of %d", h.replica.Snapshot().Len(), records)
		}
		time.Sleep(tick)
	}
	index.Advance(h.replica.Snapshot())
	took, received, caught := time.Since(begin), heard.Load(), processor()
	w.must(h.replica.Flush(w.t.Context()))
	cpu := processor()
	own, file := resident("RssAnon"), resident("RssFile")
	close(stopped)
	fmt.Printf("%s A new host has them %.2f s after its start, by %.1f MB and %.1f s of a processor; with its disk %.1f s. Then it has, with the index of names, %.0f MB of memory of its own, %.0f MB of them in use, and %.0f MB of pages of its state file and its program, which the kernel may drop. At most it had %.0f MB of its own. It compares digests of %d bytes from then on.\n",
		youngEnv, took.Seconds(), float64(received)/1e6, caught.Seconds(), cpu.Seconds(), own, float64(heap())/1e6, file, <-most, len(h.replica.Digest()))
	runtime.KeepAlive(index)
	stop()
}

// heap is the bytes in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// resident is a part of this process's memory, MB (proc(5), status).
func resident(part string) float64 {
	raw, _ := os.ReadFile("/proc/self/status") // 0 without it
	_, rest, _ := strings.Cut(string(raw), part+":")
	var kilobytes float64
	_, _ = fmt.Sscan(rest, &kilobytes)
	return kilobytes * 1024 / 1e6
}

// processor is the time that this process has had of processors.
func processor() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // never fails
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// counted counts what is merged.
type counted struct {
	*replica.Replica
	bytes *atomic.Int64
}

func (c counted) MergeAll(msgs [][]byte) ([][]byte, []error) {
	for _, m := range msgs {
		c.bytes.Add(int64(len(m)))
	}
	return c.Replica.MergeAll(msgs)
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
// allocator, and counts the bytes that it merges. stop ends it.
func (w *world) socket(i int, join []string, heard *atomic.Int64) (h *host, stop func()) {
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
	var state gossip.State = h.replica
	if heard != nil {
		state = counted{h.replica, heard}
	}
	h.Gossip, err = gossip.New(cfg, state)
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return h.Run(ctx) })
	tasks.Go(func() error { return h.replica.Run(ctx) })
	tasks.Go(func() error { return h.broadcast(ctx) })
	return h, func() {
		cancel()
		w.must(tasks.Wait())
		_ = h.Close()
		w.must(db.Close())
	}
}
