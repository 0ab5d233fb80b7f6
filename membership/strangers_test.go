package membership

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/gossip"
)

// TestStrangerProblems: who, since when, and the commands, on the side where they help.
func TestStrangerProblems(t *testing.T) {
	now := time.Now()
	list := []gossip.Stranger{{Addr: netip.MustParseAddr("192.0.2.3"), Since: now.Add(-time.Minute), Last: now.Add(-2 * time.Second)}}
	for member, want := range map[bool][]string{
		true:  {"a host at 192.0.2.3 is kept out", "last 2s ago", "on that host: SET", "`grapevine join-command` prints here", "port 7947"},
		false: {"the host at 192.0.2.3 does not let this one in", "here: SET", "`grapevine join-command` prints there"},
	} {
		p := strangerProblems(list, member, 7947, "SET", now)
		for _, w := range append(want, "another gossip key (since "+now.Add(-time.Minute).Format("15:04:05")) {
			if len(p) != 1 || !strings.Contains(p[0].What+p[0].Do, w) {
				t.Errorf("%q is missing in %+v", w, p)
			}
		}
	}
}
