package overlay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/answers"
)

// Rules may name domains. The resolver knows who asks: before an answer leaves, its addresses are open in the switch to
// the container that asked, and to it alone. They are closed when their time is over; connections that are open go on.

// told is what local containers were told by name. The resolver notes it, and waits until the switch knows; the loop reads it.
type told struct {
	mu    sync.Mutex
	book  answers.Book
	named map[string][]policy.Domain // by endpoint: what its rules name
	after uint64                     // passes that began up to this one may know less than the book
	due   time.Time                  // when something is to be closed or forgotten; zero: nothing is
	edits uint64                     // of the book, for who saves it
	saved chan struct{}              // capacity 1: there are edits to save
	said  map[string]time.Time       // when the log last said something of an endpoint

	inside inside
	near   func(netip.Addr) string // Config.Near; nil: nothing is
	beside map[netip.Addr]string   // what near has said of addresses that were opened: of those that it said something of
	anew   uint64                  // rises when an address that is open may be inside now
	seen   uint64                  // anew, as the loop has seen it
	of     *cluster.Snapshot       // of which the loop has seen who is here
	list   []policy.Answer         // what is open, as the loop has seen it; not to be changed
	turns  map[string]*turn        // by endpoint: whose answers wait for the switch
}

// turn is how many answers of one endpoint wait for the switch.
type turn struct {
	places chan struct{}
	users  int
}

// abreast is how many answers of one container wait for the switch at the same time. Its others wait for these: a pass
// has so many of each container, and whoever asks for much waits for itself.
const abreast = 4

// turn returns when an answer of an endpoint may be opened. done has the next one begin.
func (t *told) turn(ctx context.Context, endpoint string) (done func(), err error) {
	t.mu.Lock()
	if t.turns == nil {
		t.turns = map[string]*turn{}
	}
	own := t.turns[endpoint]
	if own == nil {
		own = &turn{places: make(chan struct{}, abreast)}
		t.turns[endpoint] = own
	}
	own.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.turns, endpoint)
		}
	}
	select {
	case own.places <- struct{}{}:
		return func() { <-own.places; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("%d answers of this container wait for the switch: %w", abreast, ctx.Err())
	}
}

func newTold(cfg Config) *told {
	return &told{saved: make(chan struct{}, 1), said: map[string]time.Time{}, near: cfg.Near}
}

// look follows what is inside; mu is held.
func (t *told) look(snap *cluster.Snapshot) {
	if t.inside.follow(snap) {
		t.anew++
	}
}

// closed says why no name opens an address, or nothing; mu is held, and look was called.
func (t *told) closed(a netip.Addr) string {
	for _, to := range policy.Behind(a) {
		if why := cmp.Or(t.inside.is(to), t.beside[to]); why != "" {
			return why
		}
	}
	return ""
}

