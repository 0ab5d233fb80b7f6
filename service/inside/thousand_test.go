package inside

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/nft"
)

// BenchmarkThousand is what it costs a host with 50 containers on a network with 1,000 services of ten replicas each that
// 100 of the replicas change in a second, and how long a container waits that comes meanwhile:
//
//	go test ./service/inside -run - -bench Thousand -benchtime 1x
//
// The kernel's part in system calls is counted, and its work beside them is not.
func BenchmarkThousand(b *testing.B) {
	const containers, services, replicas, every, during, arrivals = 50, 1000, 10, 10 * time.Millisecond, 10 * time.Second, 10
	for b.Loop() {
		w := &crowd{b: b, source: &source{t: b, state: cluster.New(self), changed: make(chan struct{})}, told: map[string]chan struct{}{}}
		w.write(w.body, []cluster.Body{cluster.Network{Name: "blue", VNID: 1}, cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("10.1.0.0/16")}})
		for i := range services {
			s := cluster.Service{Network: "blue", Name: fmt.Sprint("s", i), Select: fmt.Sprint("web", i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(200 + i>>8), byte(i)})}, Ports: []cluster.ServicePort{{Proto: "tcp", Port: 80, Target: 8080}}}
			w.write(w.body, []cluster.Body{s})
			for n := range replicas {
				w.write(w.body, []cluster.Body{member(i, n, false)})
			}
		}
		churn := func(ctx context.Context) {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					w.write(w.body, []cluster.Body{member(w.changes*7%services, 3, w.changes/services%2 == 0)})
					w.changes++
				}
			}
		}
		watch := func() (percent float64) {
			ctx, stop := context.WithCancel(b.Context())
			var g sync.WaitGroup
			g.Go(func() { churn(ctx) })
			before, begin := spent(b), time.Now()
			time.Sleep(during)
			percent = 100 * (spent(b) - before).Seconds() / time.Since(begin).Seconds()
			stop()
			g.Wait()
			return percent
		}
		alone := watch()
		b.ReportMetric(alone, "%-of-a-core-to-write-them")
		before := heap()
		r := New(Config{Source: w.source, Next: w, Log: slog.New(slog.DiscardHandler)})
		r.settle = 0
		ctx, stop := context.WithCancel(b.Context())
		var g sync.WaitGroup
		g.Go(func() { _ = r.Run(ctx) })
		begin := time.Now()
		for i := range containers {
			w.come(r, fmt.Sprint("client", i))
		}
		b.ReportMetric(float64(time.Since(begin).Milliseconds())/containers, "ms-each-of-the-first")
		b.ReportMetric(float64(heap()-before)/(1<<20), "MB")
		writes := generation(b, w.first)
		percent := watch() - alone
		b.ReportMetric(percent, "%-of-a-core")
		b.ReportMetric(float64(generation(b, w.first)-writes)/during.Seconds(), "writes/s-in-each")
		for _, busy := range []bool{false, true} {
			ctx, end := context.WithCancel(ctx)
			var changes sync.WaitGroup
			what := "ms-for-one-more"
			if busy {
				changes.Go(func() { churn(ctx) })
				what = "ms-for-one-more-meanwhile"
				time.Sleep(time.Second)
			}
			var took []time.Duration
			for i := range arrivals {
				begin := time.Now()
				w.come(r, fmt.Sprintf("late%d%v", i, busy))
				took = append(took, time.Since(begin))
			}
			end()
			changes.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, what)
		}
		stop()
		g.Wait()
		if failed := r.Failed(); len(failed) > 0 {
			b.Errorf("not led as they should be: %v", failed)
		}
	}
}

// crowd writes records, and hears who has rules.
type crowd struct {
	*source
	b       *testing.B
	at      sync.Mutex
	told    map[string]chan struct{}
	first   *linktest.NS
	changes int
}

func member(service, n int, unready bool) cluster.Endpoint {
	i := 10*service + n
	return cluster.Endpoint{ID: fmt.Sprint("e", i), Network: "blue", Host: self, Name: fmt.Sprint("c", i), Aliases: []string{fmt.Sprint("web", service)}, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})}, Unready: unready}
}

func (w *crowd) body(body cluster.Body) {
	if _, _, err := w.state.Put(body); err != nil {
		w.b.Error(err)
	}
}

// come has a container come, and returns when it has its rules.
func (w *crowd) come(r *Room, name string) {
	done := make(chan struct{})
	w.at.Lock()
	w.told[name] = done
	w.at.Unlock()
	e := cluster.Endpoint{ID: name, Network: "blue", Host: self, Name: name, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 240, byte(len(w.told))})}}
	ns := linktest.New(w.b)
	if w.first == nil {
		w.first = ns
	}
	w.write(w.body, []cluster.Body{e})
	r.Attach(name, ns.Key())
	<-done
}

func (w *crowd) Attach(endpoint, _ string) {
	w.at.Lock()
	defer w.at.Unlock()
	if done := w.told[endpoint]; done != nil {
		w.told[endpoint] = nil
		close(done)
	}
}

func (w *crowd) Detach(string) {}

// generation counts what was written in a container's namespace.
func generation(b *testing.B, ns *linktest.NS) (n uint32) {
	ns.Do(func() {
		conn, err := nft.Dial()
		if err == nil {
			n, err = conn.Generation()
			conn.Close()
		}
		if err != nil {
			b.Fatal(err)
		}
	})
	return n
}

// spent is the processor time of this process.
func spent(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
