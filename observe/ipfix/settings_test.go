package ipfix

import (
	"strings"
	"testing"
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
		got := strings.Join(Notes(tt.ipfix, tt.traffic), "; ")
		if got != tt.want && (tt.want == "" || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("collector %q, traffic %s: %q", tt.ipfix, tt.traffic, got)
		}
	}
}

// TestMode: a collector has connections counted where no setting says whether they are.
func TestMode(t *testing.T) {
	for _, tt := range [][3]string{{"", "auto", "auto"}, {"c:1", "auto", "on"}, {"c:1", "off", "off"}, {"c:1", "on", "on"}, {"", "on", "on"}} {
		if got := Mode(tt[0], tt[1]); got != tt[2] {
			t.Errorf("collector %q, traffic %s: %s, want %s", tt[0], tt[1], got, tt[2])
		}
	}
}
