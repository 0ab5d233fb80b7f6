package replica

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
)

// gifts are the messages by which a host that owns everything gives single addresses away,
// as it broadcasts them, after what others must know to believe them.
func gifts(t testing.TB, n int) (before []byte, messages [][]byte) {
	owner := openSigned(t, 1)
	put(t, owner, cluster.Node{ID: owner.Self(), Name: "owner"}, cluster.Claim{Block: space, Owner: owner.Self()})
	before = slices.Collect(owner.Missing(cluster.EncodeDigest(cluster.Digest{}), 1<<20))[0]
	at := space.Addr()
	for i := range n {
		key := cluster.Claim{Block: netip.PrefixFrom(at, 32), Owner: id(100 + i)}
		put(t, owner, key)
		rec, _ := owner.Snapshot().Record(key.Key())
		messages = append(messages, cluster.Encode([]cluster.Record{rec}))
		at = at.Next()
	}
	return before, messages
}

// TestMergeAllIsMerge: messages that come together have the effect, the new parts and the
// errors that they have one by one, whatever is among them.
func TestMergeAllIsMerge(t *testing.T) {
	before, messages := gifts(t, 8)
	thief := openSigned(t, 3)
	put(t, thief, cluster.Node{ID: thief.Self(), Name: "thief"})
	forged, _ := thief.Snapshot().Record(cluster.Node{ID: thief.Self()}.Key())
	forged.Version.Counter += 7
	twin, err := cluster.Decode(slices.Clone(messages[0]))
	if err != nil {
		t.Fatal(err)
	}
	twin[0].Prev++
	answer := slices.Collect(thief.Missing(cluster.EncodeDigest(cluster.Digest{}), 1<<20))[0]
	for name, batch := range map[string][][]byte{
		"none":         {},
		"one":          messages[:1],
		"good":         messages,
		"again":        {messages[0], messages[1], messages[0], messages[2]},
		"out of order": {messages[3], messages[0], messages[2]},
		"junk":         {messages[0], []byte("junk"), messages[1], nil},
		"forged":       {messages[0], cluster.Encode([]cluster.Record{forged}), messages[1]},
		"a twin":       {messages[0], cluster.Encode(twin), messages[1]},
		"an answer":    {messages[0], answer, messages[1]},
	} {
		a, b := openSigned(t, 2), openSigned(t, 2)
		for _, r := range []*Replica{a, b} {
			if _, err := r.Merge(slices.Clone(before)); err != nil {
				t.Fatal(err)
			}
		}
		fresh, errs := a.MergeAll(batch)
		if len(fresh) != len(batch) || len(errs) != len(batch) {
			t.Fatalf("%s: %d parts and %d errors of %d messages", name, len(fresh), len(errs), len(batch))
		}
		for i, m := range batch {
			part, err := b.Merge(slices.Clone(m))
			if fmt.Sprint(err) != fmt.Sprint(errs[i]) || !slices.Equal(part, fresh[i]) {
				t.Errorf("%s: message %d: %x, %v; by itself %x, %v", name, i, fresh[i], errs[i], part, err)
			}
		}
		if all(a) != all(b) || !slices.Equal(a.Digest(), b.Digest()) || fmt.Sprint(a.Refused()) != fmt.Sprint(b.Refused()) {
			t.Errorf("%s: another state than one by one", name)
		}
		if got := afterPowerLoss(t, a); name != "an answer" && all(got) != all(a) {
			t.Errorf("%s: not durable", name)
		}
	}
}

// TestMergeAllWritesOnce: claims that come together are one write to the disk: a network that
// a thousand hosts take shares of is not a thousand.
func TestMergeAllWritesOnce(t *testing.T) {
	before, messages := gifts(t, 32)
	r := openSigned(t, 2)
	if _, err := r.Merge(before); err != nil {
		t.Fatal(err)
	}
	writes := written(t, r)
	if _, errs := r.MergeAll(messages); slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		t.Fatal(errs)
	}
	if n := written(t, r) - writes; n != 1 {
		t.Errorf("%d claims were written %d times", len(messages), n)
	}
}

// BenchmarkGifts is 64 claims that come together, on the disk of the test's directory.
func BenchmarkGifts(b *testing.B) {
	before, messages := gifts(b, 64)
	for name, merge := range map[string]func(*Replica){
		"OneByOne": func(r *Replica) {
			for _, m := range messages {
				_, _ = r.Merge(slices.Clone(m))
			}
		},
		"Together": func(r *Replica) { r.MergeAll(slices.Clone(messages)) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				r := openSigned(b, 2)
				if _, err := r.Merge(slices.Clone(before)); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				merge(r)
				if r.Snapshot().Len() != 66 {
					b.Fatal(r.Snapshot().Len())
				}
			}
		})
	}
}

// written is how many transactions have been written: each gets the next number, in one of
// the two meta pages at the beginning of the file (bbolt's db.go).
func written(t testing.TB, r *Replica) uint64 {
	raw, err := os.ReadFile(r.db.Path())
	if err != nil {
		t.Fatal(err)
	}
	const txid = 64
	return max(binary.NativeEndian.Uint64(raw[txid:]), binary.NativeEndian.Uint64(raw[os.Getpagesize()+txid:]))
}
