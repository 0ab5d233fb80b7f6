// Package replay says what would have become of connections that were seen, had other policies been in force.
package replay

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/learn"
)

// Question asks what changes between two worlds of the same endpoints.
type Question struct {
	Before, After policy.World
	Connections   []learn.Connection
	// Host reports whether an address is one by which hosts speak to containers: policies do not keep those out.
	Host func(netip.Addr) bool
	// Most is for how many pairs at most a verdict is asked.
	Most int
}

// Answer is what changes, and how many connections are not judged.
type Answer struct {
	Judged int // connections
	Gone   int // one of its containers has gone, or has other labels now
	Left   int // there were more pairs than Most
	Pairs  []Pair
}

// Pair are the connections between two ends at one port that would pass no more, or (Allowed) that nothing came of and that
// would pass.
type Pair struct {
	From, To    policy.Peer
	Proto       uint8
	Port        uint16 // of ICMP a type
	Connections int
	Open        int // of these
	Allowed     bool
	// Unless are names by which it would pass: which name an address was asked for is not known.
	Unless []policy.Domain
	Why    []policy.Ref
}

// ends is what connections have in common that have one verdict.
type ends struct {
	from, to policy.Peer
	proto    uint8
	port     uint16
}

// tally counts the connections of a Pair.
type tally struct{ worked, open, failed int }

// Ask answers the question.
func (q Question) Ask() (a Answer) {
	counts := map[ends]*tally{}
	var order []ends // the first seen first, so that Most leaves out the last
	holders := learn.HoldersOf(q.After.Endpoints)
	for _, c := range q.Connections {
		from, gone1 := holders.Of(c.From)
		to, gone2 := holders.Of(c.To)
		if gone1 || gone2 {
			a.Gone++
			continue
		}
		e := endsOf(c, from, to)
		t := counts[e]
		if t == nil {
			if len(order) >= q.Most {
				a.Left++
				continue
			}
			t = &tally{}
			counts[e] = t
			order = append(order, e)
		}
		a.Judged++
		t.add(c)
	}
	for _, e := range order {
		if p, changes := q.pair(e, *counts[e]); changes {
			a.Pairs = append(a.Pairs, p)
		}
	}
	slices.SortStableFunc(a.Pairs, func(x, y Pair) int {
		if x.Allowed != y.Allowed {
			if y.Allowed {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(len(x.Unless), len(y.Unless)), cmp.Compare(y.Connections, x.Connections))
	})
	return a
}

// add counts a connection. What has no connections needs no answer: it has worked once it was sent.
func (t *tally) add(c learn.Connection) {
	switch {
	case c.Failed != "" && (c.Proto == policy.TCP || c.Proto == policy.SCTP || c.Proto == policy.ICMP):
		t.failed++
		return
	case c.Open:
		t.open++
	}
	t.worked++
}

func endsOf(c learn.Connection, from, to policy.Endpoint) ends {
	e := ends{policy.Peer{Endpoint: from.ID, Addr: c.From.Addr}, policy.Peer{Endpoint: to.ID, Addr: c.To.Addr}, c.Proto, c.Port}
	if c.Proto == policy.ICMP {
		const echo, echo6 = 8, 128
		if e.port = echo; c.To.Addr.Is6() {
			e.proto, e.port = policy.ICMPv6, echo6
		}
	}
	return e
}

// pair is what changes between two ends, if anything does that connections there were about.
func (q Question) pair(e ends, t tally) (p Pair, changes bool) {
	if e.from.Endpoint == "" && q.Host(e.from.Addr) || e.to.Endpoint == "" && e.port == learn.ResolverPort && q.Host(e.to.Addr) {
		return p, false
	}
	was, is := q.Before.Verdict(e.from, e.to, e.proto, e.port), q.After.Verdict(e.from, e.to, e.proto, e.port)
	p = Pair{From: e.from, To: e.to, Proto: e.proto, Port: e.port, Connections: t.worked, Open: t.open, Allowed: is.Allowed}
	switch {
	case was.Allowed && !is.Allowed && t.worked > 0:
	case !was.Allowed && is.Allowed && t.failed > 0:
		p.Connections, p.Open = t.failed, 0
		p.Why = slices.Concat(is.Egress.Rules, is.Ingress.Rules)
		return p, true
	default:
		return p, false
	}
	for _, d := range []policy.Decision{is.Egress, is.Ingress} {
		if !d.Allowed {
			p.Why = append(p.Why, d.Rules...)
		}
	}
	p.Unless = Names(q.After, e.from, e.to, e.proto, e.port)
	return p, true
}

// Names are those by which a connection to the outside would pass.
func Names(w policy.World, from, to policy.Peer, proto uint8, port uint16) (list []policy.Domain) {
	if from.Endpoint == "" || to.Endpoint != "" {
		return nil
	}
	for _, d := range w.NamesOf(from.Endpoint) {
		name := string(d)
		if below, any := strings.CutPrefix(name, "*"); any {
			name = "any" + below
		}
		if w.Verdict(from, policy.Peer{Name: name}, proto, port).Allowed {
			list = append(list, d)
		}
	}
	return list
}
