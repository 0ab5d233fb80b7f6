package agent

import (
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
)

func TestRollOfHosts(t *testing.T) {
	const self, a, b = cluster.NodeID("self"), cluster.NodeID("a"), cluster.NodeID("b")
	var r roll
	check := func(when string, want ...cluster.NodeID) {
		t.Helper()
		gone := map[cluster.NodeID]bool{}
		for _, id := range want {
			gone[id] = true
		}
		for _, id := range []cluster.NodeID{self, a, b} {
			if got := r.gone(id); got != gone[id] {
				t.Errorf("%s: host %s gone: %t", when, id, got)
			}
		}
	}
	check("before the first look")
	r.see(self, nil, false)
	check("nobody met yet")
	r.see(self, []string{"a"}, false)
	check("a met")
	r.see(self, nil, false)
	check("a gone again", a)
	r.see(self, nil, false)
	check("still gone", a)
	r.see(self, nil, true)
	check("the time to meet is over", a, b)
	r.see(self, []string{"a", "b"}, true)
	check("both back")
	r.see(self, []string{"a"}, true)
	check("b gone", b)
}
