package overlay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-net/grapevine/internal/ovs"
)

// TestAgenda: what comes when, and how long after the start.
func TestAgenda(t *testing.T) {
	type pass struct {
		why reason
		at  time.Duration
	}
	for _, c := range []struct {
		name  string
		quiet time.Duration // after our last change of ports
		tells map[time.Duration]ovs.What
		kicks []time.Duration
		want  []pass
	}{
		{"nothing", 0, nil, nil, []pass{{everything, slowTimer}}},
		{
			"a change of somebody else's is looked at at once", time.Second,
			map[time.Duration]ovs.What{time.Second / 4: ovs.FlowSet, time.Second/4 + gather/2: ovs.FlowSet},
			nil,
			[]pass{{theirs, time.Second/4 + gather}, {everything, time.Second/4 + gather + slowTimer}},
		},
		{
			"our own flows are none", 0,
			map[time.Duration]ovs.What{time.Second: ovs.FlowGone},
			nil,
			[]pass{{everything, slowTimer}},
		},
		{
			"echoes of our ports once, when they are over", time.Second,
			map[time.Duration]ovs.What{time.Millisecond: ovs.Ports, 2 * time.Millisecond: ovs.Ports, 400 * time.Millisecond: ovs.Ports},
			nil,
			[]pass{{ports, time.Second}, {everything, time.Second + slowTimer}},
		},
		{
			"who waits goes first", time.Second,
			map[time.Duration]ovs.What{time.Millisecond: ovs.Ports},
			[]time.Duration{5 * time.Millisecond, 700 * time.Millisecond},
			[]pass{{ourChange, 5 * time.Millisecond}, {ourChange, 700 * time.Millisecond}, {ports, time.Second}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &Overlay{kick: make(chan struct{}, 1), event: make(chan struct{}, 1)}
				began := time.Now()
				for at, what := range c.tells {
					time.AfterFunc(at, func() { o.hear(ovs.Change{What: what}) })
				}
				for _, at := range c.kicks {
					time.AfterFunc(at, func() { poke(o.kick) })
				}
				a := agenda{quiet: began.Add(c.quiet)}
				for _, want := range c.want {
					why := a.wait(t.Context(), o, new(reconciler).judge, nil, nil, slowTimer)
					if got := (pass{why, time.Since(began)}); got != want {
						t.Errorf("got %v, want %v", got, want)
					}
				}
			})
		})
	}
}
