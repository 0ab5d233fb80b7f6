package overlay

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/pulse"
)

// The switch remembers each connection of endpoints with rules, for seconds to a day. There is room for so many; of those
// that a host has, no one may take all from the others. What has begun goes on in any case.
//
//   - Until seven eighths are taken, nobody is asked.
//   - When they are, the largest callers begin no more, until those who still do have no more than half of the room. One who has an
//     eighth or less is none of them.
//   - Such a one begins again when it has less than half of what it had, or three quarters are taken or less.
//   - When all is taken, nobody begins any, until an eighth is free again.
//   - Gateways are no callers: behind them are hosts. They, and questions to their resolvers, have a quarter more.
//   - There the switch has a bound of its own, for when there is no agent, too.

const (
	roomLooks = time.Second            // how often connections are counted
	roomHaste = 200 * time.Millisecond // and, when a quarter is taken
	roomAgain = 10 * time.Second       // and, while there are many, those of each caller
	// The userspace datapath passes over half of what it is to forget: it walks its table while it does.
	roomForgets = 10
)

// room is what is known of the connections that there are. The zero value knows of none.
type room struct {
	limit  int // for how many there is room
	has    int
	most   map[string]Caller // those who begin no more, by who they are
	full   bool              // nobody begins any
	crowds []pipeline.Crowd  // of both; never changed, but made anew
	looked time.Time         // when the callers were counted
	had    int               // how many connections there were then
}

// Caller is one who begins no more connections: a container with all of its addresses, or an address from outside.
type Caller struct {
	Addrs []netip.Addr
	Has   int // connections, when they were counted last
	cut   int // what it had when it was to begin no more
}

// bound is how many the switch takes.
func bound(limit int) int { return limit + limit/4 }

// near is from how many on callers are counted.
func near(limit int) int { return limit - limit/8 }

// follow notes how many connections there are, and reports whether others may begin than before, and the addresses of callers who are no
// more. callers counts connections by the address that began them. If it fails, what is known holds.
func (r *room) follow(limit, has int, now time.Time, own owners, callers func() (map[netip.Addr]int, error)) (changed bool, gone []netip.Addr, err error) {
	r.limit, r.has = limit, has
	switch {
	case has >= limit:
		r.full = true
	case has < near(limit):
		r.full = false
	}
	most := map[string]Caller{}
	for who, c := range r.most {
		was := c.Addrs
		if c.Addrs = own.addrs(who); len(c.Addrs) == 0 {
			gone = append(gone, was...)
		} else if has >= limit-limit/4 {
			most[who] = c
		}
	}
	due := now.Sub(r.looked) >= roomAgain
	if len(most) > 0 && due || has >= near(limit) && (due || has >= r.had+limit/32) {
		var counted map[netip.Addr]int
		r.looked, r.had = now, has
		if counted, err = callers(); err != nil {
			r.looked = now.Add(roomLooks - roomAgain) // soon again
		} else {
			for _, a := range gone { // of who has the address now, none of these is
				delete(counted, a)
			}
			most = cutBack(limit, has, most, own, counted)
		}
	}
	crowds := crowdsOf(most, r.full, own.gateways)
	changed = !slices.Equal(crowds, r.crowds)
	r.most, r.crowds = most, crowds
	return changed, gone, err
}

// cutBack is who begins no more, of those who did not before and others.
func cutBack(limit, has int, before map[string]Caller, own owners, counted map[netip.Addr]int) map[string]Caller {
	by := map[string]int{}
	for a, n := range counted {
		if who := own.whose(a); who != "" {
			by[who] += n
		}
	}
	most, rest := map[string]Caller{}, has
	for who, c := range before {
		if c.Has = by[who]; c.Has < c.cut/2 {
			continue
		}
		most[who] = c
		rest -= c.Has
	}
	if has < near(limit) {
		return most
	}
	for _, who := range slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(by[b]-by[a], strings.Compare(a, b)) }) {
		n := by[who]
		if n <= limit/8 || rest <= limit/2 {
			break
		}
		if _, already := most[who]; already {
			continue
		}
		most[who] = Caller{own.addrs(who), n, n}
		rest -= n
	}
	return most
}

func crowdsOf(most map[string]Caller, full bool, gateways []netip.Addr) (list []pipeline.Crowd) {
	for _, c := range most {
		for _, a := range c.Addrs {
			list = append(list, pipeline.Crowd{Addr: a})
		}
	}
	if full {
		list = append(list, pipeline.Crowd{})
		for _, a := range gateways {
			list = append(list, pipeline.Crowd{Addr: a, Spared: true})
		}
	}
	slices.SortFunc(list, func(a, b pipeline.Crowd) int { return a.Addr.Compare(b.Addr) })
	return list
}

