package cluster

import (
	"encoding/hex"
	"maps"
	"slices"
	"testing"
	"time"
)

// TestTrial: what is tried is no policy, for agents that do not know the kind either: the record has its key beside its body,
// by which they keep it. Once it ends it does not come back.
func TestTrial(t *testing.T) {
	s := New(id(1))
	p := Policy{Scope: ScopeNetwork, Network: "blue", Name: "db", Text: "kind: x", Author: "host1"}
	rec := put(t, s, TrialOf(p))
	if _, in := Get[Policy](s.Snapshot(), p.Key().ID); in {
		t.Error("it is in force")
	}
	if got, there := Get[Trial](s.Snapshot(), p.Key().ID); !there || got.Policy().Text != p.Text {
		t.Errorf("%+v", got)
	}
	var w wireRecord
	if err := decoding.Unmarshal(encodeRecord(rec), &w); err != nil || w.ID != "network/blue/db" {
		t.Errorf("key %q, %v: %s", w.ID, err, hex.EncodeToString(encodeRecord(rec)))
	}
	put(t, s, p)
	if _, ok := s.Delete(rec.Key, time.Unix(50, 0)); !ok {
		t.Fatal("not deleted")
	}
	if _, in := Get[Policy](s.Snapshot(), p.Key().ID); !in || len(slices.Collect(maps.Keys(maps.Collect(s.Snapshot().Tombstones())))) != 0 {
		t.Error("with its trial a policy ends, or the trial may come back")
	}
}
