package replica

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/cluster"
)

// fleet is three replicas that lose power, and messages.
type fleet struct {
	t     *testing.T
	hosts []*Replica
}

func (f *fleet) pick(t *rapid.T, label string) int {
	return rapid.IntRange(0, len(f.hosts)-1).Draw(t, label)
}

func (f *fleet) write(t *rapid.T) {
	r := f.hosts[f.pick(t, "writer")]
	name := fmt.Sprintf("net%d", rapid.IntRange(0, 3).Draw(t, "network"))
	_, err := r.Update(func(tx *Tx) error {
		if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
			tx.Delete(cluster.Network{Name: name}.Key())
		}
		return tx.Put(cluster.Network{Name: name, VNID: rapid.Uint32Range(0, 99).Draw(t, "vnid")})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// donate gives a part of what a host owns to another one, as package ipam does.
func (f *fleet) donate(t *rapid.T) {
	r, to := f.hosts[f.pick(t, "giver")], id(1+f.pick(t, "taker"))
	_, err := r.Update(func(tx *Tx) error {
		owned := tx.Snapshot().Ring().Owned(r.Self(), space)
		if len(owned) == 0 {
			return nil
		}
		from := rapid.SampledFrom(owned).Draw(t, "from")
		bits := rapid.IntRange(from.Bits(), 28).Draw(t, "bits")
		if bits < from.Bits() {
			return nil
		}
		return tx.Put(cluster.Claim{Block: netip.PrefixFrom(from.Addr(), bits), Owner: to})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// deliver sends the parts of an answer, or some of them, or some twice.
func (f *fleet) deliver(t *rapid.T) {
	from, to := f.hosts[f.pick(t, "from")], f.hosts[f.pick(t, "to")]
	parts := slices.Collect(from.Missing(to.Digest(), rapid.IntRange(50, 400).Draw(t, "max")))
	for _, m := range parts {
		for range rapid.SampledFrom([]int{1, 1, 1, 0, 2}).Draw(t, "times") {
			if _, err := to.Merge(slices.Clone(m)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (f *fleet) losePower(t *rapid.T) {
	i := f.pick(t, "victim")
	old := f.hosts[i]
	f.hosts[i] = afterPowerLoss(f.t, old)
	for rec := range old.Snapshot().Records() {
		if rec.Version.Node != old.Self() && rec.Key.Kind != cluster.KindClaim {
			continue // may be lost
		}
		now, ok := f.hosts[i].Snapshot().Record(rec.Key)
		if !ok || !now.Equal(rec) {
			t.Fatalf("the power took %v and left %v, %v", rec, now, ok)
		}
	}
	if err := old.db.Close(); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) flush(t *rapid.T) {
	r := f.hosts[f.pick(t, "flusher")]
	r.batch = 1 // so that the power can go between two
	if _, err := r.flushSome(); err != nil {
		t.Fatal(err)
	}
}

// oneOwner is the promise of the ring, across disks and power losses.
func (f *fleet) oneOwner(t *rapid.T) {
	var owned []netip.Prefix
	for _, r := range f.hosts {
		for _, p := range r.Snapshot().Ring().Owned(r.Self(), space) {
			for _, q := range owned {
				if p.Overlaps(q) {
					t.Fatalf("%s and %s are owned by two hosts", p, q)
				}
			}
		}
		owned = append(owned, r.Snapshot().Ring().Owned(r.Self(), space)...)
	}
}

func TestPowerLossesLoseNothingThatCounts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := &fleet{t: t}
		for i := range 3 {
			f.hosts = append(f.hosts, open(t, id(i+1)))
		}
		put(t, f.hosts[0], cluster.Claim{Block: space, Owner: id(1)})
		rt.Repeat(map[string]func(*rapid.T){
			"write": f.write, "donate": f.donate, "deliver": f.deliver, "deliver again": f.deliver,
			"lose power": f.losePower, "flush": f.flush, "": f.oneOwner,
		})
		for range f.hosts {
			for i := range f.hosts {
				exchange(t, f.hosts[i], f.hosts[(i+1)%3])
			}
		}
		for _, r := range f.hosts[1:] {
			if all(r) != all(f.hosts[0]) || !slices.Equal(r.Digest(), f.hosts[0].Digest()) {
				rt.Fatalf("host %s differs from host %s; pending %v", r.Self(), f.hosts[0].Self(), r.unproven.list)
			}
		}
		for _, r := range f.hosts {
			if err := r.db.Close(); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

// BenchmarkUpdate is what a docker run pays for a record: one write to the disk.
func BenchmarkUpdate(b *testing.B) {
	r := open(b, id(1))
	n := 0
	for b.Loop() {
		n++
		put(b, r, cluster.Network{Name: "blue", VNID: uint32(n & 0xffff)})
	}
}

// BenchmarkJoin is a new host that hears 100,000 endpoints, and its next start.
func BenchmarkJoin(b *testing.B) {
	from := open(b, id(1))
	for range 100 {
		if _, err := from.Update(func(tx *Tx) error {
			for range 1000 {
				n := tx.Snapshot().Len()
				if err := tx.Put(cluster.Endpoint{ID: fmt.Sprintf("%064x", n), Network: "blue", Host: id(1), Name: fmt.Sprint("app-", n)}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		to, start := open(b, id(2)), time.Now()
		for m := range from.Missing(to.Digest(), 1<<16) {
			if _, err := to.Merge(m); err != nil {
				b.Fatal(err)
			}
		}
		merged := time.Now()
		if err := to.Flush(context.Background()); err != nil {
			b.Fatal(err)
		}
		flushed := time.Now()
		afterPowerLoss(b, to)
		b.ReportMetric(merged.Sub(start).Seconds(), "s-merge")
		b.ReportMetric(flushed.Sub(merged).Seconds(), "s-flush")
		b.ReportMetric(time.Since(flushed).Seconds(), "s-open")
	}
}
