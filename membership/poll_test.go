package membership

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// TestForgottenBySaySoOfOne: a host forgets another one without asking anybody, and does not
// end the other one's identity.
func TestForgottenBySaySoOfOne(t *testing.T) { virtual(t, testForgottenBySaySoOfOne) }

func testForgottenBySaySoOfOne(t *testing.T) {
	victim := newHost(t, 1, t.TempDir()).start()
	other := newHost(t, 2, t.TempDir(), 1).start()
	thief := newHost(t, 3, t.TempDir(), 1).start()
	for _, h := range []*testHost{victim, other, thief} {
		eventually(t, "all know each other", func() bool { return h.replica.Settled() && len(h.Nodes(h.replica.Snapshot())) == 3 })
	}
	_, err := thief.replica.Update(func(tx *replica.Tx) error {
		tx.Delete(cluster.Node{ID: victim.Self()}.Key())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if err := victim.Rejoiner.watchForgotten(ctx); errors.Is(err, ErrForgotten) {
		t.Errorf("one host's word, which host2 denies (its tombstone there: %v), ended the identity", other.replica.Snapshot().Tombstone(cluster.Node{ID: victim.Self()}.Key()))
	}
}

// TestGhost: what a forgotten host wrote while it was cut off is deleted by its heir.
func TestGhost(t *testing.T) { virtual(t, testGhost) }

func testGhost(t *testing.T) {
	dir := t.TempDir()
	dead := newHost(t, 1, dir).start()
	heir := newHost(t, 2, t.TempDir(), 1).start()
	other := newHost(t, 3, t.TempDir(), 1).start()
	for _, h := range []*testHost{dead, heir, other} {
		eventually(t, "all know each other", func() bool {
			return h.replica.Settled() && len(h.gossip.Alive()) == 2 && len(h.Nodes(h.replica.Snapshot())) == 3
		})
	}
	dead.stop()
	for _, h := range []*testHost{heir, other} {
		eventually(t, "missed", func() bool { return len(h.gossip.Alive()) == 1 })
	}
	if _, err := heir.Forgetter.Forget(t.Context(), api.ForgetRequest{Hosts: []string{dead.id.Node}}); err != nil {
		t.Fatal(err)
	}
	back := newHost(t, 1, dir)
	ghost := cluster.Endpoint{ID: strings.Repeat("ab", 32), Network: "blue", Host: back.Self(), Name: "ghost"}
	use := cluster.Use{Network: "blue", Host: back.Self()}
	if _, err := back.replica.Update(func(tx *replica.Tx) error { return errors.Join(tx.Put(ghost), tx.Put(use)) }); err != nil {
		t.Fatal(err)
	}
	back.start()
	if err := back.Rejoiner.watchForgotten(t.Context()); !errors.Is(err, ErrForgotten) {
		t.Fatal(err)
	}
	for _, h := range []*testHost{heir, other} {
		eventually(t, h.cfg.Name+" hears what it says, and that it is deleted", func() bool {
			snap := h.replica.Snapshot()
			return snap.Tombstone(ghost.Key()) && snap.Tombstone(use.Key())
		})
	}
}

func TestVerdict(t *testing.T) {
	hosts := func(n int) []cluster.NodeID { return make([]cluster.NodeID, n) }
	for _, tc := range []struct {
		agree, deny, silent int
		want                bool
	}{
		{0, 0, 0, false}, {1, 0, 0, true}, {1, 0, 1, false}, {2, 0, 1, true}, {1, 0, 2, false}, {5, 1, 0, false}, {0, 0, 1, false},
	} {
		v := poll{agree: hosts(tc.agree), deny: hosts(tc.deny), silent: hosts(tc.silent)}
		if v.proven() != tc.want {
			t.Errorf("%+v: proven %v", tc, !tc.want)
		}
	}
}
