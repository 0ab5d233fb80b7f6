package membership

import (
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

// TestForgetNamesake: of two hosts of one name the one is forgotten that is not there, though gossip still takes it
// for alive and has not met the other one yet.
func TestForgetNamesake(t *testing.T) { virtual(t, testForgetNamesake) }

func testForgetNamesake(t *testing.T) {
	one := newHost(t, 1, t.TempDir(), 1).run()
	two := newHost(t, 2, t.TempDir(), 1).run()
	old := newHost(t, 3, t.TempDir(), 1)
	old.cfg.Name = "host2"
	old.run()
	eventually(t, "all know all", func() bool {
		return len(one.gossip.Alive()) == 2 && len(two.gossip.Alive()) == 2 && len(one.Nodes(one.replica.Snapshot())) == 3 && two.member() && old.member()
	})
	gone := old.Self()
	old.stop()
	nodes := one.Nodes(one.replica.Snapshot())
	for i, n := range nodes {
		nodes[i].Alive = n.Self || n.ID == string(gone) // what gossip may say for a moment
	}
	if id, err := pickHost(nodes, "host2"); err != nil || id != two.Self() {
		t.Fatalf("gossip alone: %s, %v", id, err) // what it was before
	}
	for range 2 {
		if id, err := one.Forgetter.pickDead(t.Context(), nodes, "host2"); err != nil || id != gone {
			t.Fatalf("picked %s, %v; want %s", id, err, gone)
		}
	}
	if id, err := one.Forgetter.pickDead(t.Context(), []api.Node{nodes[0]}, nodes[0].Name); err != nil || string(id) != nodes[0].ID {
		t.Errorf("the only one of its name: %s, %v", id, err)
	}
}
