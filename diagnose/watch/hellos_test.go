package watch

import (
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/diagnose/paths"
)

func TestPathsOfNodes(t *testing.T) {
	var p Hellos
	p.set([]paths.Verdict{
		{Host: "b", In: paths.All, Out: paths.All}, {Host: "c", In: paths.Nothing, Out: paths.All}, {Host: "d", In: paths.All, Out: paths.Nothing},
		{Host: "e", In: paths.Nothing, Out: paths.Nothing}, {Host: "f", In: paths.All, Out: paths.Small}, {Host: "g", In: paths.All}, {Host: "h", In: paths.Nothing},
	})
	want := map[string]string{"b": "ok", "c": "lost to here", "d": "lost to there", "e": "lost both ways", "f": "large ones lost"}
	nodes := []api.Node{{ID: "a", Self: true, Alive: true}, {ID: "h"}} // h is dead
	for _, id := range []string{"b", "c", "d", "e", "f", "g"} {
		nodes = append(nodes, api.Node{ID: id, Alive: true})
	}
	for _, n := range p.Paths(nodes) {
		if n.Path != want[n.ID] {
			t.Errorf("%s: %q, want %q", n.ID, n.Path, want[n.ID])
		}
	}
}
