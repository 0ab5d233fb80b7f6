// Package answers keeps what local containers were told by name: for how long which addresses are open by it. It is pure:
// it is told the time.
package answers

import (
	"cmp"
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
	// Most is how many names with an address a container can have open at one time.
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

// Book has what endpoints were told. The zero value has nothing.
type Book struct {
	told    map[string]map[at]policy.Answer // by endpoint
	pace    map[string]pace                 // by endpoint: of those that had new addresses not long ago
	changed bool
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
	open := 0
	for _, a := range of {
		if !a.Past {
			open++
		}
	}
	fresh := map[at]bool{}
	for _, t := range list {
		if a, known := of[at{name, t.Addr}]; !known || a.Past {
			fresh[at{name, t.Addr}] = true
		}
	}
	if open+len(fresh) > Most {
		return false, fmt.Errorf("the container was told %d addresses by name that are open, and at most %d can be at one time", open, Most)
	}
	if len(fresh) > 0 && !b.may(endpoint, now) {
		return false, fmt.Errorf("the container asks for new names too fast: %d at once can be opened, and %d a second after that", AtOnce, PerSecond)
	}
	if of == nil {
		if b.told == nil {
			b.told = map[string]map[at]policy.Answer{}
		}
		of = map[at]policy.Answer{}
		b.told[endpoint] = of
	}
	for _, t := range list {
		k, until := at{name, t.Addr}, now.Add(min(max(t.TTL, 0), maxLife)+Grace)
		if was, known := of[k]; known && was.Until.After(until) {
			until = was.Until // another answer promised it
		}
		of[k] = policy.Answer{Endpoint: endpoint, Name: name, Addr: t.Addr, Asked: now, Until: until}
	}
	b.room(of)
	b.changed = b.changed || len(fresh) > 0
	return len(fresh) > 0, nil
}

// room forgets what was closed first, so that an endpoint has no more than it may.
func (b *Book) room(of map[at]policy.Answer) {
	if len(of) <= Most {
		return
	}
	var past []at
	for k, a := range of {
		if a.Past {
			past = append(past, k)
		}
	}
	slices.SortFunc(past, func(x, y at) int { return of[x].Until.Compare(of[y].Until) })
	for _, k := range past[:len(of)-Most] {
		delete(of, k)
	}
}

// Expire closes what is to be closed.
func (b *Book) Expire(now time.Time) {
	maps.DeleteFunc(b.pace, func(_ string, p pace) bool { _, full := p.later(now); return full })
	for endpoint, of := range b.told {
		for k, a := range of {
			switch {
			case !now.Before(a.Until.Add(remembered)):
				delete(of, k)
				b.changed = true
			case !a.Past && !now.Before(a.Until):
				a.Past = true
				of[k] = a
				b.changed = true
			}
		}
		if len(of) == 0 {
			delete(b.told, endpoint)
		}
	}
}

// Drop forgets an endpoint.
func (b *Book) Drop(endpoint string) {
	b.changed = b.changed || len(b.told[endpoint]) > 0
	delete(b.told, endpoint)
}

// Endpoints are those that were told something.
func (b *Book) Endpoints() []string { return slices.Collect(maps.Keys(b.told)) }

// Restore takes up what another Book listed, perhaps by a clock that went differently.
func (b *Book) Restore(list []policy.Answer, now time.Time) {
	for _, a := range list {
		if last := now.Add(maxLife + Grace); a.Until.After(last) {
			a.Until = last
		}
		if b.told == nil {
			b.told = map[string]map[at]policy.Answer{}
		}
		if b.told[a.Endpoint] == nil {
			b.told[a.Endpoint] = map[at]policy.Answer{}
		}
		b.told[a.Endpoint][at{a.Name, a.Addr}] = a
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
	for _, of := range b.told {
		for _, a := range of {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(x, y policy.Answer) int {
		return cmp.Or(cmp.Compare(x.Endpoint, y.Endpoint), cmp.Compare(x.Name, y.Name), x.Addr.Compare(y.Addr))
	})
	return list
}

// Next is when something is to be closed or forgotten; zero: nothing is.
func (b *Book) Next() (next time.Time) {
	for _, of := range b.told {
		for _, a := range of {
			when := a.Until
			if a.Past {
				when = when.Add(remembered)
			}
			if next.IsZero() || when.Before(next) {
				next = when
			}
		}
	}
	return next
}
