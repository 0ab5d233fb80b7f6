package standing

import (
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
)

func TestStandingOfHosts(t *testing.T) {
	for _, c := range []struct {
		what        string
		m           gossip.Member
		known, late bool
		want        cluster.Standing
	}{
		{"not met yet", gossip.Member{}, false, false, cluster.Answers},
		{"remembered, not met yet", gossip.Member{State: gossip.Dead}, true, false, cluster.Answers},
		{"remembered, and the time to meet is over", gossip.Member{State: gossip.Dead}, true, true, cluster.Gone},
		{"never heard of, and the time to meet is over", gossip.Member{}, false, true, cluster.Gone},
		{"alive", gossip.Member{Name: "a", State: gossip.Alive}, true, true, cluster.Answers},
		{"silent", gossip.Member{Name: "a", State: gossip.Alive, Doubtful: true}, true, true, cluster.Doubtful},
		{"dead", gossip.Member{Name: "a", State: gossip.Dead}, true, false, cluster.Gone},
		{"left", gossip.Member{Name: "a", State: gossip.Left}, true, true, cluster.Gone},
	} {
		if got := standingOf(c.m, c.known, c.late); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
