package cluster

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
)

// big is a cluster of 1,000 hosts with 100 endpoints each, in 256 networks: one
// message per host, as they write it.
func big(b testing.TB) (messages [][]byte) {
	b.Helper()
	for h := range 1000 {
		s := signer(b, h+1)
		put(b, s, Node{ID: s.Self(), Name: fmt.Sprintf("host%d", h), VTEP: netip.AddrFrom4([4]byte{192, 168, byte(h >> 8), byte(h)}), VXLANPort: 4789, MTU: 1500})
		for e := range 100 {
			n := h*100 + e
			put(b, s, Endpoint{
				ID: fmt.Sprintf("%064x", n), Network: fmt.Sprintf("network%d", n%256), Host: s.Self(), MAC: fmt.Sprintf("02:00:00:%02x:%02x:%02x", n>>16, n>>8&255, n&255),
				Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 128 + byte(n>>16), byte(n >> 8), byte(n)})}, Container: fmt.Sprintf("%064x", n), Name: fmt.Sprintf("app-%d", n),
			})
		}
		messages = append(messages, Encode(recordsOf(s)))
	}
	return messages
}

// bigHost is the records of one of them.
func bigHost(b testing.TB) []Record {
	recs, err := Decode(big(b)[7])
	if err != nil {
		b.Fatal(err)
	}
	return recs
}

func bigState(b testing.TB) *State {
	s := New(id(5000))
	for _, m := range big(b) {
		recs, err := Decode(m)
		if err != nil {
			b.Fatal(err)
		}
		merge(b, s, recs)
	}
	return s
}

// TestSizeOfABigCluster keeps the memory of 100,000 endpoints within bounds.
func TestSizeOfABigCluster(t *testing.T) {
	messages := big(t)
	before := heap()
	s := New(id(5000))
	wire := 0
	for _, m := range messages {
		recs, err := Decode(m)
		if err != nil {
			t.Fatal(err)
		}
		merge(t, s, recs)
		wire += len(m)
	}
	s.Touched()
	perRecord := float64(heap()-before) / float64(s.Snapshot().Len())
	runtime.KeepAlive(messages) // counted before, so after as well
	digest := len(EncodeDigest(s.Digest()))
	t.Logf("%d records: %.0f bytes each in memory, %d on the wire; digest %d bytes", s.Snapshot().Len(), perRecord, wire/s.Snapshot().Len(), digest)
	if perRecord > 1500 || digest > 16000 {
		t.Errorf("%.0f bytes per record, digest of %d bytes: too much for 100,000 endpoints", perRecord, digest)
	}
}

// heap returns the bytes in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // the first may leave some of the sweeping to do
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkCluster(b *testing.B) {
	s := bigState(b)
	s.Touched()
	messages := big(b)
	b.Run("Snapshot", func(b *testing.B) {
		for b.Loop() {
			s.changed()
			s.Snapshot()
		}
	})
	b.Run("Digest", func(b *testing.B) { // as often as hosts compare theirs: nothing has changed
		for b.Loop() {
			s.Snapshot().EncodedDigest()
		}
	})
	b.Run("DigestOfChange", func(b *testing.B) {
		for b.Loop() {
			s.changed()
			s.Snapshot().EncodedDigest()
		}
	})
	d := s.Digest()
	b.Run("MissingNothing", func(b *testing.B) {
		for b.Loop() {
			for range s.Missing(d) {
				b.Fatal("something is missing")
			}
		}
	})
	b.Run("CompleteNothing", func(b *testing.B) {
		for b.Loop() {
			if err := s.Complete(d); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("AnswerAll", func(b *testing.B) {
		for b.Loop() {
			for range s.Snapshot().Answer(Digest{}, 1<<16, 1) {
			}
		}
	})
	b.Run("Decode100", func(b *testing.B) {
		for b.Loop() {
			if _, err := Decode(messages[7]); err != nil {
				b.Fatal(err)
			}
		}
	})
	recs, err := Decode(messages[7])
	if err != nil {
		b.Fatal(err)
	}
	b.Run("MergeKnown100", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Merge(recs); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("CloneAndPut", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := s.Clone().Put(Network{Name: "one more"}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("AllEndpoints", func(b *testing.B) {
		snap := s.Snapshot()
		for b.Loop() {
			n := 0
			for range All[Endpoint](snap) {
				n++
			}
			if n != 100000 {
				b.Fatal(n)
			}
		}
	})
}

// BenchmarkProvable has a /64 of which single addresses were another host's, next to each other.
func BenchmarkProvable(b *testing.B) {
	for _, numbers := range []int{1, 60, 2000} {
		owner := gathered(b, prefix("fd00:1::/64"), numbers)
		b.Run(fmt.Sprint(numbers), func(b *testing.B) {
			for b.Loop() {
				owner.Provable(prefix("fd00:1::/64"))
			}
		})
	}
}
