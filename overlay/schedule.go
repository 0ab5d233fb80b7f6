package overlay

import (
	"context"
	"time"

	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/pulse"
)

// schedule says when the loop does what. It belongs to the loop's goroutine. Its times are
// moments, not pauses: whatever else happens, nothing pushes them.
type schedule struct {
	// quiet is until when what the switch tells of ports is taken for our own changes:
	// they are looked at once, then, and not in the way of whoever waits for the next pass.
	quiet time.Time
	// told is when the switch's words are to be judged; zero: it said none.
	told time.Time
	// look is when the ports are to be looked at; zero: nothing was told of them.
	look time.Time
	// due is when everything is to be looked at; zero: not known yet.
	due time.Time
	// hurt is when the damage is to be looked at of which the kernel has told; zero: none.
	hurt time.Time
	// glance is when the sysctls are.
	glance time.Time
	// mended is when something was put back last.
	mended time.Time
	// inspect looks at damage, puts back what it can, and reports whether a pass is to do the
	// rest; nil: nobody does.
	inspect func(damage) (more bool)
}

// looked notes what a pass that has ended looked at.
func (s *schedule) looked(why reason, now time.Time) {
	if why == everything {
		s.due = now.Add(slowTimer)
	}
}

// wait returns when there is reason for a pass, at the latest after pause. judge says what
// the switch's words are a reason for.
func (s *schedule) wait(ctx context.Context, o *Overlay, judge func([]ovs.Change) reason, changed, reached <-chan struct{}, pause time.Duration) reason {
	began := time.Now()
	if s.due.IsZero() {
		s.due = began.Add(slowTimer)
	}
	end := began.Add(pause)
	var calmed <-chan time.Time // nil: nothing is waited for
	for {
		switch now := time.Now(); {
		case !now.Before(s.due), !now.Before(end):
			s.look = time.Time{}
			return everything
		case s.inspection(o, now):
			s.look = time.Time{}
			return everything
		}
		select {
		case <-ctx.Done():
			return ourChange
		case <-o.kick:
			return ourChange
		case <-reached:
			return ourChange
		case <-calmed:
			return ourChange
		case <-at(o.told.next()):
			o.told.expire(time.Now())
			return ourChange
		case <-changed:
			changed, calmed = nil, time.After(min(calm, pause))
		case <-o.event:
			if s.told.IsZero() {
				s.told = time.Now().Add(gather)
			}
		case <-at(s.told):
			s.told = time.Time{}
			switch judge(o.events.take()) {
			case ourChange: // an echo
			case ports:
				if s.look.IsZero() {
					s.look = later(time.Now(), s.quiet)
				}
			default:
				s.look = time.Time{}
				return theirs
			}
		case <-at(s.look):
			s.look = time.Time{}
			return ports
		case <-o.damaged:
			if s.hurt.IsZero() {
				s.hurt = later(time.Now().Add(settle), s.mended.Add(mendPause))
			}
		case <-at(s.hurt):
		case <-at(s.glance):
		case <-at(sooner(s.due, end)):
		}
	}
}

// inspection looks at damage and at the sysctls, if it is time, and reports whether a pass has
// to do more.
func (s *schedule) inspection(o *Overlay, now time.Time) (more bool) {
	if s.inspect == nil {
		return false
	}
	var d damage
	if !s.hurt.IsZero() && !now.Before(s.hurt) {
		s.hurt, d = time.Time{}, o.takeDamage()
	}
	if !now.Before(s.glance) {
		s.glance, d.switches = now.Add(pulse.Wait(glances)), true
	}
	if d.none() {
		return false
	}
	found := o.repaired()
	more = s.inspect(d)
	if o.repaired() != found {
		s.mended = time.Now()
	}
	return more
}

// at is a channel that tells at a moment; zero: never.
func at(moment time.Time) <-chan time.Time {
	if moment.IsZero() {
		return nil
	}
	return time.After(time.Until(moment))
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
