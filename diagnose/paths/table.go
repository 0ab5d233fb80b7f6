// Package paths judges which ways between hosts carry packets. Each host says hello to the
// others through the tunnel, by the way that containers' packets go, and says in it whether
// it hears theirs (as RFC 5880 does for routers). Who sends hellos by its record, answers
// gossip, and is not heard for some of its intervals, is cut off in that direction: a firewall
// drops VXLAN, or the tunnel is broken. Nothing is asked and nothing answers, so a hello costs
// a frame, and a host that knows none of this is never judged.
//
// The package is pure: no sockets, no clock, no goroutines.
package paths

import (
	"cmp"
	"slices"
	"time"
)

const (
	// neighbours is how many hosts before a host in the ring of all IDs, and as many after,
	// hear of it every second: a firewall on it is found by all of them, whatever the
	// cluster's size. The others take turns, perSecond of them.
	neighbours = 4
	nearEvery  = time.Second
	perSecond  = 20
	// misses is how many hellos of a neighbour may be lost, farMisses of another one. A hello
	// is two frames. largeMisses is for large ones, which are one.
	misses, farMisses, largeMisses = 5, 3, 8
	// late is what is added to the intervals, since hosts are busy at times, and first until
	// a host is heard for the first time, which may have to make its tunnel yet.
	late  = 500 * time.Millisecond
	first = 3 * time.Second
	// firstInside is the same of the way through what encrypts: a process may have to begin for it.
	firstInside = 10 * time.Second
	// shy is how long a host that is not heard is said nothing.
	shy = 5 * time.Second
)

// Heard says what of a host's hellos arrives.
type Heard uint8

// The numbers are wire format.
const (
	Unknown Heard = iota // it is too early to say
	All
	Nothing
	Small // but none as large as a packet of containers may be
)

// Hello is what a host says.
type Hello struct {
	From  string        // its ID
	Every time.Duration // when it says so again
	Hears Heard         // of the hellos of who gets this
	Large bool
	Count uint32 // of the small ones to who gets this; 0: nobody counts
	// Inside: it is said through what encrypts, between hosts that also send beside that. Another Table has those.
	Inside bool
}

// Verdict is about the ways between this host and another one.
type Verdict struct {
	Host string
	In   Heard // what arrives here of what it sends
	Out  Heard // what arrives there of what this host sends, as it says itself
	// Lost is how many of a hundred hellos do not arrive here, if that is much.
	Lost int
	// Since is when the last arrived of what does not any more, or when it should have begun.
	Since time.Time
}

// Bad reports whether something is known to be wrong.
func (v Verdict) Bad() bool {
	return v.In == Nothing || v.In == Small || v.Out == Nothing || v.Out == Small
}

// Table is what one host has heard. Its methods are called by one goroutine.
type Table struct {
	self  string
	peers map[string]*peer
	far   time.Duration // between hellos to one of the hosts that are no neighbours
	first time.Duration // until a host is to be heard for the first time
}

type peer struct {
	near     bool
	expected time.Time // since when it is to be heard
	came     time.Time // when it was declared
	small    time.Time // when it was heard; zero: never
	large    time.Time
	every    time.Duration // as it says
	hears    Heard         // as it says
	deaf     time.Time     // since when it says that it does not
	losses   losses        // of its small ones
	next     time.Time     // when it is said hello
}

// New returns the Table of the host of that ID.
func New(self string) *Table { return &Table{self: self, first: first, peers: map[string]*peer{}} }

// NewInside returns the Table of the ways through what encrypts, which each host has yet to make when it is first wanted.
func NewInside(self string) *Table {
	return &Table{self: self, first: firstInside, peers: map[string]*peer{}}
}

// Host is another host.
type Host struct {
	ID string
	// Sends: it sends hellos, answers gossip, and is not in doubt.
	Sends bool
}

