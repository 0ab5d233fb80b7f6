package cluster

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// TestRefused: each bad record is refused for its reason, changes nothing, and
// does not keep the good one in the same message out.
func TestRefused(t *testing.T) {
	self, other, third := id(1), id(2), id(3)
	v := func(counter uint64, node NodeID) Version { return Version{counter, node} }
	network := Network{Name: "blue"}
	tests := map[string]struct {
		bad    Record
		reason error
	}{
		"own write that was never made": {Record{Key: network.Key(), Version: v(9, self), Body: network}, ErrLostWrites},
		"endpoint of another host":      {Record{Version: v(9, other), Body: Endpoint{ID: "e", Network: "blue", Host: third}}, ErrForged},
		"endpoint of this host":         {Record{Version: v(9, other), Body: Endpoint{ID: "e", Network: "blue", Host: self}}, ErrForged},
		"node of another host":          {Record{Version: v(9, other), Body: Node{ID: third}}, ErrForged},
		"use of another host":           {Record{Version: v(9, other), Body: Use{Network: "blue", Host: third}}, ErrForged},
		"claim on own numbers":          {Record{Version: v(9, other), Body: Claim{Block: prefix("10.0.0.8/30"), Owner: other}}, ErrOwned},
		"claim around own numbers":      {Record{Version: v(9, other), Body: Claim{Block: prefix("10.0.0.0/8"), Owner: other}}, ErrOwned},
		"claim for a third":             {Record{Version: v(9, other), Body: Claim{Block: prefix("10.0.0.8/32"), Owner: third}}, ErrOwned},
		"counter out of reach":          {Record{Version: v(1<<41, other), Body: network}, ErrCounter},
		"counter of an overflow":        {Record{Version: v(1<<64-1, other), Body: network}, ErrCounter},
		"no version":                    {Record{Body: network}, ErrMalformed},
		"no body":                       {Record{Key: network.Key(), Version: v(9, other)}, ErrMalformed},
		"deleted and a body":            {Record{Version: v(9, other), Deleted: 1, Body: network}, ErrMalformed},
		"deleted claim":                 {Record{Key: Claim{Block: space}.Key(), Version: v(9, other), Deleted: 1}, ErrMalformed},
		"previous write after it":       {Record{Version: v(9, other), Prev: 9, Body: network}, ErrMalformed},
		"body out of bounds":            {Record{Version: v(9, other), Body: Network{Name: "blue", VNID: 1 << 24}}, ErrMalformed},
		"key of another body":           {Record{Key: Key{KindNetwork, "red"}, Version: v(9, other), Body: network}, ErrMalformed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.bad.Key == (Key{}) && tt.bad.Body != nil {
				tt.bad.Key = tt.bad.Body.Key()
			}
			s := New(self)
			put(t, s, Claim{Block: prefix("10.0.0.8/29"), Owner: self})
			good := put(t, New(third), Network{Name: "good"})
			before := recordsOf(s)
			m, err := s.Merge([]Record{tt.bad, good})
			if len(m.Fresh) != 1 || m.Fresh[0].Key.ID != "good" || len(m.Gone)+len(m.Stale) > 0 {
				t.Errorf("%+v, want the good record only", m)
			}
			refused := Refusals(err)
			if len(refused) != 1 || !errors.Is(refused[0], tt.reason) || refused[0].Key != tt.bad.Key {
				t.Fatalf("error %v, want %v", err, tt.reason)
			}
			after := slices.DeleteFunc(recordsOf(s), func(r Record) bool { return r.Key.ID == "good" })
			if !slices.EqualFunc(before, after, Record.Equal) {
				t.Errorf("state changed to %v", after)
			}
			checkState(t, s)
		})
	}
}

func TestOldNewsOfOwnNumbersIsNoTheft(t *testing.T) {
	a, b := New(id(1)), New(id(2))
	seed := put(t, a, Claim{Block: space, Owner: id(1)})
	merge(t, b, []Record{seed})
	there := put(t, a, Claim{Block: prefix("10.0.0.8/29"), Owner: id(2)})
	merge(t, b, []Record{there})
	back := put(t, b, Claim{Block: prefix("10.0.0.8/30"), Owner: id(1)})
	merge(t, a, []Record{back})
	// Late repetitions, and the whole space's claim at a host that owns a part.
	merge(t, a, []Record{there})
	merge(t, b, []Record{seed, there, back})
	c := New(id(3))
	merge(t, c, []Record{back})
	merge(t, c, []Record{there, seed})
	if !a.Snapshot().Ring().OwnsAll(id(1), prefix("10.0.0.8/30")) || !c.Snapshot().Ring().OwnsAll(id(2), prefix("10.0.0.12/30")) {
		t.Errorf("claims: %v", recordsOf(c))
	}
}

