package overlay

import (
	"context"
	"time"

	"github.com/grapevine-net/grapevine/internal/ovs"
)

// agenda says when the loop does what. It belongs to the loop's goroutine.
type agenda struct {
	// quiet is until when what the switch tells of ports is taken for our own changes:
	// they are looked at once, then, and not in the way of whoever waits for the next pass.
	quiet time.Time
	// told is when the switch's words are to be judged; zero: it said none.
	told time.Time
	// look is when the ports are to be looked at; zero: nothing was told of them.
	look time.Time
}

// wait returns when there is reason for a pass, at the latest after pause. judge says what
// the switch's words are a reason for.
func (a *agenda) wait(ctx context.Context, o *Overlay, judge func([]ovs.Change) reason, changed, reached <-chan struct{}, pause time.Duration) reason {
	slow := time.After(pause)
	var calmed, told, look <-chan time.Time // nil: nothing is waited for
	if !a.told.IsZero() {
		told = time.After(time.Until(a.told))
	}
	if !a.look.IsZero() {
		look = time.After(time.Until(a.look))
	}
	for {
		select {
		case <-ctx.Done():
			return ourChange
		case <-o.kick:
			return ourChange
		case <-reached:
			return ourChange
		case <-calmed:
			return ourChange
		case <-changed:
			changed, calmed = nil, time.After(min(calm, pause))
		case <-o.event:
			if told == nil {
				a.told = time.Now().Add(gather)
				told = time.After(gather)
			}
		case <-told:
			a.told, told = time.Time{}, nil
			switch judge(o.heard.take()) {
			case ourChange: // an echo
			case ports:
				if look == nil {
					a.look = time.Now()
					if a.look.Before(a.quiet) {
						a.look = a.quiet
					}
					look = time.After(time.Until(a.look))
				}
			default:
				a.look = time.Time{}
				return theirs
			}
		case <-look:
			a.look = time.Time{}
			return ports
		case <-slow:
			a.look = time.Time{}
			return everything
		}
	}
}
