package membership

import (
	"slices"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
)

func TestSilentFor(t *testing.T) {
	const limit = time.Hour
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	self, alive, lately, long, unmet := cluster.NodeID("0000000000000001"), cluster.NodeID("0000000000000002"), cluster.NodeID("0000000000000003"), cluster.NodeID("0000000000000004"), cluster.NodeID("0000000000000005")
	hosts := []cluster.NodeID{self, alive, lately, long, unmet}
	members := []gossip.Member{
		{ID: string(self), Self: true, State: gossip.Left, Since: ago(2 * limit)},
		{ID: string(alive), State: gossip.Alive, Since: ago(2 * limit)},
		{ID: string(lately), State: gossip.Dead, Since: ago(limit - time.Second)},
		{ID: string(long), State: gossip.Dead, Since: ago(limit)},
		{ID: "0000000000000009", State: gossip.Dead, Since: ago(2 * limit)}, // of whom the records know nothing
	}
	for _, tt := range []struct {
		name    string
		started time.Time
		want    []cluster.NodeID
	}{
		{"this agent has run long enough", ago(2 * limit), []cluster.NodeID{long, unmet}},
		{"it has not", ago(limit - time.Second), []cluster.NodeID{long}},
	} {
		got := silentFor(limit, hosts, members, tt.started, now)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
