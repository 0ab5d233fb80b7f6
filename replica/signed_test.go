package replica

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
)

func hostKey(n int) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(fmt.Appendf(nil, "%032d", n))
}

// openSigned opens the replica of the n-th host, which signs.
func openSigned(t testing.TB, n int) *Replica {
	t.Helper()
	db, err := store.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	r, err := Open(db, cluster.HostID(cluster.Public(hostKey(n))), Signed(hostKey(n)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestForgedRecordsAreRefused: a host that has the gossip key, and so gets its
// messages to others, cannot speak for another one.
func TestForgedRecordsAreRefused(t *testing.T) {
	owner, other, thief := openSigned(t, 1), openSigned(t, 2), openSigned(t, 3)
	put(t, owner, cluster.Claim{Block: space, Owner: owner.Self()}, cluster.Node{ID: owner.Self(), Name: "owner"})
	put(t, thief, cluster.Node{ID: thief.Self(), Name: "thief"})
	exchange(t, owner, other)
	before := all(other)
	// The thief's own program writes what it likes: without a signature, since it
	// has no key of the owner's.
	pretender := open(t, owner.Self())
	merge := func(m []byte) { _, _ = pretender.Merge(m) }
	for m := range other.Missing(pretender.Digest(), 1000) {
		merge(m)
	}
	put(t, pretender, cluster.Claim{Block: space, Owner: thief.Self()})
	put(t, pretender, cluster.Node{ID: owner.Self(), Name: "thief"})
	if _, err := pretender.Update(func(tx *Tx) error { tx.Delete(cluster.Node{ID: owner.Self()}.Key()); return nil }); err != nil {
		t.Fatal(err)
	}
	for m := range pretender.Missing(other.Digest(), 1000) {
		if _, err := other.Merge(m); !errors.Is(err, cluster.ErrForged) {
			t.Errorf("forged records: %v", err)
		}
	}
	if all(other) != before || other.Refused()["record-forged"] == 0 {
		t.Errorf("counted %v; the state is %q", other.Refused(), all(other))
	}
	// Nor does the owner believe that it said any of that.
	for m := range pretender.Missing(owner.Digest(), 1000) {
		_, _ = owner.Merge(m)
	}
	if owner.Refused()["record-forged"] == 0 {
		t.Errorf("the owner counted %v", owner.Refused())
	}
	// What is true goes on, by way of others and from their disks.
	exchange(t, thief, other)
	third := openSigned(t, 4)
	exchange(t, other, third)
	if all(third) != all(other) {
		t.Error("what a third host relays is not believed")
	}
}

// TestTheftIsRemembered: the baseline against which claims are held is on the
// disk, and what is not believed for a while is reported.
func TestTheftIsRemembered(t *testing.T) {
	owner, other, thief := openSigned(t, 1), openSigned(t, 2), openSigned(t, 3)
	put(t, owner, cluster.Claim{Block: space, Owner: owner.Self()})
	exchange(t, owner, thief)
	exchange(t, owner, other)
	if err := other.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	other = afterPowerLoss(t, other)
	now := time.Unix(1e9, 0)
	other.now = func() time.Time { return now }
	put(t, thief, cluster.Claim{Block: space, Owner: thief.Self()})
	exchange(t, thief, other)
	if !other.Snapshot().Ring().OwnsAll(owner.Self(), space) {
		t.Error("after a restart a theft is believed")
	}
	if d := other.Pending(); len(d) != 0 {
		t.Errorf("reported at once: %v", d)
	}
	now = now.Add(pendingDelay)
	exchange(t, thief, other)
	if d := other.Pending(); len(d) != 1 || d[0].Version.Node != thief.Self() || d[0].Owner != owner.Self() {
		t.Errorf("reported: %v", d)
	}
	put(t, owner, cluster.Network{Name: "blue"}, cluster.Network{Name: "red"}) // so that the next is newer
	put(t, owner, cluster.Claim{Block: space, Owner: other.Self()})
	exchange(t, owner, other)
	if d := other.Pending(); len(d) != 0 {
		t.Errorf("after that it was replaced: %v", d)
	}
}

// BenchmarkCatchUp is a new host that hears of 1,000 hosts and 100,000 endpoints.
func BenchmarkCatchUp(b *testing.B) {
	src := openSigned(b, 5000)
	for h := range 1000 {
		s := cluster.New(cluster.HostID(cluster.Public(hostKey(h))))
		if err := s.SignWith(hostKey(h)); err != nil {
			b.Fatal(err)
		}
		for e := range 100 {
			_, _, err := s.Put(cluster.Endpoint{
				ID: fmt.Sprintf("%064x", h*100+e), Network: fmt.Sprintf("network%d", e), Host: s.Self(), MAC: "02:00:00:00:00:01",
				Container: fmt.Sprintf("%064x", h*100+e), Name: fmt.Sprintf("app-%d", e),
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		if _, err := src.Merge(cluster.Encode(slices.Collect(s.Snapshot().Records()))); err != nil {
			b.Fatal(err)
		}
	}
	for _, signed := range []bool{false, true} {
		b.Run(fmt.Sprintf("signed=%v", signed), func(b *testing.B) {
			var flushed time.Duration
			defer func() { b.ReportMetric(flushed.Seconds()/float64(b.N), "s-of-it-flushed/op") }()
			for b.Loop() {
				to := open(b, id(1))
				if signed {
					to = openSigned(b, 6000)
				}
				for m := range src.Missing(to.Digest(), 256<<10) {
					if _, err := to.Merge(m); err != nil {
						b.Fatal(err)
					}
				}
				if to.Snapshot().Len() != 100_000 {
					b.Fatal(to.Snapshot().Len())
				}
				begin := time.Now()
				if err := to.Flush(b.Context()); err != nil {
					b.Fatal(err)
				}
				flushed += time.Since(begin)
			}
		})
	}
}
