package probe

import (
	"bytes"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/diagnose/paths"
)

// TestSealedHellos: a hello counts once, at the host that it was said to, of the run that said it and in the run
// it was said to; and nobody says one without the key.
func TestSealedHellos(t *testing.T) {
	const a, b, c = "0123456789abcdef", "fedcba9876543210", "00000000000000cc"
	old, fresh := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	of := func(self string, run, runA, runB uint64, keys ...[]byte) *seals {
		s := &seals{}
		s.know(Ring{Self: self, Run: run, Keys: keys, Peers: map[string]uint64{a: runA, b: runB, c: 5}})
		return s
	}
	says, hears := of(a, 1, 1, 2, old), of(b, 2, 1, 2, old)
	hello := paths.Hello{From: a, Every: time.Second, Hears: paths.Nothing}
	say := func(s *seals, length int) []byte {
		t.Helper()
		f, err := s.write(b, hello, length)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	counts := func(what string, s *seals, f []byte, want bool) {
		t.Helper()
		if got, ok := s.read(f); ok != want || ok && got != hello {
			t.Errorf("%s: %+v, %t", what, got, ok)
		}
	}
	first := say(says, smallHello)
	if len(first) != smallHello {
		t.Errorf("a small one has %d bytes", len(first))
	}
	counts("the first", hears, first, true)
	counts("... again", hears, first, false)
	counts("... to another host", of(c, 2, 1, 2, old), say(says, 1450), false)
	counts("... to an earlier run", of(b, 3, 1, 2, old), say(says, 1450), false)
	counts("... of an earlier run", of(b, 2, 7, 2, old), say(says, 1450), false)
	counts("... with another key", hears, say(of(a, 1, 1, 2, fresh), smallHello), false)
	var batch [][]byte
	for range 70 {
		batch = append(batch, say(says, smallHello))
	}
	for i, n := range []int{69, 40, 68, 6} {
		counts("overtaken", hears, batch[n], true)
		counts("overtaken, again", hears, batch[n], false)
		if i == 0 {
			hears.know(hears.ring) // as each second
		}
	}
	counts("too late", hears, batch[5], false)
	for bit := range 8 * len(first) {
		forged := say(says, smallHello)
		forged[bit/8] ^= 1 << (bit % 8)
		counts("one bit is another", hears, forged, false)
	}
	// As agents said before there were seals: it counts of one that is so old, and of no other.
	plain, err := encodeHello(hello, smallHello)
	if err != nil {
		t.Fatal(err)
	}
	counts("no seal", hears, plain, false)
	counts("no seal, of an older agent", of(b, 2, 0, 2, old), plain, true)
	if !bytes.Equal(say(of(a, 1, 1, 0, old), smallHello), plain) {
		t.Error("to an older agent it is sealed")
	}
	// The key is changed, on one host after the other; each says it anew by its first.
	both := of(b, 2, 1, 2, fresh, old)
	counts("the old key", both, say(of(a, 1, 1, 2, old), smallHello), true)
	counts("the new key", of(b, 2, 1, 2, old, fresh), say(of(a, 1, 1, 2, fresh), smallHello), true)
	if _, err := says.write("00000000000000dd", hello, smallHello); err == nil {
		t.Error("a host that is not known is said hello")
	}
	if _, ok := (&seals{}).read(first); ok {
		t.Error("somebody is heard before it is known who there is")
	}
}

// BenchmarkForgedHello is what somebody on the wire costs who sends hellos in a host's name.
func BenchmarkForgedHello(b *testing.B) {
	const from = "0123456789abcdef"
	s := &seals{}
	s.know(Ring{Self: "fedcba9876543210", Run: 2, Keys: [][]byte{make([]byte, 32)}, Peers: map[string]uint64{from: 1}})
	f, _ := encodeHello(paths.Hello{From: from, Every: time.Second}, 1450)
	copy(f, sealedMagic)
	f[helloSize+7] = 1
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := s.read(f); ok {
			b.Fatal("it counts")
		}
	}
}