// TestARefusedClaimStaysWanted: a host that refuses a claim does not let others
// believe that they have it when it has sent them all it has.
func TestARefusedClaimStaysWanted(t *testing.T) {
	forgotten, heir, late := New(id(1)), New(id(2)), New(id(3))
	seed := put(t, forgotten, Claim{Block: space, Owner: id(1)})
	node := put(t, forgotten, Node{ID: id(1)})
	merge(t, heir, []Record{seed, node})
	tombstone, _ := heir.Delete(node.Key, time.Unix(1, 0))
	takeover := put(t, heir, Claim{Block: space, Owner: id(2)})
	after := put(t, heir, Network{Name: "later"})
	if _, err := forgotten.Merge([]Record{tombstone, takeover, after}); !errors.Is(err, ErrOwned) {
		t.Fatalf("error %v, want %v", err, ErrOwned)
	}
	if err := forgotten.Complete(heir.Digest()); err != nil {
		t.Fatal(err)
	}
	merge(t, late, slices.Collect(forgotten.Missing(late.Digest())))
	if err := late.Complete(forgotten.Digest()); err != nil {
		t.Fatal(err)
	}
	exchange(t, heir, late, 1000)
	equal(t, heir, late)
}

func TestLostDiskIsSeen(t *testing.T) {
	a, b := New(id(1)), New(id(2))
	first := put(t, a, Network{Name: "one"})
	old := a.Clone() // the disk as a copy of it was made
	merge(t, b, []Record{first, put(t, a, Network{Name: "two"})})
	if err := old.Complete(b.Digest()); !errors.Is(err, ErrLostWrites) {
		t.Errorf("digest: %v, want %v", err, ErrLostWrites)
	}
	_, err := old.Merge(slices.Collect(b.Missing(old.Digest())))
	if !errors.Is(err, ErrLostWrites) {
		t.Errorf("records: %v, want %v", err, ErrLostWrites)
	}
	if err := a.Complete(b.Digest()); err != nil {
		t.Errorf("with its disk: %v", err)
	}
}

func TestCompleteOutOfReach(t *testing.T) {
	s := New(id(1))
	err := s.Complete(Digest{Marks: map[NodeID]uint64{id(2): 1 << 50, "junk": 1, id(3): 7}})
	if len(Refusals(err)) != 2 || !errors.Is(err, ErrCounter) {
		t.Errorf("error %v", err)
	}
	if d := s.Digest(); len(d.Marks) != 1 || d.Marks[id(3)] != 7 {
		t.Errorf("digest %v", d)
	}
}

func TestForgottenIsFinal(t *testing.T) {
	a, b := New(id(1)), New(id(2))
	node := put(t, a, Node{ID: id(1), Name: "a"})
	merge(t, b, []Record{node})
	gone, ok := b.Delete(node.Key, time.Unix(1000, 0))
	if !ok {
		t.Fatal("not deleted")
	}
	for range 5 {
		put(t, a, Network{Name: "busy", VNID: uint32(a.clock)})
	}
	later := put(t, a, Node{ID: id(1), Name: "I am back"}) // of a higher version
	merge(t, b, []Record{later})
	merge(t, a, []Record{gone})
	for _, s := range []*State{a, b} {
		if !s.Snapshot().Tombstone(node.Key) {
			t.Errorf("%s: the host is back", s.Self())
		}
	}
	if _, _, err := a.Put(Node{ID: id(1), Name: "again"}); !errors.Is(err, ErrForgotten) {
		t.Errorf("error %v, want %v", err, ErrForgotten)
	}
	if b.Expire([]Key{node.Key}); !b.Snapshot().Tombstone(node.Key) {
		t.Error("the host's tombstone expired")
	}
}

func TestPut(t *testing.T) {
	s := New(id(1))
	labels := map[string]string{"a": "1"}
	first := put(t, s, Network{Name: "blue", Labels: labels, Options: map[string]string{}})
	labels["a"] = "2"
	if n, _ := Get[Network](s.Snapshot(), "blue"); n.Labels["a"] != "1" {
		t.Error("the state shares the caller's map")
	}
	again, written, err := s.Put(Network{Name: "blue", Labels: map[string]string{"a": "1"}})
	if err != nil || written || !again.Equal(first) {
		t.Errorf("the same again: %v, %v, %v", again, written, err)
	}
	second := put(t, s, Network{Name: "blue", Labels: labels})
	if second.Version != (Version{2, id(1)}) || second.Prev != 1 {
		t.Errorf("second write: %+v", second)
	}
	for name, b := range map[string]Body{
		"nothing":            nil,
		"no name":            Network{},
		"endpoint elsewhere": Endpoint{ID: "e", Network: "blue", Host: id(2)},
		"bytes":              Network{Name: "a\xff"},
		"claim of nothing":   Claim{Owner: id(1)},
	} {
		if _, written, err := s.Put(b); err == nil || written {
			t.Errorf("%s: no error", name)
		}
	}
	if d := s.Digest(); d.Marks[id(1)] != 2 {
		t.Errorf("a refused write moved the clock: %v", d)
	}
}

