package membership

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/store"
)

// TestRunsRise: a run has a higher number than all before, also when the clock was set back, or begins in 1970.
func TestRunsRise(t *testing.T) {
	path, last := filepath.Join(t.TempDir(), "state"), uint32(0)
	for _, clock := range []int64{1_800_000_000, 1_800_000_060, 1_700_000_000, 0, 5, 1_800_000_090} {
		db, err := store.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		run, err := nextRun(db, time.Unix(clock, 0))
		if err != nil {
			t.Fatal(err)
		}
		if run <= last {
			t.Errorf("at %d: run %d after %d", clock, run, last)
		}
		last = run
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
