package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// upstream is another server, on loopback, over UDP and TCP with one port.
func upstream(t testing.TB, handle dns.HandlerFunc) netip.AddrPort {
	t.Helper()
	for range 10 {
		udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		tcp, err := net.Listen("tcp4", udp.LocalAddr().String())
		if err != nil {
			_ = udp.Close()
			continue // that port is another's for TCP
		}
		serveUpstream(t, udp, tcp, handle)
		return udp.LocalAddr().(*net.UDPAddr).AddrPort()
	}
	t.Fatal("no port is free for both UDP and TCP")
	return netip.AddrPort{}
}

func serveUpstream(t testing.TB, udp net.PacketConn, tcp net.Listener, handle dns.HandlerFunc) {
	for _, s := range []*dns.Server{{PacketConn: udp, Handler: handle}, {Listener: tcp, Handler: handle}} {
		started, ended := make(chan struct{}), make(chan error, 1)
		s.NotifyStartedFunc = func() { close(started) }
		go func() { ended <- s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			_ = s.Shutdown()
			<-ended
		})
	}
}

// tells answers every question with one address.
func tells(addr string) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		r := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			r.Answer = []dns.RR{&dns.A{Hdr: header(q.Question[0], dns.TypeA), A: net.ParseIP(addr)}}
		}
		_ = w.WriteMsg(r)
	}
}

func fails(rcode int) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) { _ = w.WriteMsg(new(dns.Msg).SetRcode(q, rcode)) }
}

func silent(dns.ResponseWriter, *dns.Msg) {}

func direct(servers ...netip.AddrPort) route {
	var d net.Dialer
	return route{servers: servers, dial: d.DialContext, budget: budget, resend: resendAfter}
}

func TestForward(t *testing.T) {
	good, other := upstream(t, tells("192.0.2.1")), upstream(t, tells("192.0.2.2"))
	servfail, refuses := upstream(t, fails(dns.RcodeServerFailure)), upstream(t, fails(dns.RcodeRefused))
	nx, mute := upstream(t, fails(dns.RcodeNameError)), upstream(t, silent)
	closed := netip.MustParseAddrPort("127.0.0.1:1")
	for _, c := range []struct {
		name    string
		servers []netip.AddrPort
		want    string
	}{
		{"the first that answers", []netip.AddrPort{good, other}, "NOERROR 192.0.2.1"},
		{"the next after a refusal", []netip.AddrPort{refuses, good}, "NOERROR 192.0.2.1"},
		{"the next after a failure", []netip.AddrPort{servfail, good}, "NOERROR 192.0.2.1"},
		{"the next after silence", []netip.AddrPort{mute, good}, "NOERROR 192.0.2.1"},
		{"the next after nobody", []netip.AddrPort{closed, good}, "NOERROR 192.0.2.1"},
		{"no name is an answer", []netip.AddrPort{nx, good}, "NXDOMAIN"},
		{"all fail", []netip.AddrPort{servfail, refuses}, "REFUSED"},
	} {
		for _, network := range []string{"udp", "tcp"} {
			q := query("example.com", dns.TypeA)
			wire, err := newForwarder().ask(t.Context(), direct(c.servers...), network, "10.1.0.2", wireOf(t, q))
			if err != nil {
				t.Errorf("%s over %s: %v", c.name, network, err)
				continue
			}
			if got := says(t, wire, answered); got != c.want || messageID(wire) != q.Id {
				t.Errorf("%s over %s: got %q, want %q", c.name, network, got, c.want)
			}
		}
	}
}

func TestForwardGivesUp(t *testing.T) {
	start := time.Now()
	_, err := newForwarder().ask(t.Context(), direct(upstream(t, silent)), "udp", "10.1.0.2", wireOf(t, query("example.com", dns.TypeA)))
	if took := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || took > 4*time.Second {
		t.Errorf("after %s: %v", took, err)
	}
	if _, err := newForwarder().ask(t.Context(), direct(), "udp", "", wireOf(t, query("example.com", dns.TypeA))); err == nil {
		t.Error("there was no server and no error")
	}
}

