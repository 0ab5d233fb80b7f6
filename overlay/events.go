package overlay

import (
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// events are what the switch has told since it was last taken.
type events struct {
	mu      sync.Mutex
	changes []ovs.Change
	much    bool      // too much to be kept
	spoke   time.Time // when it told last of what is not its ports
}

// manyEvents bounds what is kept of the switch's words: a whole table of flows is looked at
// sooner than it is told.
const manyEvents = 10000

// hear notes what the switch tells and wakes the loop.
func (o *Overlay) hear(c ovs.Change) {
	o.events.mu.Lock()
	if c.What != ovs.Ports {
		o.events.spoke = time.Now()
	}
	if o.events.much = o.events.much || len(o.events.changes) == manyEvents; o.events.much {
		o.events.changes = nil
	} else {
		o.events.changes = append(o.events.changes, c)
	}
	o.events.mu.Unlock()
	poke(o.event)
}

// take returns what there is and forgets it. If that was too much, anything may have
// changed.
func (e *events) take() []ovs.Change {
	e.mu.Lock()
	defer e.mu.Unlock()
	changes := e.changes
	if e.much {
		changes = []ovs.Change{{What: ovs.Anything}}
	}
	e.changes, e.much = nil, false
	return changes
}

// silent reports whether the switch has told of no flow since some time before a moment, and that it began to tell sooner than that:
// what was read at that moment is as it was then.
func (e *events) silent(since time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.spoke.IsZero() && since.Sub(e.spoke) > listening
}

// listening is how long the switch may take to begin to tell, once it was asked to.
const listening = 5 * time.Second

// judge says what the switch's words are a reason for. That it has flows that it should
// have, and others no more, is the echo of our own changes, and no reason to read all of
// them. Of flows that differ in nothing but their priority the monitor does not tell
// which it means: that is found when everything is looked at.
func (r *reconciler) judge(changes []ovs.Change) (why reason) {
	cookies := map[uint64]bool{} // a flow's is its object's: few are spoken of
	for _, c := range changes {
		cookies[c.Flow.Cookie] = true
	}
	should := map[pipeline.Flow]bool{} // but for their priority
	for _, f := range r.flows {
		if cookies[f.Cookie] {
			f.Priority = 0
			should[f] = true
		}
	}
	for _, c := range changes {
		switch c.What {
		case ovs.FlowSet, ovs.FlowGone:
			if should[pipelineFlow(c.Flow)] != (c.What == ovs.FlowSet) {
				return theirs
			}
		case ovs.Ports:
			why = ports
		default:
			return theirs
		}
	}
	if why < theirs {
		r.again = nil // what was set has stayed
	}
	return why
}
