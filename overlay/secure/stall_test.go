package secure

import (
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
)

// TestStall: a change of keys that waits at one step for a minute is a problem, at once if it is for this host; a step ahead is
// none, and neither is the end.
func TestStall(t *testing.T) {
	now := time.Unix(1000, 0)
	var s stall
	says := func(after time.Duration, want bool) {
		t.Helper()
		got := s.problems("host host2", now.Add(after))
		if (len(got) == 1) != want || want && (got[0].Code != api.KeysStalled || !strings.Contains(got[0].What, "waits for host host2")) {
			t.Errorf("after %v: %+v", after, got)
		}
	}
	says(time.Hour, false)
	s.note(6, "host host2", false, now)
	says(59*time.Second, false)
	s.note(6, "host host2", false, now.Add(50*time.Second))
	says(61*time.Second, true)
	s.note(7, "host host2", false, now.Add(70*time.Second))
	says(80*time.Second, false)
	s.note(7, "host host2", true, now.Add(81*time.Second))
	says(81*time.Second, true)
	s.note(7, "", false, now.Add(90*time.Second))
	says(time.Hour, false)
}
