package watch

import (
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/diagnose/paths"
	"github.com/grapevine-net/grapevine/encap"
)

func TestPathsOfNodes(t *testing.T) {
	var p Hellos
	p.set([]paths.Verdict{
		{Host: "b", In: paths.All, Out: paths.All}, {Host: "c", In: paths.Nothing, Out: paths.All}, {Host: "d", In: paths.All, Out: paths.Nothing},
		{Host: "e", In: paths.Nothing, Out: paths.Nothing}, {Host: "f", In: paths.All, Out: paths.Small}, {Host: "g", In: paths.All}, {Host: "h", In: paths.Nothing},
		{Host: "i", In: paths.All, Out: paths.All, Lost: 31},
	})
	want := map[string]string{"b": "ok", "c": "lost to here", "d": "lost to there", "e": "lost both ways", "f": "large ones lost", "i": "31% lost to here"}
	nodes := []api.Node{{ID: "a", Self: true, Alive: true}, {ID: "h"}} // h is dead
	for _, id := range []string{"b", "c", "d", "e", "f", "g", "i"} {
		nodes = append(nodes, api.Node{ID: id, Alive: true})
	}
	for _, n := range p.Paths(nodes) {
		if n.Path != want[n.ID] {
			t.Errorf("%s: %q, want %q", n.ID, n.Path, want[n.ID])
		}
	}
}

func straight(api.Node) string { return "" }

// TestLedPaths: where this host's own routes are why nothing arrives, no firewall is blamed.
func TestLedPaths(t *testing.T) {
	nodes := []api.Node{{ID: "a", Name: "host1", Alive: true}, {ID: "b", Name: "host2", Alive: true}}
	verdicts := []paths.Verdict{{Host: "a", In: paths.All, Out: paths.Nothing}, {Host: "b", In: paths.All, Out: paths.All}}
	got := pathProblems(verdicts, nodes, encap.VXLAN, 4789, time.Now(), func(n api.Node) string { return "by docker0, and not by eth0" })
	if len(got) != 1 || !strings.Contains(got[0].What, "this host sends them to host1 by docker0, and not by eth0") || strings.Contains(got[0].Do, "firewall") || !strings.Contains(got[0].Do, "ipproto udp dport 4789") {
		t.Errorf("%+v", got)
	}
}

// TestLossyPaths: what share is lost is told, of several hosts once, and not of one of which nothing arrives.
func TestLossyPaths(t *testing.T) {
	nodes := []api.Node{{ID: "a", Name: "host1", Alive: true}, {ID: "b", Name: "host2", Alive: true}, {ID: "c", Name: "host3", Alive: true}}
	got := pathProblems([]paths.Verdict{
		{Host: "a", In: paths.All, Out: paths.All, Lost: 20}, {Host: "b", In: paths.All, Out: paths.All, Lost: 31}, {Host: "c", In: paths.All, Out: paths.All},
	}, nodes, encap.VXLAN, 4789, time.Now(), straight)
	if len(got) != 1 || got[0].Code != api.EncapLossy || !strings.Contains(got[0].What, "of hosts host1 and host2 send is lost on the way here (VXLAN), up to 31 in a hundred packets, though their agents answer") {
		t.Errorf("%+v", got)
	}
	got = pathProblems([]paths.Verdict{{Host: "a", In: paths.Nothing, Lost: 20}}, nodes, encap.VXLAN, 4789, time.Now(), straight)
	if len(got) != 1 || got[0].Code != api.EncapLost {
		t.Errorf("%+v", got)
	}
}