func TestDeleteAndExpire(t *testing.T) {
	s := New(id(1))
	key := put(t, s, Network{Name: "blue"}).Key
	claim := put(t, s, Claim{Block: space, Owner: id(1)}).Key
	for _, k := range []Key{claim, {KindNetwork, "none"}} {
		if r, ok := s.Delete(k, time.Unix(50, 0)); ok {
			t.Errorf("deleted %v", r)
		}
	}
	r, ok := s.Delete(key, time.Unix(50, 0))
	if !ok || r.Deleted != 50 || r.Body != nil || r.Prev != 2 {
		t.Fatalf("tombstone %+v, %v", r, ok)
	}
	if _, ok := s.Delete(key, time.Unix(60, 0)); ok {
		t.Error("deleted twice")
	}
	if _, live := Get[Network](s.Snapshot(), "blue"); live || !s.Snapshot().Tombstone(key) {
		t.Error("not a tombstone")
	}
	s.Expire([]Key{key, claim, {KindNetwork, "none"}})
	if s.Snapshot().Tombstone(key) || s.Snapshot().Len() != 1 {
		t.Errorf("expired, and there is %v", recordsOf(s))
	}
	checkState(t, s)
	// An expired write that comes back from a host that was away is not taken for news.
	merge(t, s, []Record{r})
	if s.Snapshot().Len() != 1 {
		t.Errorf("records %v", recordsOf(s))
	}
}

// What somebody has recorded on the wire, and sends again when the tombstones have expired,
// brings nothing back.
func TestRecordedWritesAfterTheirTombstones(t *testing.T) {
	a, b := New(id(1)), New(id(2))
	network := put(t, a, Network{Name: "red", VNID: 5})
	subnet := put(t, a, Subnet{Prefix: prefix("10.128.0.0/22"), Network: "red"})
	merge(t, b, []Record{network, subnet})
	for _, k := range []Key{subnet.Key, network.Key} {
		r, _ := a.Delete(k, time.Unix(50, 0))
		merge(t, b, []Record{r})
	}
	b.Expire([]Key{subnet.Key, network.Key})
	if fresh, _ := merge(t, b, []Record{network, subnet}); len(fresh) > 0 || b.Snapshot().Len() != 0 {
		t.Errorf("it brought back %v", fresh)
	}
	again := put(t, a, Network{Name: "red", VNID: 6}) // made anew, it is news
	if fresh, _ := merge(t, b, []Record{again}); len(fresh) != 1 {
		t.Errorf("of what is written anew %d records are fresh", len(fresh))
	}
}

func TestSnapshotsDoNotChange(t *testing.T) {
	s := New(id(1))
	put(t, s, Network{Name: "a"})
	snap, clone := s.Snapshot(), s.Clone()
	if again := s.Snapshot(); again != snap {
		t.Error("two snapshots of one state")
	}
	put(t, s, Network{Name: "b"})
	put(t, clone, Network{Name: "c"})
	names := func(s *Snapshot) (all []string) {
		for n := range All[Network](s) {
			all = append(all, n.Name)
		}
		return all
	}
	for _, tt := range []struct{ got, want []string }{
		{names(snap), []string{"a"}},
		{names(s.Snapshot()), []string{"a", "b"}},
		{names(clone.Snapshot()), []string{"a", "c"}},
	} {
		if !slices.Equal(tt.got, tt.want) {
			t.Errorf("got %v, want %v", tt.got, tt.want)
		}
	}
	if s.Snapshot().Rev() <= snap.Rev() {
		t.Error("Rev did not rise")
	}
}

func TestRestore(t *testing.T) {
	a, b := New(id(1)), New(id(2))
	put(t, a, Claim{Block: space, Owner: id(1)})
	put(t, a, Network{Name: "blue"})
	if _, ok := a.Delete(Key{KindNetwork, "blue"}, time.Unix(9, 0)); !ok {
		t.Fatal("not deleted")
	}
	merge(t, a, []Record{put(t, b, Network{Name: "red"})})
	back, err := Restore(id(1), recordsOf(a), a.Digest().Marks)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, a, back)
	if next, want := put(t, back, Network{Name: "next"}), put(t, a, Network{Name: "next"}); !next.Equal(want) {
		t.Errorf("next write %v, want %v", next, want)
	}
	if _, err := Restore(id(1), recordsOf(a), nil); !errors.Is(err, ErrLostWrites) {
		t.Errorf("without marks: %v", err)
	}
}