// Set declares all hosts of the cluster: those that do not send are not judged. This host may
// be among them.
func (t *Table) Set(hosts []Host, now time.Time) {
	ring := []string{t.self}
	sends := map[string]bool{}
	for _, h := range hosts {
		if h.ID != t.self {
			ring = append(ring, h.ID)
			sends[h.ID] = h.Sends
		}
	}
	slices.Sort(ring)
	near := map[string]bool{}
	at, _ := slices.BinarySearch(ring, t.self)
	for i := 1; i <= neighbours; i++ {
		near[ring[(at+i)%len(ring)]] = true
		near[ring[((at-i)%len(ring)+len(ring))%len(ring)]] = true
	}
	for id := range t.peers {
		if !sends[id] {
			delete(t.peers, id)
		}
	}
	t.far = max(nearEvery, time.Duration(len(ring)-1-2*neighbours)*time.Second/perSecond)
	turn := 0
	for _, id := range ring {
		if !sends[id] {
			continue
		}
		turn++
		p := t.peers[id]
		if p == nil {
			p = &peer{came: now, expected: now.Add(t.first)}
			// Their turns are spread, and stay so.
			p.next = now.Add(nearEvery + t.every(near[id])*time.Duration(turn)/time.Duration(len(ring)))
			t.peers[id] = p
		}
		p.near = near[id]
	}
}

func (t *Table) every(near bool) time.Duration {
	if near {
		return nearEvery
	}
	return t.far
}

// Forgive is to be called when this host may have lost hellos by its own fault: those that are
// heard now are not judged until they could be heard again.
func (t *Table) Forgive(now time.Time) {
	for _, p := range t.peers {
		if t.in(p, now) != Nothing {
			p.expected = latest(p.expected, now) // who is yet to be heard for the first time has longer
		}
	}
}

// Due returns the hellos to say now, by host.
func (t *Table) Due(now time.Time) map[string]Hello {
	due := map[string]Hello{}
	for id, p := range t.peers {
		// Who has just come has to be known there first, or what it says is a stranger's: it is when it is
		// heard from there, or after a while that a busy host may take.
		if now.Before(p.next) || p.small.IsZero() && now.Before(p.came.Add(shy)) {
			continue
		}
		every := t.every(p.near)
		if p.next = p.next.Add(every); !p.next.After(now) {
			p.next = now.Add(every)
		}
		due[id] = Hello{From: t.self, Every: every, Hears: t.in(p, now)}
	}
	return due
}

// Hear takes a hello. Of a host that is not to be heard it says nothing.
func (t *Table) Hear(h Hello, now time.Time) {
	p := t.peers[h.From]
	if p == nil {
		return
	}
	p.small, p.every = now, min(h.Every, time.Hour)
	if h.Count != 0 {
		p.losses.hear(h.Count)
	}
	if p.expected.After(now) { // it need not be waited for any more
		p.expected = now
	}
	if h.Large {
		p.large = now
	}
	if bad := h.Hears == Nothing || h.Hears == Small; !bad {
		p.deaf = time.Time{}
	} else if p.deaf.IsZero() {
		p.deaf = now
	}
	p.hears = h.Hears
}

// patience is how long a peer may be silent.
func (t *Table) patience(p *peer) time.Duration {
	n := misses
	if !p.near {
		n = farMisses
	}
	return max(time.Duration(n)*max(p.every, t.every(p.near)), misses*nearEvery) + late
}

// in says what is heard of a peer.
func (t *Table) in(p *peer, now time.Time) Heard {
	since := latest(p.small, p.expected)
	switch {
	case now.Sub(since) > t.patience(p):
		return Nothing
	case p.small.IsZero():
		return Unknown
	case now.Sub(latest(p.large, p.expected)) > t.patience(p)*largeMisses/misses:
		return Small
	case p.large.IsZero():
		return Unknown
	}
	return All
}

// Verdicts are those of all hosts that are judged, by their IDs.
func (t *Table) Verdicts(now time.Time) (list []Verdict) {
	for id, p := range t.peers {
		v := Verdict{Host: id, In: t.in(p, now)}
		if v.In == All || v.In == Small {
			v.Out = p.hears
		}
		if v.In == All {
			v.Lost = p.losses.lost()
		}
		switch v.In {
		case Nothing:
			v.Since = latest(p.small, p.expected)
		case Small:
			v.Since = latest(p.large, p.expected)
		default:
			v.Since = p.deaf
		}
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b Verdict) int { return cmp.Compare(a.Host, b.Host) })
	return list
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
