package secure

import (
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
)

// stalled is how long a step in changing keys may take before status says so: hosts are started anew meanwhile.
const stalled = time.Minute

// stall is since when a change of keys waits at one step.
type stall struct {
	turn  uint64
	since time.Time // zero: it does not wait
	here  bool      // for what this host lacks
}

// note takes what is waited for ("": nothing) at a step, and whether this host is it.
func (s *stall) note(turn uint64, what string, here bool, now time.Time) {
	switch {
	case what == "":
		*s = stall{}
	case s.since.IsZero() || s.turn != turn:
		*s = stall{turn, now, here}
	default:
		s.here = here
	}
}

// problems are for status. What this host lacks it says at once.
func (s *stall) problems(what string, now time.Time) []api.Problem {
	if s.since.IsZero() || !s.here && now.Sub(s.since) < stalled {
		return nil
	}
	return []api.Problem{{
		Code: api.KeysStalled,
		What: "WireGuard's keys are being changed, which waits for " + what + words.Since(s.since, now),
		Do:   "mend that, and the change goes on by itself; what containers send is encrypted and arrives meanwhile, by the keys that were",
	}}
}
