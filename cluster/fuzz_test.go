package cluster

import (
	"bytes"
	"testing"
	"time"
)

// seeds are real messages: every kind of record, a tombstone, an answer.
func seeds(f *testing.F) [][]byte {
	s := New(id(1))
	for _, b := range []Body{
		Node{ID: id(1), Name: "a"},
		Network{Name: "blue", VNID: 7, Labels: map[string]string{"a": "b"}},
		Subnet{Prefix: space, Network: "blue", Home: id(1), Range: prefix("10.0.0.8/29")},
		Endpoint{ID: "e", Network: "blue", Host: id(1), MAC: "02:00:00:00:00:01"},
		Use{Network: "blue", Host: id(1)},
		Claim{Block: space, Owner: id(1)},
		Claim{Block: prefix("fd00::/8"), Owner: id(2)},
		Network{Name: "red"},
	} {
		put(f, s, b)
	}
	s.Delete(Key{KindNetwork, "red"}, time.Unix(1, 0))
	all := [][]byte{Encode(nil), Encode(recordsOf(s)), {wireVersion + 1}}
	for m := range s.Snapshot().Answer(Digest{}, 100, 5) {
		all = append(all, m)
	}
	return all
}

// FuzzDecode: no bytes crash a host; what is decoded has one wire form, keeps to
// all limits, and leaves a state it is merged into in order.
func FuzzDecode(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMessage(b)
		if err != nil && len(Refusals(err)) == 0 {
			t.Fatalf("error without a reason: %v", err)
		}
		once := m.Encode()
		again, err := DecodeMessage(once)
		if err != nil {
			t.Fatalf("what was decoded does not decode again: %v", err)
		}
		if !bytes.Equal(again.Encode(), once) {
			t.Fatalf("two wire forms: %x and %x", once, again.Encode())
		}
		s := New(id(3))
		put(t, s, Claim{Block: prefix("10.0.0.8/29"), Owner: id(3)})
		if _, err := s.Merge(m.Records); err != nil && len(Refusals(err)) == 0 {
			t.Fatalf("error without a reason: %v", err)
		}
		if !s.Snapshot().Ring().OwnsAll(id(3), prefix("10.0.0.8/29")) {
			t.Fatal("numbers were stolen")
		}
		checkState(t, s)
	})
}

// FuzzDecodeDigest: a digest has one wire form and none crashes an answer.
func FuzzDecodeDigest(f *testing.F) {
	f.Add(EncodeDigest(Digest{}))
	f.Add(EncodeDigest(Digest{Early: 1, Marks: map[NodeID]uint64{id(1): 1, id(2): 1 << 63}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := DecodeDigest(b)
		if err != nil {
			if len(Refusals(err)) != 1 {
				t.Fatalf("error without a reason: %v", err)
			}
			return
		}
		if !bytes.Equal(EncodeDigest(d), b) {
			t.Fatalf("two wire forms: %x and %x", b, EncodeDigest(d))
		}
		s := New(id(1))
		put(t, s, Network{Name: "blue"})
		for range s.Missing(d) {
		}
		_ = s.Complete(d) // only must not crash
	})
}
