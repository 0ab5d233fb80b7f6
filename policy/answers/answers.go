// Package answers keeps what local containers were told by name: for how long which addresses are open by it. It is pure:
// it is told the time.
package answers

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/policy"
)

const (
	// Grace is how long after its time to live an address stays open: programs look up first and connect then.
	Grace = time.Minute
	// maxLife is what a longer time to live counts as (RFC 8767 section 4).
	maxLife = 7 * 24 * time.Hour
	// remembered is for how long after it is closed an address is known: its open connections go on even if rules change.
	remembered = 24 * time.Hour
	// Most is how many addresses a container can have open at one time, each counted for each name that it has.
	Most = 512
	// AtOnce is how many answers with new addresses a container can have at once, and PerSecond how many more it can in a
	// second: each of them changes the switch, for all who wait for that.
	AtOnce, PerSecond = 128, 8
)

// Told is an address of an answer.
type Told struct {
	Addr netip.Addr
	TTL  time.Duration
}

// Book has what endpoints were told. What it does for one endpoint takes time for that one's alone. The zero value has
// nothing.
type Book struct {
	told    map[string]*owner    // by endpoint
	due     agenda               // all that is told, by when something is to be done about it
	pace    map[string]pace      // by endpoint: of those that had new addresses not long ago
	swept   time.Time            // when pace was last looked through
	full    map[string]time.Time // by endpoint: when an answer was last refused for want of room
	changed bool
}

// owner is what one endpoint was told.
type owner struct {
	entries map[at]*entry
	open    int // of these
}

// entry is a policy.Answer in the book.
type entry struct {
	policy.Answer
	place int // in agenda
}

// when is when it is to be closed, or forgotten.
func (e *entry) when() time.Time {
	if e.Past {
		return e.Until.Add(remembered)
	}
	return e.Until
}

// agenda implements heap.Interface.
type agenda []*entry

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].when().Before(a[j].when()) }
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i, j
}

// Push implements heap.Interface.
func (a *agenda) Push(x any) {
	e := x.(*entry)
	e.place = len(*a)
	*a = append(*a, e)
}

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return e
}

// pace is how many answers with new addresses an endpoint can have.
type pace struct {
	left float64
	at   time.Time
}

// later is p at a later time, and whether nothing is known of it then.
func (p pace) later(now time.Time) (pace, bool) {
	p.left = min(p.left+PerSecond*max(now.Sub(p.at), 0).Seconds(), AtOnce)
	p.at = now
	return p, p.left == AtOnce
}

// may takes one answer with new addresses from what an endpoint can have, if there is one.
func (b *Book) may(endpoint string, now time.Time) bool {
	p, known := b.pace[endpoint]
	if !known {
		p = pace{AtOnce, now}
	}
	if p, _ = p.later(now); p.left < 1 {
		return false
	}
	p.left--
	if b.pace == nil {
		b.pace = map[string]pace{}
	}
	b.pace[endpoint] = p
	return true
}

type at struct {
	name string
	addr netip.Addr
}

// Note writes down that an endpoint is told addresses by a name: all of them, or none if there is no room. It reports
// whether any is to be opened.
func (b *Book) Note(endpoint, name string, list []Told, now time.Time) (opens bool, err error) {
	b.Expire(now)
	of := b.told[endpoint]
	if of == nil {
		of = &owner{entries: map[at]*entry{}}
	}
	fresh := map[at]bool{}
	for _, t := range list {
		if e, known := of.entries[at{name, t.Addr}]; !known || e.Past {
			fresh[at{name, t.Addr}] = true
		}
	}
	if of.open+len(fresh) > Most {
		b.refused(endpoint, now)
		return false, fmt.Errorf("the container was told %d addresses by name that are open, each counted for each of its names, and at most %d can be at one time", of.open, Most)
	}
	if len(fresh) > 0 && !b.may(endpoint, now) {
		b.refused(endpoint, now)
		return false, fmt.Errorf("the container asks for new names too fast: %d at once can be opened, and %d a second after that", AtOnce, PerSecond)
	}
	for _, t := range list {
		a := policy.Answer{Endpoint: endpoint, Name: name, Addr: t.Addr, Asked: now, Until: now.Add(min(max(t.TTL, 0), maxLife) + Grace)}
		if was, known := of.entries[at{name, t.Addr}]; known && was.Until.After(a.Until) {
			a.Until = was.Until // another answer promised it
		}
		b.put(a)
	}
	b.room(b.told[endpoint])
	b.changed = b.changed || len(fresh) > 0
	return len(fresh) > 0, nil
}

// put writes an answer down.
func (b *Book) put(a policy.Answer) {
	if b.told == nil {
		b.told = map[string]*owner{}
	}
	of := b.told[a.Endpoint]
	if of == nil {
		of = &owner{entries: map[at]*entry{}}
		b.told[a.Endpoint] = of
	}
	e, known := of.entries[at{a.Name, a.Addr}]
	if known && !e.Past {
		of.open--
	}
	if !a.Past {
		of.open++
	}
	if known {
		e.Answer = a
		heap.Fix(&b.due, e.place)
		return
	}
	e = &entry{Answer: a}
	of.entries[at{a.Name, a.Addr}] = e
	heap.Push(&b.due, e)
}

