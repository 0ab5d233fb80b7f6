package membership

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/gossip"
)

// TestForeignProblem: both sides name the same host as the one to leave, and by its name.
func TestForeignProblem(t *testing.T) {
	other := func(n int) gossip.Foreign {
		return gossip.Foreign{ID: "0123456789abcdef", Name: "host2", Addr: netip.MustParseAddr("192.0.2.2"), Cluster: "c", Hosts: n}
	}
	for _, c := range []struct {
		theirs, ours int
		guest        bool
		leaves       string
	}{
		{1, 1, false, "host2 is"},
		{1, 1, true, "this host is"},
		{3, 1, false, "this host is"},
		{3, 1, true, "this host is"},
		{1, 3, false, "host2 is"},
		{1, 3, true, "host2 is"},
		{0, 1, false, "host2 is"},
	} {
		p := foreignProblem(other(c.theirs), c.ours, c.guest, c.guest)
		if !strings.HasPrefix(p.Do, c.leaves+" the one to leave") || !strings.HasPrefix(p.What, "host host2 (192.0.2.2) belongs to another cluster, of ") || strings.Contains(p.What+p.Do, "0123456789abcdef") {
			t.Errorf("%+v: %+v", c, p)
		}
	}
	if p := foreignProblem(gossip.Foreign{ID: "0123456789abcdef"}, 1, false, false); strings.Contains(p.What, "invalid") || !strings.Contains(p.What, "0123456789abcdef belongs") {
		t.Errorf("with nothing known: %+v", p)
	}
}
