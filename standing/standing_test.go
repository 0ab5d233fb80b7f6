package standing

import (
	"testing"

	"github.com/grapevine-net/grapevine/dns/names"
	"github.com/grapevine-net/grapevine/gossip"
)

func TestStandingOfHosts(t *testing.T) {
	for _, c := range []struct {
		what        string
		m           gossip.Member
		known, late bool
		want        names.Standing
	}{
		{"not met yet", gossip.Member{}, false, false, names.Answers},
		{"remembered, not met yet", gossip.Member{State: gossip.Dead}, true, false, names.Answers},
		{"remembered, and the time to meet is over", gossip.Member{State: gossip.Dead}, true, true, names.Gone},
		{"never heard of, and the time to meet is over", gossip.Member{}, false, true, names.Gone},
		{"alive", gossip.Member{Name: "a", State: gossip.Alive}, true, true, names.Answers},
		{"silent", gossip.Member{Name: "a", State: gossip.Alive, Doubtful: true}, true, true, names.Doubtful},
		{"dead", gossip.Member{Name: "a", State: gossip.Dead}, true, false, names.Gone},
		{"left", gossip.Member{Name: "a", State: gossip.Left}, true, true, names.Gone},
	} {
		if got := standingOf(c.m, c.known, c.late); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
