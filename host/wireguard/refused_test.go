package wireguard

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// relay stands between two ends and has what one sends.
type relay struct {
	net.PacketConn
	mu    sync.Mutex
	heard [][]byte
}

// passOn passes on what comes from the one to the other.
func (r *relay) passOn(from, to net.Addr) {
	b := make([]byte, 1<<16)
	for {
		n, at, err := r.ReadFrom(b)
		if err != nil {
			return
		}
		if at.String() != from.String() {
			_, _ = r.WriteTo(b[:n], from)
			continue
		}
		r.mu.Lock()
		r.heard = append(r.heard, slices.Clone(b[:n]))
		r.mu.Unlock()
		_, _ = r.WriteTo(b[:n], to)
	}
}

// TestRefused: what was sent once and comes again is not taken, nor is anything of who is no peer any more, of nobody, and with
// another's address; and it is counted, but for data that come again.
func TestRefused(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	linktest.Wire(t, "eth0", a.NS, b.NS, []string{"192.0.2.1/24"}, []string{"192.0.2.2/24"})
	kind, _ := a.ensure(b)
	if kind != Userspace {
		t.Skip("the kernel's WireGuard counts little of that")
	}
	var between *relay
	b.Do(func() {
		c, err := net.ListenPacket("udp4", "192.0.2.2:9999")
		if err != nil {
			t.Fatal(err)
		}
		between = &relay{PacketConn: c}
	})
	defer between.Close()
	to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:7948"))
	go between.passOn(net.UDPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.2:7948")), to)
	byRelay := func() {
		t.Helper()
		b.Do(func() {
			kind, err := b.device.Ensure(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			port := b.port
			err = b.device.Set(kind, Change{Private: &b.key, Port: &port, Set: []Peer{{Key: a.key.Public(), Endpoint: netip.MustParseAddrPort("192.0.2.2:9999"), Inside: netip.PrefixFrom(a.device.Addr, 128)}}})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	byRelay()
	if !b.says(a) {
		t.Fatal("not heard by the relay")
	}
	refused := func() (n uint64) {
		a.Do(func() { n = Refused(a.device.Run)[link.WireGuard] })
		return n
	}
	more := func(than uint64, what string) {
		t.Helper()
		for range 100 {
			if refused() > than {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("%s: not counted", what)
	}
	if n := refused(); n != 0 {
		t.Errorf("%d are refused before there is any", n)
	}

	// Again, the same packets: the handshake, and the datagrams.
	var ear net.PacketConn
	a.Do(func() {
		var err error
		if ear, err = net.ListenPacket("udp", "[::]:4789"); err != nil {
			t.Fatal(err)
		}
	})
	between.mu.Lock()
	kept, kinds := between.heard, map[byte]int{}
	between.mu.Unlock()
	for _, packet := range kept {
		kinds[packet[0]]++
		for range 3 {
			_, _ = between.WriteTo(packet, to)
		}
	}
	if kinds[1] == 0 || kinds[4] == 0 {
		t.Fatalf("of each type there were %v", kinds)
	}
	_ = ear.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	if _, _, err := ear.ReadFrom(make([]byte, 9)); err == nil {
		t.Error("a datagram is heard that was sent once more by somebody else")
	}
	ear.Close()
	more(0, "a handshake that came once more")

	// Of nobody.
	n := refused()
	junk := make([]byte, 148)
	junk[0] = 1
	_, _ = between.WriteTo(junk, to)
	more(n, "a handshake of nobody")

	// A forgotten host, which has its key yet.
	a.ensure()
	n = refused()
	b.Do(func() {
		if _, err := b.device.Drop(); err != nil {
			t.Fatal(err)
		}
	})
	byRelay()
	if !b.silent(a) {
		t.Error("a host that was forgotten is heard")
	}
	more(n, "a forgotten host's handshake")
}
