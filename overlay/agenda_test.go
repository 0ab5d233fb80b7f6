package overlay

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestAgenda: what comes when, and how long after the start.
func TestAgenda(t *testing.T) {
	type pass struct {
		why reason
		at  time.Duration
	}
	for _, c := range []struct {
		name  string
		quiet time.Duration // our last change: what the switch tells until then is ours
		tells []time.Duration
		kicks []time.Duration
		want  []pass
	}{
		{"nothing", 0, nil, nil, []pass{{everything, slowTimer}}},
		{
			"a change of somebody else's is looked at at once", 0,
			[]time.Duration{time.Minute / 4},
			nil,
			[]pass{{theirs, time.Minute / 4}},
		},
		{
			"echoes of ours once, when they are over", time.Second,
			[]time.Duration{time.Millisecond, 2 * time.Millisecond, 400 * time.Millisecond},
			nil,
			[]pass{{theirs, time.Second}, {everything, time.Second + slowTimer}},
		},
		{
			"who waits goes first", time.Second,
			[]time.Duration{time.Millisecond},
			[]time.Duration{5 * time.Millisecond, 700 * time.Millisecond},
			[]pass{{ourChange, 5 * time.Millisecond}, {ourChange, 700 * time.Millisecond}, {theirs, time.Second}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &Overlay{kick: make(chan struct{}, 1), event: make(chan struct{}, 1)}
				began := time.Now()
				for _, at := range c.tells {
					time.AfterFunc(at, func() { poke(o.event) })
				}
				for _, at := range c.kicks {
					time.AfterFunc(at, func() { poke(o.kick) })
				}
				a := agenda{quiet: began.Add(c.quiet)}
				for _, want := range c.want {
					why := a.wait(t.Context(), o, nil, slowTimer)
					if got := (pass{why, time.Since(began)}); got != want {
						t.Errorf("got %v, want %v", got, want)
					}
				}
			})
		})
	}
}
