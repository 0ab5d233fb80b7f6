package offload

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func cutAll(t testing.TB, h header, p []byte) (all [][]byte) {
	t.Helper()
	c, err := begin(h, p)
	if err != nil {
		t.Fatal(err)
	}
	for c.left() {
		b := make([]byte, c.data+c.size)
		n, err := c.next(b)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b[:n])
	}
	return all
}

// TestCut: what is cut is, byte by byte, what a sender would have sent one by one, checksums and all.
func TestCut(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		s := anyShape(r)
		payload := s.random(r)
		h, p := s.whole(payload)
		got, want := cutAll(t, h, p), s.wire(payload)
		if len(got) != len(want) {
			t.Fatalf("%+v: cut in %d, want %d", s, len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("%+v: packet %d of %d:\n%x\nwant\n%x", s, i, len(want), got[i], want[i])
			}
		}
	}
}

// TestNeverNone: a checksum of UDP that comes to 0 would mean that there is none.
func TestNeverNone(t *testing.T) {
	s := shape{outer: 6, checked: true, inner: 4, flags: ack, size: 10, payload: 12}
	payload := make([]byte, s.payload)
	for ; s.vni < 1<<16; s.vni++ {
		want := s.wire(payload)
		if be.Uint16(want[0][ip6Len+udpCheck:]) != 0xffff {
			continue
		}
		h, p := s.whole(payload)
		if got := cutAll(t, h, p); !bytes.Equal(got[0], want[0]) {
			t.Errorf("%x\nwant\n%x", got[0], want[0])
		}
		return
	}
	t.Error("none comes to 0")
}

// TestFill: the checksum that the kernel leaves to the process is put where it said.
func TestFill(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		s := anyShape(r)
		s.size = s.payload
		payload := s.random(r)
		h, p := s.whole(payload)
		want := s.wire(payload)[0]
		if s.outer != 0 { // the kernel fills in the outer one itself
			copy(p[h.outer+6:h.outer+8], want[h.outer+6:])
		}
		if err := fill(h, p); err != nil || !bytes.Equal(p, want) {
			t.Fatalf("%+v: %v:\n%x\nwant\n%x", s, err, p, want)
		}
	}
	// 0 would mean that UDP has none.
	p := []byte{0, 0, 0, 0, 0, 8, 0xff, 0xff - 8}
	if err := fill(header{flags: needsChecksum, csumOffset: udpCheck}, p); err != nil || p[6] != 0xff || p[7] != 0xff {
		t.Errorf("%v: %x", err, p)
	}
	if fill(header{flags: needsChecksum, csumStart: 7}, p) == nil {
		t.Error("a checksum behind the end is put there")
	}
}

// FuzzCut: whatever the kernel says of whatever packet, it is refused, or cut in such a way that all of its payload is sent
// once, and that nothing else is.
func FuzzCut(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		s := anyShape(r)
		s.payload = min(s.payload, 300)
		h, p := s.whole(s.random(r))
		b := make([]byte, headerLen)
		h.encode(b)
		f.Add(append(b, p...))
	}
	f.Fuzz(func(t *testing.T, read []byte) {
		var h header
		if h.decode(read) != nil {
			return
		}
		p := read[headerLen:]
		before := bytes.Clone(p)
		c, err := begin(h, p)
		if err != nil {
			return
		}
		var sent []byte
		for c.left() {
			b := make([]byte, c.data+c.size)
			n, err := c.next(b)
			if err != nil || n <= c.data {
				t.Fatalf("%d, %v", n, err)
			}
			sent = append(sent, b[c.data:n]...)
		}
		if !bytes.Equal(sent, before[c.data:]) || !bytes.Equal(p, before) {
			t.Error("not what was to be sent")
		}
		_ = fill(h, p)
	})
}
