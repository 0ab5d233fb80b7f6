package overlay

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestPlanUnheard: an endpoint is kept from what a host that has not heard owns of the networks that it reaches, or from all others'.
// The plan follows what is heard, though no record changes.
func TestPlanUnheard(t *testing.T) {
	w := newWorld(t)
	w.hosts()
	w.put(network("blue", 5), network("red", 6), network("all", 0), subnet("10.128.0.0/22", "blue", "10.128.0.1"), subnet("10.128.2.128/25", "red", ""), subnet("10.128.3.128/25", "all", ""))
	e := endpoint(me, 'a', "blue", "10.128.0.7")
	w.put(e)
	var p plans
	ports := Ports{Tunnel: 1, Endpoints: map[string]uint32{e.ID: 11}}
	plan := func(unheard map[string][]cluster.NodeID, want ...string) {
		t.Helper()
		p.unheard = unheard
		in, _ := p.plan(w.Snapshot(), me, pipeline.HeaderBits, ports)
		var all []pipeline.Unheard
		if len(want) > 0 {
			one := pipeline.Unheard{Endpoint: e.ID, Addr: addr("10.128.0.7")}
			for _, r := range want {
				one.Ranges = append(one.Ranges, prefix(r))
			}
			all = append(all, one)
		}
		if d := cmp.Diff(all, in.Unheard, equalNet); d != "" {
			t.Error(d)
		}
		if _, err := pipeline.Compile(in); err != nil {
			t.Error(err)
		}
	}
	plan(nil)
	plan(map[string][]cluster.NodeID{e.ID: {other}}, "10.128.2.0/24")
	plan(map[string][]cluster.NodeID{e.ID: {other, third}}, "10.128.2.0/24", "10.128.3.0/24", "10.128.3.128/25")
	plan(map[string][]cluster.NodeID{e.ID: nil}, "10.128.0.0/22", "10.128.3.128/25")
	plan(map[string][]cluster.NodeID{"gone": {other}})
	plan(nil)
}