// Ports and IDs are others each time; equal questions at one time are one.
func TestForwardIsUnpredictableAndShared(t *testing.T) {
	var mu sync.Mutex
	ports, ids := map[string]bool{}, map[uint16]bool{}
	var asked atomic.Int32
	server := upstream(t, func(w dns.ResponseWriter, q *dns.Msg) {
		mu.Lock()
		ports[w.RemoteAddr().String()], ids[q.Id] = true, true
		mu.Unlock()
		asked.Add(1)
		time.Sleep(200 * time.Millisecond)
		tells("192.0.2.1")(w, q)
	})
	f := newForwarder()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			q := query("example.com", dns.TypeA)
			wire, err := f.ask(t.Context(), direct(server), "udp", "10.1.0.2", wireOf(t, q))
			if err != nil || messageID(wire) != q.Id {
				t.Errorf("shared answer: %v", err)
			}
		})
	}
	all.Wait()
	if n := asked.Load(); n > 5 {
		t.Errorf("the server was asked %d times", n)
	}
	for i := range 20 {
		q := query(string(rune('a'+i))+".example.com", dns.TypeA)
		all.Go(func() { _, _ = f.ask(t.Context(), direct(server), "udp", "10.1.0.2", wireOf(t, q)) })
	}
	all.Wait()
	mu.Lock()
	defer mu.Unlock()
	if len(ports) < 15 || len(ids) < 15 {
		t.Errorf("%d ports and %d IDs in 20 questions", len(ports), len(ids))
	}
}

// One container cannot take all the places.
func TestForwardBounds(t *testing.T) {
	f := newForwarder()
	for range maxPerAsker {
		if !f.enter("10.1.0.2") {
			t.Fatal("refused too early")
		}
	}
	if f.enter("10.1.0.2") || !f.enter("10.1.0.3") {
		t.Error("the bound is not one of each asker")
	}
	for range maxPerAsker {
		f.leave("10.1.0.2")
	}
	f.leave("10.1.0.3")
	if len(f.byAsker) != 0 || !f.all.TryAcquire(maxForwards) {
		t.Error("places are not given back")
	}
}

// Someone who guesses the port but not the question is not believed.
func TestForwardIgnoresForgeries(t *testing.T) {
	server := upstream(t, func(w dns.ResponseWriter, q *dns.Msg) {
		forged := new(dns.Msg).SetReply(q)
		forged.Question[0].Name = "evil.example."
		forged.Answer = []dns.RR{&dns.A{Hdr: header(forged.Question[0], dns.TypeA), A: net.IPv4(6, 6, 6, 6)}}
		_ = w.WriteMsg(forged)
		wrongID := new(dns.Msg).SetReply(q)
		wrongID.Id++
		_ = w.WriteMsg(wrongID)
		tells("192.0.2.1")(w, q)
	})
	wire, err := newForwarder().ask(t.Context(), direct(server), "udp", "", wireOf(t, query("example.com", dns.TypeA)))
	if err != nil || says(t, wire, answered) != "NOERROR 192.0.2.1" {
		t.Errorf("got %q %v", wire, err)
	}
}

func TestResolvConf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+"~", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+"~", path); err != nil {
			t.Fatal(err)
		}
	}
	r := &resolvConf{path: path}
	now := time.Now()
	want := func(when string, servers ...string) {
		t.Helper()
		var got []string
		for _, s := range r.get(now) {
			got = append(got, s.String())
		}
		if !slices.Equal(got, servers) {
			t.Errorf("%s: got %v, want %v", when, got, servers)
		}
		now = now.Add(2 * checkEvery)
	}
	want("no file")
	write("# nameserver 1.1.1.1\nsearch lan\nnameserver 192.0.2.53 \n nameserver fe80::1%lo\nnameserver lan\n")
	want("a file", "192.0.2.53:53", "[fe80::1%lo]:53")
	write("nameserver 127.0.0.53\n")
	want("another in its place", "127.0.0.53:53")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want("gone for a moment", "127.0.0.53:53")
}

// A server that is slow, and one that loses a packet, are waited for.
func TestForwardIsPatient(t *testing.T) {
	slow := upstream(t, func(w dns.ResponseWriter, q *dns.Msg) {
		time.Sleep(2 * resendAfter)
		tells("192.0.2.1")(w, q)
	})
	var heard atomic.Int32
	lossy := upstream(t, func(w dns.ResponseWriter, q *dns.Msg) {
		if heard.Add(1) == 2 {
			tells("192.0.2.1")(w, q)
		}
	})
	var all sync.WaitGroup
	for name, server := range map[string]netip.AddrPort{"slow": slow, "lossy": lossy} {
		all.Go(func() {
			wire, err := newForwarder().ask(t.Context(), direct(server), "udp", "", wireOf(t, query("example.com", dns.TypeA)))
			if err != nil || says(t, wire, answered) != "NOERROR 192.0.2.1" {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
}

// The context's end ends a wait.
func TestForwardEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	start := time.Now()
	_, err := newForwarder().ask(ctx, direct(upstream(t, silent)), "tcp", "", wireOf(t, query("example.com", dns.TypeA)))
	if took := time.Since(start); err == nil || took > time.Second {
		t.Errorf("after %s: %v", took, err)
	}
}
