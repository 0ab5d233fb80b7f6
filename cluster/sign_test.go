package cluster

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// hostKey makes the n-th host's key.
func hostKey(n int) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(fmt.Appendf(nil, "%032d", n))
}

// signer is the state of the n-th host, with its key.
func signer(t rapid.TB, n int) *State {
	t.Helper()
	s := New(HostID(Public(hostKey(n))))
	if err := s.SignWith(hostKey(n)); err != nil {
		t.Fatal(err)
	}
	return s
}

// wire sends records from one host to another.
func wire(t rapid.TB, recs ...Record) []Record {
	t.Helper()
	out, err := Decode(Encode(recs))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSignatures(t *testing.T) {
	a, b := signer(t, 1), signer(t, 2)
	endpoint := put(t, a, Endpoint{ID: "e", Network: "blue", Host: a.Self()})
	put(t, a, Network{Name: "red"})
	tombstone, _ := a.Delete(Key{KindNetwork, "red"}, time.Unix(1, 0))
	claim := put(t, a, Claim{Block: space, Owner: b.Self()})
	sent := []Record{endpoint, tombstone, claim}
	good, err := Verify(wire(t, sent...))
	if err != nil || !slices.EqualFunc(good, sent, Record.Equal) {
		t.Fatalf("%v, %v", good, err)
	}
	// A third host that has them from the second, from its disk, relays them whole.
	merge(t, b, good)
	restored, err := Restore(b.Self(), wire(t, recordsOf(b)...), b.Snapshot().Marks())
	if err != nil {
		t.Fatal(err)
	}
	if relayed, err := Verify(wire(t, recordsOf(restored)...)); err != nil || len(relayed) != len(sent) {
		t.Fatalf("relayed: %v, %v", relayed, err)
	}

	change := func(r Record, f func(*Record)) Record {
		f(&r)
		return r
	}
	resigned := func(r Record, f func(*Record)) Record { // by b, which has no key but its own
		f(&r)
		r.sig = nil
		b.signing.sign(&r)
		return r
	}
	for name, r := range map[string]Record{
		"no signature":     change(endpoint, func(r *Record) { r.sig = nil }),
		"other body":       change(endpoint, func(r *Record) { r.Body = Endpoint{ID: "e", Network: "red", Host: a.Self()} }),
		"other version":    change(endpoint, func(r *Record) { r.Version.Counter++ }),
		"other past":       change(claim, func(r *Record) { r.Prev-- }),
		"other owner":      change(claim, func(r *Record) { r.Body = Claim{Block: space, Owner: a.Self()} }),
		"undeleted":        change(tombstone, func(r *Record) { r.Deleted, r.Body = 0, Network{Name: "red"} }),
		"other time":       change(tombstone, func(r *Record) { r.Deleted++ }),
		"other tombstone":  change(tombstone, func(r *Record) { r.Key.ID = "blue" }),
		"swapped":          change(endpoint, func(r *Record) { r.sig = claim.sig }),
		"by another host":  resigned(endpoint, func(*Record) {}),
		"gift by another":  resigned(claim, func(r *Record) { r.Body = Claim{Block: space, Owner: b.Self()} }),
		"key of another":   change(resigned(endpoint, func(*Record) {}), func(r *Record) { r.sig.key = a.signing.public }),
		"a bit of it":      change(endpoint, func(r *Record) { r.sig = &signature{r.sig.key, r.sig.sum}; r.sig.sum[3] ^= 1 }),
		"a bit of the end": change(endpoint, func(r *Record) { r.sig = &signature{r.sig.key, r.sig.sum}; r.sig.sum[40] ^= 1 }),
	} {
		good, err := Verify(wire(t, tombstone, r, claim))
		if refused := Refusals(err); len(refused) != 1 || !errors.Is(refused[0], ErrForged) || len(good) != 2 {
			t.Errorf("%s: %d good, error %v", name, len(good), err)
		}
	}
}

// TestVerifyAgreesWithTheStandardLibrary: on signatures made by the book, and on
// such with bits flipped, whatever batch they are in.
func TestVerifyAgreesWithTheStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 2, 7, batchSize + 3}).Draw(t, "n")
		jobs, want := make([]job, n), make([]bool, n)
		flip := rapid.SliceOfN(rapid.IntRange(0, n-1), 0, 4).Draw(t, "flip")
		for i := range jobs {
			key := hostKey(rapid.IntRange(1, 3).Draw(t, "key"))
			public, message := Public(key), fmt.Appendf(nil, "message %d", i)
			sum := [64]byte(ed25519.Sign(key, message))
			if slices.Contains(flip, i) {
				sum[rapid.IntRange(0, 63).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			}
			jobs[i] = job{&public, &sum, func() []byte { return message }}
			want[i] = !ed25519.Verify(public[:], message, sum[:])
		}
		if bad := verify(jobs); !slices.Equal(bad, want) {
			t.Fatalf("bad: %v, want %v", bad, want)
		}
	})
}

