package cluster

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// differing are the keys under which two snapshots have different records.
func differing(a, b *Snapshot) map[Key]bool {
	keys := map[Key]bool{}
	for r := range a.Records() {
		if o, ok := b.Record(r.Key); !ok || !o.Equal(r) {
			keys[r.Key] = true
		}
	}
	for r := range b.Records() {
		if _, ok := a.Record(r.Key); !ok {
			keys[r.Key] = true
		}
	}
	return keys
}

// TestSince: whatever differs between two snapshots is told of, unless it is said that
// this is not known; and what other clones of the State wrote is not.
func TestSince(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, other := New(id(1)), New(id(2))
		put(t, s, Claim{Block: space, Owner: s.Self()})
		seen := []*Snapshot{s.Snapshot()}
		rapid.SliceOfN(rapid.Custom(func(t *rapid.T) bool {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				randomWrite(t, s.Clone()) // is thrown away
			case 1:
				randomWrite(t, other)
				exchange(t, s, other, 300)
				exchange(t, other, s, 300)
			case 2:
				s.Expire(slices.Collect(maps.Keys(maps.Collect(s.Snapshot().Tombstones()))))
			default:
				randomWrite(t, s)
			}
			seen = append(seen, s.Snapshot())
			return true
		}), 1, 30).Draw(t, "history")
		last := s.Snapshot()
		for _, snap := range seen {
			checkLive(t, snap)
		}
		for i, old := range seen {
			keys, known := last.Since(old)
			if !known {
				t.Fatalf("what changed since snapshot %d is not known", i)
			}
			told := map[Key]bool{}
			for _, k := range keys {
				told[k] = true
			}
			for k := range differing(old, last) {
				if !told[k] {
					t.Fatalf("%v differs from snapshot %d and is not among %v", k, i, keys)
				}
			}
			if last.Rev() == old.Rev() && len(keys) > 0 {
				t.Fatalf("%v have changed in no time", keys)
			}
		}
	})
}

// checkLive: All and Written, which do not look at tombstones, yield what is no tombstone.
func checkLive(t *rapid.T, snap *Snapshot) {
	live, gone := map[Key]bool{}, map[Key]bool{}
	for r := range snap.Records() {
		if r.Body != nil {
			live[r.Key] = true
		} else if r.Key.Kind != KindNode {
			gone[r.Key] = true
		}
	}
	all, written := map[Key]bool{}, map[Key]bool{}
	collect[Node](snap, all, written)
	collect[Network](snap, all, written)
	collect[Subnet](snap, all, written)
	collect[Endpoint](snap, all, written)
	collect[Use](snap, all, written)
	collect[Claim](snap, all, written)
	buried := map[Key]bool{}
	for _, kind := range []Kind{KindNetwork, KindSubnet, KindEndpoint, KindUse} {
		for k := range snap.Gone(kind) {
			buried[k] = true
		}
	}
	if !maps.Equal(live, all) || !maps.Equal(live, written) || !maps.Equal(gone, buried) {
		t.Fatalf("there are %v: All has %v, Written %v; tombstones %v: Gone has %v", live, all, written, gone, buried)
	}
}

func collect[T Body](snap *Snapshot, all, written map[Key]bool) {
	for b := range All[T](snap) {
		all[b.Key()] = true
	}
	for writer := range snap.Marks() {
		for b := range Written[T](snap, writer) {
			written[b.Key()] = true
		}
	}
}

// TestSinceLongAgo: what cannot be known is not claimed.
func TestSinceLongAgo(t *testing.T) {
	s := New(id(1))
	first := s.Snapshot()
	put(t, s, Network{Name: "blue"})
	old := s.Snapshot()
	clone := s.Clone()
	put(t, clone, Network{Name: "red"})
	put(t, s, Network{Name: "green"})
	if _, known := s.Snapshot().Since(clone.Snapshot()); known {
		t.Error("a snapshot of a clone is taken for an earlier one")
	}
	if _, known := old.Since(s.Snapshot()); known {
		t.Error("a later snapshot is taken for an earlier one")
	}
	if _, known := s.Snapshot().Since(nil); known {
		t.Error("nothing is taken for an earlier snapshot")
	}
	lengths := map[int]bool{}
	for n := range 3 * maxChanges {
		put(t, s, Network{Name: "blue", VNID: uint32(1 + n)})
		if keys, known := s.Snapshot().Since(old); known {
			lengths[len(keys)] = true
		}
	}
	if _, known := s.Snapshot().Since(first); known || len(lengths) < 2 || lengths[maxChanges+1] {
		t.Errorf("remembers as many changes as %v", maps.Keys(lengths))
	}
}
