package overlay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-net/grapevine/host/ovs"
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
			[]pass{{theirs, time.Second/4 + gather}, {everything, slowTimer}},
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
			[]pass{{ports, time.Second}, {everything, slowTimer}},
		},
		{
			"who waits goes first", time.Second,
			map[time.Duration]ovs.What{time.Millisecond: ovs.Ports},
			[]time.Duration{5 * time.Millisecond, 700 * time.Millisecond},
			[]pass{{ourChange, 5 * time.Millisecond}, {ourChange, 700 * time.Millisecond}, {ports, time.Second}},
		},
		{
			"a look at everything that nothing pushes", 0,
			map[time.Duration]ovs.What{25 * time.Second: ovs.FlowSet},
			[]time.Duration{9 * time.Second, 18 * time.Second, 27 * time.Second, 36 * time.Second},
			[]pass{
				{ourChange, 9 * time.Second}, {ourChange, 18 * time.Second}, {theirs, 25*time.Second + gather}, {ourChange, 27 * time.Second},
				{everything, slowTimer}, {ourChange, 36 * time.Second}, {everything, 2 * slowTimer},
			},
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
				s := schedule{quiet: began.Add(c.quiet)}
				for _, want := range c.want {
					why := s.wait(t.Context(), o, new(reconciler).judge, nil, nil, slowTimer)
					if got := (pass{why, time.Since(began)}); got != want {
						t.Errorf("got %v, want %v", got, want)
					}
					s.looked(why, time.Now())
				}
			})
		})
	}
}

// TestSilent: flows that were read a while after the switch began to tell are as they were, until it tells of one.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &Overlay{event: make(chan struct{}, 1)}
		silent := func(want bool, when string) {
			t.Helper()
			if o.events.silent(time.Now()) != want {
				t.Errorf("%s: silent is not %t", when, want)
			}
		}
		silent(false, "nobody listens yet")
		o.hear(ovs.Change{})
		silent(false, "it has just begun to tell")
		time.Sleep(listening + 1)
		silent(true, "it tells of nothing")
		o.hear(ovs.Change{What: ovs.Ports})
		silent(true, "it told of ports")
		o.hear(ovs.Change{What: ovs.FlowSet})
		silent(false, "it told of a flow")
	})
}
