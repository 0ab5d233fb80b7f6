package agent

import (
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/config"
)

// TestIdle: status says of a collector that nothing is told that this is so.
func TestIdle(t *testing.T) {
	for _, tt := range []struct {
		ipfix, traffic, want string
	}{
		{"", "off", ""},
		{"flows.example:4739", "auto", ""},
		{"flows.example:4739", "off", "GRAPEVINE_IPFIX names the collector flows.example:4739, which is told nothing"},
	} {
		got := strings.Join(idle(config.Config{IPFIX: tt.ipfix, Traffic: tt.traffic}), "; ")
		if got != tt.want && (tt.want == "" || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("collector %q, traffic %s: %q", tt.ipfix, tt.traffic, got)
		}
	}
}
