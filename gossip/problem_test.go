package gossip

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestProblemsFade: what is not seen again is no problem any more; what is, is.
func TestProblemsFade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRefusals(&core{log: slog.New(slog.DiscardHandler)}, nil)
		g.refuse(RefusedClone, "once", errors.New("once"))
		g.refuse(RefusedClone, "often", errors.New("often"))
		time.Sleep(problemMemory - time.Second)
		if p := g.Problems(); len(p) != 2 {
			t.Errorf("problems %q, want two", p)
		}
		g.refuse(RefusedClone, "often", errors.New("often"))
		time.Sleep(2 * time.Second)
		if p := g.Problems(); len(p) != 1 || p[0] != "often" {
			t.Errorf("problems %q, want the one that was seen again", p)
		}
	})
}
