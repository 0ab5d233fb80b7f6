package cluster

import (
	"encoding/hex"
	"maps"
	"slices"
	"testing"
	"time"
)

// TestPolicyForm: the wire form of a policy is what agents of the first release with policies write, and it says its
// key beside its body: agents before that, which do not know the kind, could not keep it without.
func TestPolicyForm(t *testing.T) {
	const form = "02a10181a50108020103703030303030303030303030303030303106a601676e6574776f726b0264626c75650362646204676b696e643a20780565686f737431068182037030303030303030303030303030303032076f6e6574776f726b2f626c75652f6462"
	s := New(id(1))
	rec := put(t, s, Policy{Scope: ScopeNetwork, Network: "blue", Name: "db", Text: "kind: x", Author: "host1", Base: []Edit{{Counter: 3, Node: id(2)}}})
	if got := hex.EncodeToString(Encode([]Record{rec})); got != form {
		t.Errorf("wire form %s, want %s", got, form)
	}
	var w wireRecord
	if err := decoding.Unmarshal(encodeRecord(rec), &w); err != nil || w.ID != "network/blue/db" {
		t.Errorf("key %q, %v", w.ID, err)
	}
}

// TestPolicyTombstoneStays: what a host that was away for long still has comes back no more.
func TestPolicyTombstoneStays(t *testing.T) {
	s := New(id(1))
	p := Policy{Scope: ScopeCluster, Name: "open", Text: "x"}
	put(t, s, p)
	if _, ok := s.Delete(p.Key(), time.Unix(50, 0)); !ok {
		t.Fatal("not deleted")
	}
	if keys := slices.Collect(maps.Keys(maps.Collect(s.Snapshot().Tombstones()))); len(keys) != 0 {
		t.Errorf("tombstones that may expire: %v", keys)
	}
	if s.Expire([]Key{p.Key()}); !s.Snapshot().Tombstone(p.Key()) {
		t.Error("the tombstone has expired")
	}
	put(t, s, p)
	if _, live := Get[Policy](s.Snapshot(), p.Key().ID); !live {
		t.Error("it cannot be applied anew")
	}
}

// edit applies a policy as a user does, on what the host has.
func edit(t *testing.T, s *State, text string) Record {
	return put(t, s, Policy{Scope: ScopeCluster, Name: "p", Text: text}.Over(s.Snapshot()))
}

// TestLostEdits: of two edits that did not know of each other the one that loses is told to whoever has both, in
// whatever order they come; an edit of what was there is none, nor is one of which something in between is not known.
func TestLostEdits(t *testing.T) {
	lost := func(s *State, recs ...Record) (texts []string) {
		t.Helper()
		for _, r := range recs {
			m, err := s.Merge([]Record{r})
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range m.Lost {
				p, _ := l.Edit.Body.(Policy)
				texts = append(texts, p.Text+"<"+l.Winner.Body.(Policy).Text)
			}
		}
		return texts
	}
	a, b := New(id(1)), New(id(2))
	first := edit(t, a, "first")
	if got := lost(b, first); got != nil {
		t.Errorf("lost %v", got)
	}
	second := edit(t, b, "second")
	third := edit(t, b, "third")
	if got := lost(New(id(3)), first, third, second); got != nil {
		t.Errorf("one edit after the other: lost %v", got)
	}
	other := edit(t, a, "other") // a has not heard of second and third
	for name, got := range map[string][]string{
		"its writer": lost(a, second, third), "the winner": lost(b, other),
		"a third host": lost(New(id(3)), first, third, other), "and later": lost(New(id(4)), other, third),
	} {
		want := []string{"other<third"}
		if name == "its writer" { // second is of its version, and of the higher host: it wins for a moment
			want = []string{"other<second"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: lost %v, want %v", name, got, want)
		}
	}
	for range 2 * MaxBase {
		third = edit(t, b, "much later")
	}
	if got := lost(New(id(5)), first, third); got != nil {
		t.Errorf("after many that did not come: lost %v", got)
	}
	if got := lost(a, third); got != nil {
		t.Errorf("the writer of the lost one, which was told: lost %v", got)
	}
	settled := put(t, a, Policy{Scope: ScopeCluster, Name: "p", Text: "settled"}.Over(a.Snapshot(), other.Version))
	if got := lost(New(id(6)), first, settled, other); got != nil {
		t.Errorf("who was told of the loss: lost %v", got)
	}
	if got := lost(b, other); got != nil {
		t.Errorf("said again: lost %v", got)
	}
	if got := lost(b, settled); got != nil {
		t.Errorf("who had seen all: lost %v", got)
	}
	// A deletion that loses is told as well.
	gone, _ := a.Delete(settled.Key, time.Unix(50, 0))
	edit(t, b, "more")
	back := edit(t, b, "back")
	if got := lost(a, back); !slices.Equal(got, []string{"<back"}) {
		t.Errorf("a deletion: lost %v", got)
	}
	if got := lost(b, gone); !slices.Equal(got, []string{"<back"}) {
		t.Errorf("a deletion, seen by the winner: lost %v", got)
	}
}
