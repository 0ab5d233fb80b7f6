package plane

import (
	"testing"
	"time"
)

// TestPosed: that published ports are of no use by another program's NAT is said while calls go on, and for a while after.
func TestPosed(t *testing.T) {
	var p posed
	now := time.Now()
	for i, c := range []struct {
		count uint64
		after time.Duration
		said  bool
	}{
		{7, 0, false}, // of a former agent
		{7, posedEvery, false},
		{8, posedEvery, false}, // one, as of a moment
		{8, posedEvery, false},
		{9, posedEvery, true},
		{9, posedStays / 2, true},
		{9, posedStays, false},
		{12, posedEvery, false},
		{13, posedEvery, true},
		{0, posedEvery, true}, // rules that are set anew count from the beginning
		{0, posedStays, false},
	} {
		now = now.Add(c.after)
		p.look(c.count, now)
		if said := len(p.problems(now)) > 0; said != c.said {
			t.Errorf("%d: %d in all: it is said: %v", i, c.count, said)
		}
	}
}
