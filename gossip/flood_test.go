package gossip

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// costs is what this process takes.
type costs struct {
	heap, goroutines, files int
	cpu                     time.Duration
}

func measure() costs {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd")
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return costs{int(m.HeapAlloc), runtime.NumGoroutine(), len(files), time.Duration(u.Utime.Nano() + u.Stime.Nano())}
}

// from dials a host from an address of the loopback network.
func from(ip string, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: 5 * time.Second}
	return d.DialContext(context.Background(), "tcp", to.String())
}

// streams opens n streams from addresses, in turn, and writes the same on each. Those that the
// host has closed are none of a sender's mistakes.
func streams(t *testing.T, to netip.AddrPort, n int, say []byte, ips ...string) (conns []net.Conn) {
	t.Helper()
	var wait sync.WaitGroup
	for i := range n {
		c, err := from(ips[i%len(ips)], to)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		wait.Go(func() {
			_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second))
			_, _ = c.Write(say)
		})
	}
	wait.Wait()
	return conns
}

// almost is a message of so many bytes whose last one does not come.
func almost(size int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{frameEncrypted}, uint32(size)), bytes.Repeat([]byte{1}, size-1)...)
}

// Whoever has no key makes a host keep little, whatever he sends and from where.
func TestWithoutTheKeyLittleIsKept(t *testing.T) {
	hosts := socketHosts(t, "127.0.74.1", "127.0.74.2")
	to := hosts[0].Addr()
	within(t, 5*time.Second, "the host is known by its place", func() bool { return hosts[0].door.knows(netip.MustParseAddr("127.0.74.2")) })
	limit := func(c class) (bytes int) { return 2*allowances[c].bytes + 8<<20 }
	for _, c := range []struct {
		what    string
		streams int
		say     []byte
		from    []string
		heap    int // more than before
	}{
		{"20 MiB of a stranger", 16, almost(maxFrame), []string{"127.0.74.9"}, 2 << 20},
		{"1 MiB of a stranger", 96, almost(1 << 20), []string{"127.0.74.9"}, limit(stranger)},
		{"1 MiB of many strangers", 96, almost(1 << 20), []string{"127.0.74.10", "127.0.74.11", "127.0.74.12", "127.0.74.13"}, limit(stranger)},
		{"20 MiB from where a host is", 16, almost(maxFrame), []string{"127.0.74.2"}, limit(known)},
		{"nothing", 400, nil, []string{"127.0.74.9"}, limit(stranger)},
		{"a byte", 400, []byte{frameEncrypted}, []string{"127.0.74.9"}, limit(stranger)},
		{"a page that no key opens", 400, append(binary.BigEndian.AppendUint32([]byte{frameEncrypted}, 4000), make([]byte, 4000)...), []string{"127.0.74.9"}, limit(stranger)},
	} {
		before := measure()
		conns := streams(t, to, c.streams, c.say, c.from...)
		time.Sleep(100 * time.Millisecond)
		after := measure()
		// What has been let go while the collector was at work is not kept.
		for began := time.Now(); after.heap-before.heap > c.heap && time.Since(began) < 2*time.Second; {
			after = measure()
		}
		t.Logf("%-30s %d streams: heap +%d KiB, goroutines +%d, files +%d", c.what, c.streams,
			(after.heap-before.heap)>>10, after.goroutines-before.goroutines, after.files-before.files-len(conns))
		if more := after.heap - before.heap; more > c.heap {
			t.Errorf("%s: the heap has grown by %d bytes, allowed are %d", c.what, more, c.heap)
		}
		if most := allowances[stranger].guests + maxRefusals + 64; c.from[0] != "127.0.74.2" &&
			(after.goroutines-before.goroutines > 2*most || after.files-before.files-len(conns) > most) {
			t.Errorf("%s: %d goroutines and %d files more", c.what, after.goroutines-before.goroutines, after.files-before.files-len(conns))
		}
		// Meanwhile hosts of the cluster get through, and so does one that joins from where the
		// flood does not come from.
		if _, err := hosts[1].Call(seconds(t, 20), hosts[0].id, methodProve, append(make([]byte, nonceSize), hosts[0].self[:]...)); err != nil {
			t.Errorf("%s: a call: %v", c.what, err)
		}
		for _, c := range conns {
			_ = c.Close()
		}
	}
	if !allSee(hosts, 1) {
		t.Error("the hosts have lost each other")
	}
}