// owners say whose an address is. The zero value takes each for one from outside.
type owners struct {
	of       map[netip.Addr]string   // whose they are
	all      map[string][]netip.Addr // what each of these has, in order
	subnets  []netip.Prefix          // where nobody is who is not among them
	gateways []netip.Addr            // each once, in order
}

// ownersOf takes the endpoints of a container, in all of its networks, for one.
func ownersOf(snap *cluster.Snapshot) owners {
	own := owners{of: map[netip.Addr]string{}, all: map[string][]netip.Addr{}}
	for e := range cluster.All[cluster.Endpoint](snap) {
		who := cmp.Or(e.Container, e.ID)
		for _, a := range e.Addrs {
			if own.of[a] != "" {
				continue // two have it, of which one is to go
			}
			own.of[a] = who
			own.all[who] = append(own.all[who], a)
		}
	}
	for _, list := range own.all {
		slices.SortFunc(list, netip.Addr.Compare)
	}
	for s := range cluster.All[cluster.Subnet](snap) {
		own.subnets = append(own.subnets, s.Prefix)
		if s.Gateway.IsValid() {
			own.gateways = append(own.gateways, s.Gateway)
		}
	}
	slices.SortFunc(own.gateways, netip.Addr.Compare)
	own.gateways = slices.Compact(own.gateways)
	return own
}

// whose is the caller who has an address; nobody has a gateway's, and one of a subnet that no endpoint has.
func (o owners) whose(a netip.Addr) string {
	if slices.Contains(o.gateways, a) {
		return ""
	}
	if who := o.of[a]; who != "" {
		return who
	}
	if slices.ContainsFunc(o.subnets, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return ""
	}
	return a.String()
}

// addrs is what a caller has; none: it is no more.
func (o owners) addrs(who string) []netip.Addr {
	if list := o.all[who]; len(list) > 0 {
		return list
	}
	if a, err := netip.ParseAddr(who); err == nil && o.whose(a) == who {
		return []netip.Addr{a}
	}
	return nil
}

// crowding keeps a room in step with the switch.
type crowding struct {
	bridge *ovs.Bridge
	limit  func() int
	ruled  func() bool // whether there are rules
	pass   func()      // others may begin connections than before
	snap   func() *cluster.Snapshot
	log    *slog.Logger

	mu     sync.Mutex
	room   room
	failed string // why less is known than is to be

	own  owners // as of rev, and what only the watch has
	rev  uint64
	read bool
	gone map[netip.Addr]int // of callers who are no more, and how many times their connections are still to be forgotten
}

// owners are read anew when the snapshot is another one.
func (c *crowding) owners() owners {
	if snap := c.snap(); !c.read || snap.Rev() != c.rev {
		c.own, c.rev, c.read = ownersOf(snap), snap.Rev(), true
	}
	return c.own
}

// watch counts connections while there are rules, until ctx ends.
func (c *crowding) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-pulse.After(c.pause()):
		}
		if !c.ruled() && len(c.crowds()) == 0 && len(c.gone) == 0 {
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
	var own owners
	if now.Has >= limit-limit/4 || len(c.room.most) > 0 || len(c.gone) > 0 {
		own = c.owners()
	}
	next := c.room // which only this goroutine writes
	changed, gone, err := next.follow(limit, now.Has, time.Now(), own, func() (map[netip.Addr]int, error) { return c.bridge.Callers(ctx, pipeline.Zone) })
	c.mu.Lock()
	c.room = next
	c.mu.Unlock()
	for _, a := range gone {
		c.gone[a] = roomForgets
	}
	for a, times := range c.gone { // else who gets such an address would have its connections
		if own.of[a] != "" || times == 0 {
			delete(c.gone, a)
			continue
		}
		c.gone[a]--
		err = errors.Join(err, c.bridge.ForgetConnections(ctx, pipeline.Zone, a))
	}
	return changed, err
}

func (c *crowding) crowds() []pipeline.Crowd {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.room.crowds
}

// Crowded says who has so many connections with endpoints that rules are about that no more of theirs begin, how many there are of all,
// and for how many there is room. Full is that nobody begins any.
func (o *Overlay) Crowded() (most []Caller, full bool, has, limit int) {
	c := o.crowding
	if c == nil {
		return nil, false, 0, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	most = slices.SortedFunc(maps.Values(c.room.most), func(a, b Caller) int { return a.Addrs[0].Compare(b.Addrs[0]) })
	return most, c.room.full, c.room.has, c.room.limit
}

// newCrowding returns nil where nobody says for how many there is room.
func (o *Overlay) newCrowding() *crowding {
	if o.cfg.Room == nil {
		return nil
	}
	return &crowding{
		bridge: o.cfg.Bridge, limit: o.cfg.Room, snap: o.src.Snapshot, gone: map[netip.Addr]int{}, log: o.log, pass: func() { poke(o.kick) },
		ruled: func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			return len(o.last.input.Policy.Guards) > 0
		},
	}
}
