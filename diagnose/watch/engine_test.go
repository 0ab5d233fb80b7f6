package watch

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestEngine: a Docker that is silent for longer than a restart takes is a problem, whether it
// refuses or hangs.
func TestEngine(t *testing.T) {
	var w Engine
	now := time.Now()
	is := func(after time.Duration, want string) {
		t.Helper()
		got := w.problems(now.Add(after))
		if (want == "") != (len(got) == 0) || len(got) == 1 && !strings.Contains(got[0].What, want) {
			t.Errorf("%v, want %q", got, want)
		}
	}
	w.asks(now)
	is(time.Second, "")
	is(dockerSilence, "no answer to a question") // it hangs
	w.answered(errors.New("connection refused"))
	w.asks(now.Add(time.Second))
	is(time.Second, "")
	is(dockerSilence, "connection refused") // since the first of them
	w.answered(nil)
	is(time.Hour, "")
	w.asks(now.Add(time.Hour))
	is(time.Hour, "")
}
