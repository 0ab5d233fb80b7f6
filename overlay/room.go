package overlay

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/pulse"
)

// The switch remembers each connection of endpoints with rules, for seconds to a day. There is room for so many; of those
// that a host has, no one may take the others' part. What has begun goes on in any case.
//
//   - Until a quarter is taken, nobody is asked.
//   - When half of it is, who began more than an eighth begins no more.
//   - When all is, nobody does, until an eighth is free again.
//   - Behind that the switch has a bound of its own, for when there is no agent.

const (
	roomLooks = time.Second            // how often connections are counted
	roomHaste = 200 * time.Millisecond // and, when a quarter is taken
	roomAgain = 10 * time.Second       // and, while there are many, those of each caller
)

// room is what is known of the connections that there are. The zero value knows of none.
type room struct {
	limit  int // for how many there is room
	has    int
	most   map[netip.Addr]int // those who begin no more, and how many they had when that was looked at
	full   bool               // nobody begins any
	crowds []pipeline.Crowd   // of both; never changed, but made anew
	looked time.Time          // when the callers were counted
	had    int                // how many connections there were then
}

// bound is how many the switch takes.
func bound(limit int) int { return limit + limit/4 }

// follow notes how many connections there are, and reports whether others may begin than before. callers counts them by who began them.
func (r *room) follow(limit, has int, now time.Time, callers func() (map[netip.Addr]int, error)) (changed bool, err error) {
	r.limit, r.has = limit, has
	most, full := r.most, r.full
	switch {
	case has < limit/4:
		most, r.looked = nil, time.Time{}
	case has >= limit/2 && (r.looked.IsZero() || now.Sub(r.looked) >= roomAgain || has >= r.had+limit/8):
		counted, err := callers()
		if err != nil {
			return false, err
		}
		r.looked, r.had, most = now, has, map[netip.Addr]int{}
		for a, n := range counted {
			if n > limit/8 {
				most[a] = n
			}
		}
	}
	switch {
	case has >= limit:
		full = true
	case has < limit-limit/8:
		full = false
	}
	crowds := crowdsOf(most, full)
	changed = !slices.Equal(crowds, r.crowds)
	r.most, r.full, r.crowds = most, full, crowds
	return changed, nil
}

func crowdsOf(most map[netip.Addr]int, full bool) (list []pipeline.Crowd) {
	for a := range most {
		list = append(list, pipeline.Crowd{Addr: a})
	}
	if full {
		list = append(list, pipeline.Crowd{})
	}
	slices.SortFunc(list, func(a, b pipeline.Crowd) int { return a.Addr.Compare(b.Addr) })
	return list
}

// crowding keeps a room in step with the switch.
type crowding struct {
	bridge *ovs.Bridge
	limit  func() int
	ruled  func() bool // whether there are rules
	pass   func()      // others may begin connections than before
	log    *slog.Logger

	mu     sync.Mutex
	room   room
	failed string // why nothing is known
}

// watch counts connections while there are rules, until ctx ends.
func (c *crowding) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-pulse.After(c.pause()):
		}
		if !c.ruled() && len(c.crowds()) == 0 {
			continue
		}
		changed, err := c.look(ctx)
		failed := ""
		if err != nil && ctx.Err() == nil {
			failed = err.Error()
		}
		if failed != "" && failed != c.failed {
			c.log.Warn("the connections of containers with policies are not counted, and may be more than this host has room for", "error", err)
		}
		c.failed = failed
		if changed {
			c.pass()
		}
	}
}

func (c *crowding) pause() time.Duration {
	if c.room.has >= c.room.limit/4 && c.room.limit > 0 {
		return roomHaste
	}
	return roomLooks
}

// look sees to the switch's own bound, too: one that has begun anew has none.
func (c *crowding) look(ctx context.Context) (changed bool, err error) {
	limit := c.limit()
	now, err := c.bridge.Connections(ctx, pipeline.Zone)
	if err == nil && now.Limit != bound(limit) {
		err = c.bridge.LimitConnections(ctx, pipeline.Zone, bound(limit))
	}
	if err != nil {
		return false, err
	}
	next := c.room // which only this goroutine writes
	if changed, err = next.follow(limit, now.Has, time.Now(), func() (map[netip.Addr]int, error) { return c.bridge.Callers(ctx, pipeline.Zone) }); err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.room = next
	return changed, nil
}

func (c *crowding) crowds() []pipeline.Crowd {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.room.crowds
}

// Crowded says who has so many connections with endpoints that rules are about that no more of theirs begin, how many they had when that
// was looked at, how many there are of all, and for how many there is room. Full is that nobody begins any.
func (o *Overlay) Crowded() (most map[netip.Addr]int, full bool, has, limit int) {
	c := o.crowding
	if c == nil {
		return nil, false, 0, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.room.most, c.room.full, c.room.has, c.room.limit
}

// newCrowding returns nil where nobody says for how many there is room.
func (o *Overlay) newCrowding() *crowding {
	if o.cfg.Room == nil {
		return nil
	}
	return &crowding{
		bridge: o.cfg.Bridge, limit: o.cfg.Room, log: o.log, pass: func() { poke(o.kick) },
		ruled: func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			return len(o.last.input.Policy.Guards) > 0
		},
	}
}