// lookBeside asks of all addresses that are open whether this host has them now, and reports whether that is another answer
// than before. The kernel is asked of each, so that nobody waits for it meanwhile.
func (t *told) lookBeside(ctx context.Context) (changed bool) {
	if t.near == nil {
		return false
	}
	t.mu.Lock()
	ask := map[netip.Addr]bool{}
	for _, a := range t.book.List(time.Now()) {
		for _, to := range policy.Behind(a.Addr) {
			ask[to] = true
		}
	}
	t.mu.Unlock()
	beside := map[netip.Addr]string{}
	for a := range ask {
		if ctx.Err() != nil {
			return false
		}
		if why := t.near(a); why != "" {
			beside[a] = why
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if changed = !maps.Equal(beside, t.beside); changed {
		t.beside = beside
		t.anew++
	}
	return changed
}

// watchBeside has a pass close what this host has come to have, until ctx is done.
func (o *Overlay) watchBeside(ctx context.Context) {
	for ctx.Err() == nil {
		var reached <-chan struct{}
		if o.cfg.Reach != nil {
			reached = o.cfg.Reach.Watch()
		}
		if o.told.lookBeside(ctx) {
			poke(o.kick)
		}
		select {
		case <-ctx.Done():
		case <-reached:
		case <-time.After(slowTimer): // what is Docker's of it may have been known later
		}
	}
}

// open are those of a list that have not become something inside since; mu is held, and look was called.
func (t *told) open(list []policy.Answer) []policy.Answer {
	return slices.DeleteFunc(list, func(a policy.Answer) bool { return t.closed(a.Addr) != "" })
}

// saidAgain is how long the log says nothing of the same kind about an endpoint again, and saidOf of how many it says
// something in that time: a container can make any number of questions fail.
const (
	saidAgain = time.Minute
	saidOf    = 16
)

// say reports whether the log may say something now, of that kind, about an endpoint.
func (t *told) say(kind, endpoint string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.said, func(_ string, at time.Time) bool { return now.Sub(at) >= saidAgain })
	key := kind + " " + endpoint
	if _, said := t.said[key]; said || len(t.said) >= saidOf {
		return false
	}
	t.said[key] = now
	return true
}

// edit changes the book. A saver hears of it.
func (t *told) edit(do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	do()
	t.due = t.book.Next()
	t.edits++
	poke(t.saved)
}

// next is when edit closes or forgets something.
func (t *told) next() time.Time {
	if t == nil {
		return time.Time{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.due
}

func (t *told) expire(now time.Time) { t.edit(func() { t.book.Expire(now) }) }

// at is what is open to endpoints that are here, and whether it may be something else than at the last call.
func (t *told) at(snap *cluster.Snapshot, self cluster.NodeID, now time.Time) (list []policy.Answer, changed bool) {
	if t == nil {
		return nil, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if snap != t.of {
		t.of = snap
		for _, id := range t.book.Endpoints() {
			if e, live := cluster.Get[cluster.Endpoint](snap, id); !live || e.Host != self {
				t.book.Drop(id)
			}
		}
	}
	t.look(snap)
	t.book.Expire(now)
	t.due = t.book.Next()
	if !t.book.Changed() && t.anew == t.seen {
		return t.list, false
	}
	list, changed = t.book.At(now)
	changed = changed || len(list) > 0
	t.seen, t.list = t.anew, t.open(list)
	return t.list, changed
}

// name says what the rules of local endpoints name.
func (t *told) name(named map[string][]policy.Domain) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.named = named
}

// Covers reports whether rules let a local endpoint reach others by this name, which is in its canonical form.
func (o *Overlay) Covers(endpoint, name string) bool {
	o.told.mu.Lock()
	defer o.told.mu.Unlock()
	return slices.ContainsFunc(o.told.named[endpoint], func(d policy.Domain) bool { return d.Matches(name) })
}

// Open returns when the addresses that an endpoint is about to be told by a name are open to it in the switch, as far as
// rules that name it say so. Those that no name opens are left out.
func (o *Overlay) Open(ctx context.Context, endpoint, name string, list []answers.Told) error {
	if list = o.openable(endpoint, name, list); len(list) == 0 {
		return nil
	}
	done, err := o.told.turn(ctx, endpoint)
	if err == nil {
		err = o.openAll(ctx, endpoint, name, list)
		done()
	}
	if err != nil && ctx.Err() != context.Canceled && o.told.say("fails", endpoint, time.Now()) {
		o.log.Warn("a name is not answered, since what it has cannot be opened; so it may be with other names of this container", "endpoint", endpoint, "name", name, "error", err)
	}
	return err
}

func (o *Overlay) openAll(ctx context.Context, endpoint, name string, list []answers.Told) error {
	var opens bool
	var after uint64
	var err error
	o.told.edit(func() {
		opens, err = o.told.book.Note(endpoint, name, list, time.Now())
		if err == nil && opens {
			o.told.after = o.begun()
		}
		after = o.told.after
	})
	if err != nil {
		return fmt.Errorf("open what endpoint %.12s is told for %s: %w", endpoint, name, err)
	}
	if opens {
		poke(o.kick)
	}
	if _, err := o.until(ctx, func(r result) bool { return r.placed > after }); err != nil {
		return fmt.Errorf("open what endpoint %.12s is told for %s: %w", endpoint, name, err)
	}
	return nil
}

// begun is the last pass that has.
func (o *Overlay) begun() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.started
}

// openable is a list without the addresses that no name opens.
func (o *Overlay) openable(endpoint, name string, list []answers.Told) (out []answers.Told) {
	snap := o.src.Snapshot()
	for _, one := range list {
		why := o.told.why(snap, one.Addr)
		if why == "" {
			out = append(out, one)
			continue
		}
		if o.told.say("closed", endpoint, time.Now()) {
			o.log.Warn("a name has an address that no name opens: it stays closed; so may others of this container", "endpoint", endpoint, "name", name, "addr", one.Addr, "is", why)
		}
	}
	return out
}

// why says why no name opens an address, or nothing.
func (t *told) why(snap *cluster.Snapshot, a netip.Addr) string {
	t.mu.Lock()
	t.look(snap)
	why := t.closed(a)
	t.mu.Unlock()
	if why != "" || t.near == nil {
		return why
	}
	for _, to := range policy.Behind(a) {
		why = cmp.Or(why, t.near(to))
	}
	return why
}

// Answers are what local endpoints have been told by names that their rules named, as far as it opens anything.
func (o *Overlay) Answers() []policy.Answer {
	o.told.mu.Lock()
	defer o.told.mu.Unlock()
	o.told.look(o.src.Snapshot())
	return o.told.open(o.told.book.List(time.Now()))
}

// FullByName is who was refused addresses by name within the last minute, having as many as it may or asking too fast, and
// how many each has open.
func (o *Overlay) FullByName() map[string]int {
	o.told.mu.Lock()
	defer o.told.mu.Unlock()
	full := map[string]int{}
	for _, endpoint := range o.told.book.Full(time.Now()) {
		full[endpoint] = o.told.book.Open(endpoint)
	}
	return full
}

// Told keeps over restarts of the agent what containers were told by name.
type Told interface {
	Load() ([]policy.Answer, error)
	// Save makes these what is kept, and no others.
	Save([]policy.Answer) error
}

// savePause is how long edits gather until they are saved. An agent that is killed meanwhile has forgotten them: what
// they opened is closed, until the container asks again.
const savePause = 2 * time.Second

// recall reads what an agent before this one left.
func (o *Overlay) recall() {
	if o.cfg.Told == nil {
		return
	}
	list, err := o.cfg.Told.Load()
	if err != nil {
		o.log.Warn("what containers were told by name is not known any more: it is closed until they ask again", "error", err)
	}
	o.told.edit(func() { o.told.book.Restore(list, time.Now()) })
}

// keepTold saves what containers were told, until ctx is done.
func (o *Overlay) keepTold(ctx context.Context) {
	for last := uint64(0); ; sleep(ctx, savePause) {
		select {
		case <-ctx.Done():
		case <-o.told.saved:
		}
		o.told.mu.Lock()
		list, edits := o.told.book.List(time.Now()), o.told.edits
		o.told.mu.Unlock()
		if edits != last {
			if err := o.cfg.Told.Save(list); err != nil {
				o.log.Warn("an agent that is started anew may close what containers were told by name, until they ask again", "error", err)
			} else {
				last = edits
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}