// forget takes one out.
func (b *Book) forget(of *owner, e *entry) {
	heap.Remove(&b.due, e.place)
	delete(of.entries, at{e.Name, e.Addr})
	if !e.Past {
		of.open--
	}
}

// room forgets what was closed first, so that an endpoint has no more than it may.
func (b *Book) room(of *owner) {
	if of == nil || len(of.entries) <= Most {
		return
	}
	var past []*entry
	for _, e := range of.entries {
		if e.Past {
			past = append(past, e)
		}
	}
	slices.SortFunc(past, func(x, y *entry) int { return x.Until.Compare(y.Until) })
	for _, e := range past[:len(of.entries)-Most] {
		b.forget(of, e)
	}
}

// Expire closes what is to be closed.
func (b *Book) Expire(now time.Time) {
	b.sweep(now)
	for len(b.due) > 0 && !now.Before(b.due[0].when()) {
		e := b.due[0]
		of := b.told[e.Endpoint]
		b.changed = true
		if !e.Past {
			e.Past = true
			of.open--
			heap.Fix(&b.due, e.place)
			continue
		}
		if b.forget(of, e); len(of.entries) == 0 {
			delete(b.told, e.Endpoint)
		}
	}
}

// sweep forgets, once a second, who was fast long ago, and who was refused.
func (b *Book) sweep(now time.Time) {
	if since := now.Sub(b.swept); since >= 0 && since < time.Second {
		return
	}
	b.swept = now
	maps.DeleteFunc(b.pace, func(_ string, p pace) bool { _, full := p.later(now); return full })
	maps.DeleteFunc(b.full, func(_ string, at time.Time) bool { return now.Sub(at) >= saidFor })
}

// saidFor is for how long after an answer was refused to an endpoint Full names it.
const saidFor = time.Minute

func (b *Book) refused(endpoint string, now time.Time) {
	if b.full == nil {
		b.full = map[string]time.Time{}
	}
	b.full[endpoint] = now
}

// Full is who has been refused new addresses within the last minute, since it has as many as it may or asks too fast.
func (b *Book) Full(now time.Time) []string {
	b.Expire(now)
	var list []string
	for endpoint, at := range b.full {
		if now.Sub(at) < saidFor {
			list = append(list, endpoint)
		}
	}
	slices.Sort(list)
	return list
}

// Open is how many addresses an endpoint has open, each counted for each name.
func (b *Book) Open(endpoint string) int {
	if of := b.told[endpoint]; of != nil {
		return of.open
	}
	return 0
}

// Drop forgets an endpoint.
func (b *Book) Drop(endpoint string) {
	delete(b.full, endpoint)
	of := b.told[endpoint]
	if of == nil {
		return
	}
	for _, e := range of.entries {
		heap.Remove(&b.due, e.place)
	}
	b.changed = true
	delete(b.told, endpoint)
}

// Endpoints are those that were told something.
func (b *Book) Endpoints() []string { return slices.Collect(maps.Keys(b.told)) }

// Restore takes up what another Book listed, perhaps by a clock that went differently: nothing was asked for in the future,
// and nothing is open for longer than it was to be then. The clock has no say from then on.
func (b *Book) Restore(list []policy.Answer, now time.Time) {
	for _, a := range list {
		left := min(a.Until.Sub(now), a.Until.Sub(a.Asked), maxLife+Grace)
		a.Asked, a.Until = now.Add(-max(now.Sub(a.Asked), 0)), now.Add(left)
		b.put(a)
		b.changed = true
	}
	b.Expire(now)
}

// At is what has been told, in an order of its own, and whether what is open may differ from what it was at the last
// call.
func (b *Book) At(now time.Time) (list []policy.Answer, changed bool) {
	list = b.List(now)
	changed, b.changed = b.changed, false
	return list, changed
}

// Changed says whether what is open may differ from what it was at the last call of At.
func (b *Book) Changed() bool { return b.changed }

// List is what has been told, in an order of its own.
func (b *Book) List(now time.Time) (list []policy.Answer) {
	b.Expire(now)
	for _, e := range b.due {
		list = append(list, e.Answer)
	}
	slices.SortFunc(list, func(x, y policy.Answer) int {
		return cmp.Or(cmp.Compare(x.Endpoint, y.Endpoint), cmp.Compare(x.Name, y.Name), x.Addr.Compare(y.Addr))
	})
	return list
}

// Next is when something is to be closed or forgotten; zero: nothing is.
func (b *Book) Next() time.Time {
	if len(b.due) == 0 {
		return time.Time{}
	}
	return b.due[0].when()
}
