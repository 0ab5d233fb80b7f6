package membership

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
)

// TestNamesakes: of hosts of one name, the dead one is meant, and status has the command; where
// that is not clear, the ID.
func TestNamesakes(t *testing.T) {
	node := func(id, name string, alive bool) api.Node {
		return api.Node{ID: id, Name: name, Alive: alive, VTEP: netip.MustParseAddr("192.0.2.3")}
	}
	const a, b, c, d = "000000000000000a", "000000000000000b", "000000000000000c", "000000000000000d"
	nodes := []api.Node{node(a, "host1", true), node(b, "host3", false), node(c, "host3", true)}
	for name, want := range map[string]cluster.NodeID{"host1": a, "host3": b, c: c} {
		if id, err := pickHost(nodes, name); id != want || err != nil {
			t.Errorf("%s: %s, %v", name, id, err)
		}
	}
	rename := func() string { return "RENAME" }
	p := Namesakes(nodes, rename)
	if len(p) != 1 || !strings.Contains(p[0].What, "2 hosts are called host3: "+b+" (192.0.2.3, does not answer), "+c+" (192.0.2.3, alive)") ||
		!strings.Contains(p[0].Do, "grapevine forget host3") || !strings.Contains(p[0].Do, "RENAME") {
		t.Errorf("%+v", p)
	}
	if forgetName(nodes, b) != "host3" || forgetName(nodes, c) != c {
		t.Errorf("%s, %s", forgetName(nodes, b), forgetName(nodes, c))
	}
	nodes = append(nodes, node(d, "host3", false))
	if id, err := pickHost(nodes, "host3"); err == nil || !strings.Contains(err.Error(), b) || strings.Contains(err.Error(), "[") {
		t.Errorf("with two dead ones: %s, %v", id, err)
	}
	if forgetName(nodes, b) != b {
		t.Error("with two dead ones the name is no name")
	}
	if p := Namesakes([]api.Node{node(a, "host3", true), node(c, "host3", true)}, rename); len(p) != 1 || strings.Contains(p[0].Do, "forget") {
		t.Errorf("with both alive: %+v", p)
	}
	if p := Namesakes(nodes[:1], nil); len(p) != 0 {
		t.Errorf("one host: %+v", p)
	}
}
