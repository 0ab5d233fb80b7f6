package dns

import (
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/miekg/dns"
)

func files() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}

// TestConnectionsOfOneAsker: who opens many connections, and says that much is to come on each,
// has some of them, and others are answered.
func TestConnectionsOfOneAsker(t *testing.T) {
	s, f := atLoopback(t, newSource(town(t)), direct())
	goroutines, open := runtime.NumGoroutine(), files()
	const flood = 700
	var conns []net.Conn
	for range flood {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.76.9")}}
		if c, err := d.Dial("tcp", f.addrOf("tcp")); err == nil { // or it is refused already
			_, _ = c.Write([]byte{255, 255, 0})
			conns = append(conns, c)
		}
	}
	if got := ask(t, "tcp", f.addrOf("tcp"), "db", dns.TypeA); got != "NOERROR 10.1.0.3" {
		t.Errorf("another asker meanwhile: %q", got)
	}
	there := func() int {
		s.conns.mu.Lock()
		defer s.conns.mu.Unlock()
		return s.conns.all
	}
	until(t, func() bool { return there() <= maxTCPPerAsker+1 })
	more, moreFiles := runtime.NumGoroutine()-goroutines, files()-open-len(conns)
	t.Logf("%d connections: %d goroutines and %d files more", flood, more, moreFiles)
	if n := there(); n < maxTCPPerAsker || more > 2*maxTCPPerAsker || moreFiles > maxTCPPerAsker+8 {
		t.Errorf("%d connections, %d goroutines, %d files", n, more, moreFiles)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	until(t, func() bool {
		s.conns.mu.Lock()
		defer s.conns.mu.Unlock()
		return s.conns.all <= 1 && len(s.conns.by) <= 1
	})
}

// TestQuestionsOfOneAsker: who asks for thousands of names that nobody answers is refused most of
// them, and costs no goroutine for those; others are answered.
func TestQuestionsOfOneAsker(t *testing.T) {
	s, f := atLoopback(t, newSource(town(t)), direct(upstream(t, func(w dns.ResponseWriter, r *dns.Msg) {
		if r.Question[0].Name == "example.com." {
			tells("192.0.2.1")(w, r)
		}
	})))
	goroutines := runtime.NumGoroutine()
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP("127.0.76.9")}} // by which an asker is known here
	c, err := d.Dial("udp", f.addrOf("udp"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	most := 0
	for n := range 5000 {
		q := query("x.example.com", dns.TypeA)
		q.Id = uint16(n)
		q.Question[0].Name = "n" + string(rune('a'+n%26)) + string(rune('a'+n/26%26)) + string(rune('a'+n/676%26)) + ".example.net."
		_, _ = c.Write(wireOf(t, q))
		most = max(most, runtime.NumGoroutine()-goroutines)
	}
	// As resolvers do, it asks again: the socket may have had no room on a busy machine.
	got := ""
	for try := 0; try < 4 && got != "NOERROR 192.0.2.1"; try++ {
		got = ask(t, "udp", f.addrOf("udp"), "example.com", dns.TypeA)
	}
	if got != "NOERROR 192.0.2.1" {
		t.Errorf("another asker meanwhile: %q", got)
	}
	t.Logf("5000 questions: %d goroutines more at most, %+v", most, s.Stats())
	// Each that is under way has one, and two for its repetition; and as many at the server of this test.
	if most > 6*maxPerAsker {
		t.Errorf("%d goroutines more", most)
	}
}