// TestFirstKeyStays: were there a second key with a host's ID, it would not do.
func TestFirstKeyStays(t *testing.T) {
	a, b := signer(t, 1), New(id(9))
	merge(t, b, wire(t, put(t, a, Node{ID: a.Self(), Name: "a"})))
	r := put(t, a, Node{ID: a.Self(), Name: "b"})
	other := Public(hostKey(2))
	r.sig = &signature{key: &other, sum: r.sig.sum}
	if _, err := b.Merge([]Record{r}); !errors.Is(err, ErrForged) {
		t.Errorf("another key: %v", err)
	}
	if err := New(id(9)).SignWith(hostKey(1)); err == nil {
		t.Error("a host has another one's key")
	}
	if err := New(id(9)).SignWith(nil); err == nil {
		t.Error("a host has a key of no bytes")
	}
}

// TestOneKeyInMemory: a hundred thousand records do not hold a hundred thousand keys.
func TestOneKeyInMemory(t *testing.T) {
	a, b := signer(t, 1), signer(t, 2)
	for i := range 3 {
		merge(t, b, wire(t, put(t, a, Network{Name: strconv.Itoa(i)})))
	}
	recs := recordsOf(b)
	if recs[0].sig.key != recs[1].sig.key || recs[0].sig.key != recs[2].sig.key {
		t.Error("a key each")
	}
}

// TestMessageHasKeysOnce and in one order, with all its writers'.
func TestMessageHasKeysOnce(t *testing.T) {
	a, b := signer(t, 1), signer(t, 2)
	recs := []Record{put(t, a, Network{Name: "1"}), put(t, b, Network{Name: "2"}), put(t, a, Network{Name: "3"})}
	msg := Encode(recs)
	for _, s := range []*State{a, b} {
		if n := bytes.Count(msg, s.signing.public[:]); n != 1 {
			t.Errorf("%s: its key is in the message %d times", s.Self(), n)
		}
	}
	slices.Reverse(recs)
	if w, err := openMessage(Encode(recs)); err != nil || !slices.IsSortedFunc(w.Keys, bytes.Compare) {
		t.Errorf("keys out of order: %v", err)
	}
}

func BenchmarkVerify(b *testing.B) {
	recs := bigHost(b)
	b.Run("Batch", func(b *testing.B) {
		for b.Loop() {
			if _, err := Verify(recs); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(recs)), "µs/record")
	})
	b.Run("OneByOne", func(b *testing.B) {
		for b.Loop() {
			for i := range recs {
				r := &recs[i]
				if !ed25519.Verify(r.sig.key[:], signedBytes(r), r.sig.sum[:]) {
					b.Fatal("bad")
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(recs)), "µs/record")
	})
	b.Run("Sign", func(b *testing.B) {
		s := signer(b, 1)
		for b.Loop() {
			s.signing.sign(&recs[0])
		}
	})
}
