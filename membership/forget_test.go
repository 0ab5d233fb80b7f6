package membership

import (
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
)

// TestForget: one of two hosts takes over from the third, the other one believes it, with
// nothing left pending, and the third, when it is back, that it has to join anew.
func TestForget(t *testing.T) { virtual(t, testForget) }

func testForget(t *testing.T) {
	dir := t.TempDir()
	dead := newHost(t, 1, dir).start()
	heir := newHost(t, 2, t.TempDir(), 1).start()
	other := newHost(t, 3, t.TempDir(), 1).start()
	for _, h := range []*testHost{dead, heir, other} {
		eventually(t, "all know the ring and each other", func() bool {
			snap := h.replica.Snapshot()
			known := 0
			for range cluster.All[cluster.Node](snap) {
				known++
			}
			return h.replica.Settled() && snap.Ring().OwnsAll(dead.Self(), clusterRange) && len(h.gossip.Alive()) == 2 && known == 3
		})
	}
	if err := dead.Joiner.DescribeAgain(); err != nil {
		t.Fatal(err)
	}
	tells := func(h *testHost) bool {
		told, there := cluster.Get[cluster.Addresses](h.replica.Snapshot(), dead.id.Node)
		return there && len(told.List) == 1 && told.List[0] == address(1).Addr()
	}
	eventually(t, "all know its addresses", func() bool { return tells(heir) && tells(other) })
	dead.stop()
	for _, h := range []*testHost{heir, other} {
		eventually(t, "the host is missed", func() bool { return len(h.gossip.Alive()) == 1 })
	}
	if _, err := heir.Forgetter.Forget(t.Context(), api.ForgetRequest{Hosts: []string{dead.id.Node}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other one believes it", func() bool {
		snap := other.replica.Snapshot()
		return snap.Ring().OwnsAll(heir.Self(), clusterRange) && snap.Tombstone(cluster.Node{ID: dead.Self()}.Key()) && len(other.replica.Pending()) == 0
	})
	eventually(t, "its addresses are nobody's", func() bool { return !tells(heir) && !tells(other) && len(other.replica.Pending()) == 0 })
	back := newHost(t, 1, dir, 2).start()
	eventually(t, "the forgotten one hears of it", func() bool { return back.replica.Trouble() != nil })
	if !heir.replica.Snapshot().Ring().OwnsAll(heir.Self(), clusterRange) || !other.replica.Snapshot().Ring().OwnsAll(heir.Self(), clusterRange) {
		t.Error("the forgotten one has got something back")
	}
	back.stop()
	back = newHost(t, 1, dir, 2).start()
	eventually(t, "started again it goes on, and knows", func() bool { return back.replica.Trouble() != nil && len(back.gossip.Alive()) == 2 })
}
