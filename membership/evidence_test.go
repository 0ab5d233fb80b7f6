package membership

import (
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// TestThief: a member of the cluster, gossip key and all, takes another host's
// numbers and speaks in its name. Nobody believes it; all name it.
func TestThief(t *testing.T) { virtual(t, testThief) }

func testThief(t *testing.T) {
	owner := newHost(t, 1, t.TempDir()).start()
	other := newHost(t, 2, t.TempDir(), 1).start()
	thief := newHost(t, 3, t.TempDir(), 1).start()
	honest := []*testHost{owner, other}
	for _, h := range append(honest, thief) {
		// A host that has just come believes whom it asks first (docs/design/decisions.md).
		eventually(t, "all know the ring and each other", func() bool {
			return h.replica.Settled() && h.replica.Snapshot().Ring().OwnsAll(owner.Self(), clusterRange) && len(h.gossip.Alive()) == 2
		})
	}
	_, err := thief.replica.Update(func(tx *replica.Tx) error {
		return tx.Put(cluster.Claim{Block: clusterRange, Owner: thief.Self()})
	})
	if err != nil {
		t.Fatal(err)
	}
	// In the owner's name it has to write without the owner's key.
	pretender := cluster.New(owner.Self())
	forged, _, err := pretender.Put(cluster.Node{ID: owner.Self(), Name: "forged"})
	if err != nil {
		t.Fatal(err)
	}
	thief.gossip.Broadcast(cluster.Encode([]cluster.Record{forged}))

	for _, h := range honest {
		eventually(t, "what is forged is counted", func() bool { return h.replica.Refused()["record-forged"] > 0 })
		eventually(t, "the thief is named", func() bool {
			var said []string
			for _, p := range h.Forgetter.Suspicions(h.replica.Snapshot()) {
				said = append(said, p.What)
			}
			return strings.Contains(strings.Join(said, "\n"), thief.id.Node)
		})
		snap := h.replica.Snapshot()
		if n, _ := cluster.Get[cluster.Node](snap, owner.id.Node); n.Name == "forged" || !snap.Ring().OwnsAll(owner.Self(), clusterRange) {
			t.Errorf("%s believes the thief: its name of the owner is %q, its ring %v", h.cfg.Name, n.Name, slices.Collect(snap.Ring().Claims()))
		}
		if err := h.replica.Trouble(); err != nil {
			t.Errorf("%s gives up: %v", h.cfg.Name, err)
		}
	}
	eventually(t, "the owner counts the claim on its numbers", func() bool { return owner.replica.Refused()["record-claims-ours"] > 0 })
}