// While streams and packets of who has no key come as fast as they can, from one place and from
// many, hosts stay in touch, and new ones join.
func TestJoinsInAFlood(t *testing.T) {
	hosts := socketHosts(t, "127.0.75.1", "127.0.75.2")
	to := hosts[0].Addr()
	ctx, stop := context.WithCancel(context.Background())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer stop()
	var opened, sent atomic.Int64
	for _, ip := range []string{"127.0.75.9", "127.0.75.10", "127.0.75.11"} {
		flood.Go(func() { // streams that stay open and silent, anew as they are closed
			var open []net.Conn
			for ctx.Err() == nil {
				if len(open) > 200 {
					_ = open[0].Close()
					open = slices.Delete(open, 0, 1)
				}
				if c, err := from(ip, to); err == nil {
					opened.Add(1)
					open = append(open, c)
				}
			}
			for _, c := range open {
				_ = c.Close()
			}
		})
	}
	flood.Go(func() {
		c, err := net.Dial("udp", to.String())
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for ctx.Err() == nil {
			_, _ = c.Write(bytes.Repeat([]byte{1}, 1200))
			sent.Add(1)
		}
	})
	before := measure()
	joiner := start(t, nil, 2, func(c *Config) {
		c.Bind, c.Join = netip.MustParseAddrPort("127.0.75.3:0"), []string{to.String()}
	})
	took := within(t, time.Minute, "a host joins", func() bool { return len(joiner.Alive()) == 2 })
	open := 0
	for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(10 * time.Millisecond) {
		open = max(open, streamsOpen(hosts[0]))
		if now := measure(); now.heap-before.heap > 64<<20 {
			t.Fatalf("the heap has grown by %d bytes", now.heap-before.heap)
		}
	}
	after := measure()
	t.Logf("joined after %v, with %d streams opened (%d at once) and %d packets sent; processor %v", took, opened.Load(), open, sent.Load(), after.cpu-before.cpu)
	if !allSee(append(hosts, joiner), 2) {
		t.Error("the hosts have lost each other")
	}
	// Those that come are no faster than those that have to go.
	if open > 3*allowances[stranger].guests {
		t.Errorf("%d streams were open at once, and strangers may have %d", open, allowances[stranger].guests)
	}
	if opened.Load() < 300 || sent.Load() < 1000 {
		t.Error("there was no flood: the test shows nothing")
	}
}

// streamsOpen is how many streams a host has, of which each is a file and a goroutine.
func streamsOpen(h *host) int {
	t := h.trier.transport
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}

// The one who has most gives way.
func TestGuestsGiveWay(t *testing.T) {
	s := newGuests()
	var gone []string
	enter := func(name, ip string) *guest {
		g := &guest{source: sourceOf(netip.MustParseAddr(ip)), evict: func() { gone = append(gone, name) }}
		s.enter(g)
		return g
	}
	small := enter("small", "192.0.2.1")
	for range allowances[stranger].guests + 20 {
		enter("flood", "2001:db8::1")
	}
	enter("flood", "2001:db8::2") // of the same network
	if len(gone) != 22 || slices.Contains(gone, "small") {
		t.Errorf("gone: %d, %v", len(gone), gone)
	}
	gone = nil
	if !s.grow(small, 1<<20) {
		t.Error("the one who has least gets no room")
	}
	big := enter("big", "192.0.2.2")
	for s.grow(big, 1<<20) {
	}
	if !slices.Contains(gone, "big") || slices.Contains(gone, "small") {
		t.Errorf("gone: %v", gone)
	}
	if s.bytes[stranger] != 1<<20 || s.ghosts[stranger] != big.held {
		t.Errorf("%d bytes are held, and %d by who is out", s.bytes[stranger], s.ghosts[stranger])
	}
	for g := range s.all {
		s.leave(g)
		s.leave(g)
	}
	s.leave(big)
	if s.bytes[stranger] != 0 || s.count[stranger] != 0 || len(s.all) != 0 || s.ghosts[stranger] != 0 {
		t.Errorf("left: %+v", s)
	}
}

// FuzzFrame: what a stream brings is read to its end and no further, within what is allowed.
func FuzzFrame(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{frameEncrypted, 0, 0, 0})
	f.Add(almost(100))
	f.Add(append(almost(40), 1, 2, 3))
	f.Add([]byte{244, 3, 'a'})
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1 << 16
		kept := 0
		frame, whole, err := readFrame(bytes.NewReader(b), limit, func(n int) bool { kept += n; return true })
		if !bytes.HasPrefix(b, frame) || kept > limit || err != nil && (whole || frame != nil) {
			t.Fatalf("%x: %x, %v, %v, %d bytes", b, frame, whole, err, kept)
		}
		if whole && newOpener().opensFrame([][]byte{testKey}, frame) {
			t.Fatalf("a key opens %x", frame)
		}
		if whole && len(stub(frame)) > frameHead+courtesy {
			t.Fatal("the stub is long")
		}
	})
}
