package dns

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/dns/names"
)

// fixedSource is a State that can be watched, as a Replica is.
type fixedSource struct {
	mu      sync.Mutex
	state   *cluster.State
	changed chan struct{}
}

func newSource(s *cluster.State) *fixedSource {
	return &fixedSource{state: s, changed: make(chan struct{})}
}

func (s *fixedSource) Snapshot() *cluster.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Snapshot()
}

func (s *fixedSource) Watch() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *fixedSource) put(t testing.TB, b cluster.Body) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, _, err := s.state.Put(b); err != nil {
		t.Fatal(err)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// atLoopback is a server that follows a source and answers on a loopback address
// whoever asks as app; what is not its own goes to the route. It is prepared before it runs.
func atLoopback(t testing.TB, src *fixedSource, r route, prepare ...func(*Server)) (*Server, *front) {
	t.Helper()
	s := New(Config{Source: src, Device: "gvn-none", Redirect: true, Log: slog.New(slog.DiscardHandler)})
	for _, p := range prepare {
		p(s)
	}
	f, err := openFront(t.Context(), net.ListenConfig{}, "4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.identify = func(q *question, client, _ netip.AddrPort) {
		q.who, q.asker = names.Asker{Addr: netip.MustParseAddr("10.1.0.2")}, client.Addr().String()
		q.route = func() route { return r }
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = s.Run(ctx) })
	ended.Go(func() {
		if err := s.serve(ctx, f); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
	until(t, func() bool { return s.index.Len() > 0 })
	return s, f
}

func until(t testing.TB, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("it did not come about within 5 s")
}

func (f *front) addrOf(network string) string {
	if network == "tcp" {
		return f.tcp.Addr().String()
	}
	return f.udp.LocalAddr().String()
}

func ask(t testing.TB, network, addr, name string, qtype uint16) string {
	t.Helper()
	c := dns.Client{Net: network, Timeout: 5 * time.Second}
	r, _, err := c.Exchange(query(name, qtype), addr)
	if err != nil {
		return err.Error()
	}
	return says(t, wireOf(t, r), answered)
}

func TestServe(t *testing.T) {
	s, f := atLoopback(t, newSource(town(t)), direct(upstream(t, tells("192.0.2.1"))))
	for _, network := range []string{"udp", "tcp"} {
		for name, want := range map[string]string{"db": "NOERROR 10.1.0.3", "example.com": "NOERROR 192.0.2.1"} {
			if got := ask(t, network, f.addrOf(network), name, dns.TypeA); got != want {
				t.Errorf("%s over %s: got %q, want %q", name, network, got, want)
			}
		}
	}
	want := Stats{Queries: 4, Answered: 2, Forwarded: 2}
	if got := s.Stats(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A name is known a breath after its record is.
func TestNewNameIsKnownAtOnce(t *testing.T) {
	src := newSource(town(t))
	_, f := atLoopback(t, src, direct())
	if got := ask(t, "udp", f.addrOf("udp"), "late", dns.TypeA); got != "SERVFAIL" {
		t.Fatalf("before: %q", got)
	}
	src.put(t, container(50, hostA, "blue", "late", []string{"10.1.0.50"}))
	time.Sleep(5 * breath)
	if got := ask(t, "udp", f.addrOf("udp"), "late", dns.TypeA); got != "NOERROR 10.1.0.50" {
		t.Errorf("after: %q", got)
	}
}

// A name whose news comes while others are asked for it, who say nothing as on an internal network, is told then.
func TestNewsIsToldToWhoWaits(t *testing.T) {
	src := newSource(town(t))
	asked := make(chan struct{}, 1)
	s, f := atLoopback(t, src, direct(upstream(t, func(dns.ResponseWriter, *dns.Msg) {
		select {
		case asked <- struct{}{}:
		default:
		}
	})))
	go func() {
		<-asked
		src.put(t, container(49, hostA, "blue", "another", []string{"10.1.0.49"}))
		src.put(t, container(50, hostA, "blue", "late", []string{"10.1.0.50"}))
	}()
	if got := ask(t, "udp", f.addrOf("udp"), "late", dns.TypeA); got != "NOERROR 10.1.0.50" {
		t.Errorf("got %q", got)
	}
	until(t, func() bool { return len(s.waiting.list()) == 0 })
	if got := s.Stats(); got.Answered != 1 || got.Queries != 1 {
		t.Errorf("%+v", got)
	}
}

// While other servers are silent, our own names are answered, and what nobody
// answers fails before a program loses its patience.
func TestSilentUpstreamDelaysNobody(t *testing.T) {
	_, f := atLoopback(t, newSource(town(t)), direct(upstream(t, silent)))
	var failed atomic.Int32
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if ask(t, "udp", f.addrOf("udp"), "example.com", dns.TypeA) == "SERVFAIL" {
				failed.Add(1)
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	start := time.Now()
	if got := ask(t, "udp", f.addrOf("udp"), "db", dns.TypeA); got != "NOERROR 10.1.0.3" || time.Since(start) > time.Second {
		t.Errorf("got %q after %s", got, time.Since(start))
	}
	all.Wait()
	if failed.Load() != 20 {
		t.Errorf("%d of 20 were told that it failed", failed.Load())
	}
}

// A zone transfer, of many messages, passes whole.
func TestTransfer(t *testing.T) {
	soa := &dns.SOA{Hdr: dns.RR_Header{Name: "example.com.", Rrtype: dns.TypeSOA, Class: dns.ClassINET}, Ns: "ns.", Mbox: "m."}
	server := upstream(t, func(w dns.ResponseWriter, q *dns.Msg) {
		parts := make(chan *dns.Envelope)
		go func() {
			defer close(parts)
			parts <- &dns.Envelope{RR: []dns.RR{soa}}
			for range 3 {
				parts <- &dns.Envelope{RR: []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "example.com.", Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(192, 0, 2, 1)}}}
			}
			parts <- &dns.Envelope{RR: []dns.RR{soa}}
		}()
		_ = new(dns.Transfer).Out(w, q, parts)
	})
	_, f := atLoopback(t, newSource(town(t)), direct(server))
	got, err := new(dns.Transfer).In(new(dns.Msg).SetAxfr("example.com."), f.addrOf("tcp"))
	if err != nil {
		t.Fatal(err)
	}
	records := 0
	for part := range got {
		if part.Error != nil {
			t.Fatal(part.Error)
		}
		records += len(part.RR)
	}
	if records != 5 {
		t.Errorf("%d records of 5", records)
	}
}

// Bytes that are no message are answered as far as they can be, and break nothing.
func TestMalformed(t *testing.T) {
	s, f := atLoopback(t, newSource(town(t)), direct())
	conn, err := net.Dial("udp4", f.addrOf("udp"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, wire := range [][]byte{{}, {1}, make([]byte, 11), append([]byte{0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, 0xc0, 12, 0, 1)} {
		if _, err := conn.Write(wire); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 512)
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	n, err := conn.Read(buf)
	if err != nil || says(t, buf[:n], answered) != "FORMERR" {
		t.Errorf("got %x %v", buf[:n], err)
	}
	if got := ask(t, "udp", f.addrOf("udp"), "db", dns.TypeA); got != "NOERROR 10.1.0.3" {
		t.Errorf("afterwards: %q", got)
	}
	until(t, func() bool { return s.Stats().Dropped >= 3 }) // others may still be at it
	if got := s.Stats().Dropped; got != 3 {
		t.Errorf("%d dropped of 3", got)
	}
}

// 5,000 questions a second, of a cluster of 100,000 endpoints, and how long the
// slowest hundredth of them takes.
func BenchmarkServe(b *testing.B) {
	var many []cluster.Body
	for i := range 100_000 {
		addr := netip.AddrFrom4([4]byte{10, byte(130 + i>>16), byte(i >> 8), byte(i)})
		many = append(many, container(1000+i, hostA, "net"+string(rune('a'+i%26)), "c", []string{addr.String()}, "alias"))
	}
	s, f := atLoopback(b, newSource(town(b, many...)), direct())
	until(b, func() bool { return s.index.Len() >= len(many) })
	runtime.GC() // what was left of that
	const rate, clients = 5000, 4
	wire := wireOf(b, query("web", dns.TypeA))
	took := make([][]time.Duration, clients)
	var all sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for c := range clients {
		all.Go(func() {
			conn, err := net.Dial("udp4", f.addrOf("udp"))
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			buf := make([]byte, 512)
			next := time.Now()
			for range b.N / clients {
				next = next.Add(time.Second * clients / rate)
				time.Sleep(time.Until(next))
				start := time.Now()
				_ = conn.SetDeadline(start.Add(time.Second))
				if _, err := conn.Write(wire); err != nil {
					b.Error(err)
				}
				if _, err := conn.Read(buf); err != nil {
					b.Error(err)
				}
				took[c] = append(took[c], time.Since(start))
			}
		})
	}
	all.Wait()
	b.StopTimer()
	sorted := slices.Concat(took...)
	slices.Sort(sorted)
	if n := len(sorted); n > 0 {
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "queries/s")
		b.ReportMetric(float64(sorted[n/2].Microseconds()), "µs-p50")
		b.ReportMetric(float64(sorted[n*99/100].Microseconds()), "µs-p99")
	}
}

// What one question costs, without the sockets.
func BenchmarkRespond(b *testing.B) {
	x := indexOf(town(b))
	q := &question{wire: wireOf(b, query("web", dns.TypeA)), network: "udp", who: names.Asker{Addr: netip.MustParseAddr("10.1.0.2")}}
	b.ReportAllocs()
	for b.Loop() {
		if _, v := respond(q, x, nil); v != answered {
			b.Fatal(v)
		}
	}
}

// TestHostAsks: programs of a host that is on no network know the names of the networks that it is told, and no others; what
// is none goes to the host's other servers.
func TestHostAsks(t *testing.T) {
	state := town(t)
	other := upstream(t, tells("192.0.2.1"))
	at := netip.MustParseAddrPort("127.0.0.79:0")
	f, err := openFront(t.Context(), net.ListenConfig{}, "4", at.String())
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{
		Source: newSource(state), Device: "gvn-none", Log: slog.New(slog.DiscardHandler),
		Host: &Host{At: at, Networks: func(network string) bool { return network == "blue" }},
	})
	s.index.Advance(state.Snapshot())
	f.identify = func(q *question, client, local netip.AddrPort) {
		s.atHost(q, client, local)
		q.route = func() route { return direct(other) }
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := s.serve(ctx, f); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
	for name, want := range map[string]string{
		"db": "NOERROR 10.1.0.3", "db.blue": "NOERROR 10.1.0.3", "example.com": "NOERROR 192.0.2.1",
		"loner": "NOERROR 192.0.2.1", "loner.secret": "NOERROR 192.0.2.1", "hidden": "NOERROR 192.0.2.1", // as nobody's here
	} {
		if got := ask(t, "udp", f.addrOf("udp"), name, dns.TypeA); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if !s.cfg.Host.asks(at.Addr()) || !s.cfg.Host.asks(netip.MustParseAddr("127.0.0.53")) || s.cfg.Host.asks(netip.MustParseAddr("127.0.0.1")) {
		t.Error("it would ask itself, or systemd-resolved, which asks it")
	}
}
