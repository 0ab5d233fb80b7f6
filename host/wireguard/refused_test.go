package wireguard

import (
	"bytes"
	"context"
	"encoding/binary"
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

// TestRefused: what was sent once and comes again is not taken, nor is anything of who is no peer any more, of nobody, that was changed on its way,
// and with another's address; and it is counted, each packet once. What is taken is not.
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
	is := func(want uint64, what string) {
		t.Helper()
		n := refused()
		for tries := 0; n != want && tries < 150; tries++ {
			time.Sleep(100 * time.Millisecond)
			n = refused()
		}
		if n != want {
			t.Errorf("%s: %d are counted, want %d", what, n, want)
		}
	}
	more := func(than uint64, what string) {
		t.Helper()
		for range 150 {
			if refused() > than {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("%s: not counted", what)
	}
	talk := func() {
		t.Helper()
		for _, ends := range [][2]*end{{a, b}, {b, a}} {
			ends[0].Do(func() {
				c, err := net.Dial("udp", netip.AddrPortFrom(ends[1].device.Addr, 4790).String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				for i := range 300 {
					_, _ = c.Write(make([]byte, i))
				}
			})
		}
		if !b.says(a) || !a.says(b) {
			t.Fatal("not heard")
		}
	}
	talk()
	is(0, "before there is any")

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
	n := uint64(3 * len(kept))
	is(n, "what came once more")
	talk()
	is(n, "beside what is taken")

	// Of nobody: a handshake, data of no session, what is too short, and what is no message. And data that were changed.
	junk := make([]byte, 148)
	junk[0] = 1
	_, _ = between.WriteTo(junk, to)
	is(n+1, "a handshake of nobody")
	data := slices.Clone(kept[slices.IndexFunc(kept, func(p []byte) bool { return p[0] == 4 })])
	changed, lost := slices.Clone(data), slices.Clone(data)
	changed[len(changed)-1] ^= 1
	binary.LittleEndian.PutUint64(changed[8:], 1<<40) // a number that was not there yet
	binary.LittleEndian.PutUint32(lost[4:], ^binary.LittleEndian.Uint32(lost[4:]))
	for range 5 {
		for _, p := range [][]byte{changed, lost, {4, 0, 0, 0}, bytes.Repeat([]byte{9}, 40), junk[:100]} {
			_, _ = between.WriteTo(p, to)
		}
	}
	n += 26
	is(n, "what is not sound")

	// A forgotten host, which has its key yet. Its last session's data come once more.
	a.ensure()
	is(n, "a host is forgotten")
	_, _ = between.WriteTo(data, to)
	is(n+1, "data of a forgotten host")
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

// TestRefusedMeanwhile: what is refused is counted while it goes on coming, beside what is taken.
func TestRefusedMeanwhile(t *testing.T) {
	r := new(refusals)
	data := make([]byte, 64)
	data[0] = 4
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for ctx.Err() == nil {
			r.arrive(data) // refused
			r.arrive(data)
			time.Sleep(time.Millisecond)
			r.taken.Add(1)
		}
	}()
	var last uint64
	for begin := time.Now(); last < 300; {
		n, came := r.count(), r.came.Load()
		if last = n; n > came {
			t.Fatalf("%d are counted, of %d that came", n, came)
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("%d are counted, of %d that came", n, came)
		}
	}
}
