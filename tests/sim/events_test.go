package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// event is one write of a host that all others are to hear of.
type event struct {
	kind    string
	key     cluster.Key
	version cluster.Version
	since   time.Time
	waiting map[*host]bool
}

// heard reports whether a host knows of the event, or of a later word on the same key.
func (e *event) heard(h *host) bool {
	rec, ok := h.replica.Snapshot().Record(e.key)
	return ok && (rec.Version.Counter > e.version.Counter || rec.Version == e.version)
}

// times are how long events took: to each host, and until the last one knew.
type times struct{ each, all []time.Duration }

// stopwatch follows events on their way.
type stopwatch struct {
	w     *world
	open  map[cluster.Key][]*event
	seen  map[*host]*cluster.Snapshot // what look has looked at
	times map[string]*times
	late  int  // of events that somebody did not hear of in time
	still bool // nobody looks: events would only be kept
}

func newStopwatch(w *world) *stopwatch {
	return &stopwatch{w: w, open: map[cluster.Key][]*event{}, seen: map[*host]*cluster.Snapshot{}, times: map[string]*times{}}
}

// wrote notes that h has just written the record of a key.
func (s *stopwatch) wrote(kind string, h *host, key cluster.Key) {
	if s.still {
		return
	}
	rec, ok := h.replica.Snapshot().Record(key)
	if !ok {
		s.w.t.Fatalf("%s of %s: no record %v", kind, h.id, key)
	}
	e := &event{kind: kind, key: key, version: rec.Version, since: time.Now(), waiting: map[*host]bool{}}
	for _, other := range s.w.alive() {
		if other != h {
			e.waiting[other] = true
		}
	}
	if len(e.waiting) > 0 {
		s.open[key] = append(s.open[key], e)
	}
}

// look is called every tick. It asks each host for what has changed there since.
func (s *stopwatch) look() {
	for _, h := range s.w.hosts {
		now, before := h.replica.Snapshot(), s.seen[h]
		keys, known := now.Since(before)
		switch {
		case len(s.open) == 0 || now == before && !h.gone:
		case !known || h.gone:
			for key := range s.open {
				s.ask(h, key)
			}
		default:
			for _, key := range keys {
				s.ask(h, key)
			}
		}
		s.seen[h] = now
	}
}

// ask notes what a host knows of the events of a key.
func (s *stopwatch) ask(h *host, key cluster.Key) {
	left := slices.DeleteFunc(s.open[key], func(e *event) bool {
		if !e.waiting[h] || !h.gone && !e.heard(h) {
			return false
		}
		delete(e.waiting, h)
		t := s.times[e.kind]
		if t == nil {
			t = &times{}
			s.times[e.kind] = t
		}
		took := time.Since(e.since)
		if !h.gone {
			t.each = append(t.each, took)
		}
		if len(e.waiting) > 0 {
			return false
		}
		t.all = append(t.all, took)
		return true
	})
	if s.open[key] = left; len(left) == 0 {
		delete(s.open, key)
	}
}

// forget gives up all events, and returns how many they were.
func (s *stopwatch) forget() (events int) {
	for _, list := range s.open {
		events += len(list)
	}
	clear(s.open)
	return events
}

// run lets d pass.
func (s *stopwatch) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); s.look() {
		s.w.pass()
	}
}

// settle waits until all events are known everywhere, or the limit is over.
func (s *stopwatch) settle(limit time.Duration) {
	for end := time.Now().Add(limit); len(s.open) > 0 && time.Now().Before(end); s.look() {
		s.w.pass()
	}
	s.late += s.forget()
}

// workload makes networks and endpoints come and go.
type workload struct {
	w         *world
	s         *stopwatch
	rnd       *rand.Rand
	networks  []cluster.Subnet
	endpoints []endpoint
	made, ups int   // numbers that were used, and containers that were started
	going     *host // starts no containers any more
}

type endpoint struct {
	h    *host
	id   string
	addr netip.Addr
}

func (l *workload) host() *host {
	list := slices.DeleteFunc(l.w.alive(), func(h *host) bool { return h == l.going })
	return list[l.rnd.IntN(len(list))]
}

// network makes one on a host, as `docker network create` does. The space is durable
// and owned before anything is written; who has none asks.
func (l *workload) network(h *host, bits int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l.made++
	vnid, prefix := uint32(l.made), netip.PrefixFrom(l.number(), 30)
	if !l.w.bare {
		var err error
		vnid, err = h.alloc.VNID(ctx)
		l.w.must(err)
		prefix, err = h.alloc.Prefix(ctx, 4, bits, 0)
		l.w.must(err)
	}
	sub := cluster.Subnet{Prefix: prefix, Network: fmt.Sprintf("net%d", l.made), Home: h.id}
	net := cluster.Network{Name: sub.Network, VNID: vnid}
	l.w.must(h.write(func(tx *replica.Tx) error {
		if err := tx.Put(net); err != nil {
			return err
		}
		return tx.Put(sub)
	}))
	if !l.w.bare {
		l.w.must(h.alloc.PoolDone(prefix))
	}
	l.networks = append(l.networks, sub)
	l.s.wrote("network created", h, net.Key())
}

func (l *workload) networkGone() {
	h := l.host()
	sub := l.networks[len(l.networks)-1]
	l.networks = l.networks[:len(l.networks)-1]
	key := cluster.Network{Name: sub.Network}.Key()
	l.w.must(h.write(func(tx *replica.Tx) error { tx.Delete(sub.Key()); tx.Delete(key); return nil }))
	l.s.wrote("network deleted", h, key)
}

// up starts a container on the first network.
func (l *workload) up(h *host) {
	sub := l.networks[0]
	if _, ok := h.alloc.Subnet(sub.Prefix); !ok {
		return // not yet heard of there: Docker would not know the network
	}
	l.made++
	l.ups++
	a := l.number()
	if !l.w.bare {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var err error
		if a, err = h.alloc.Address(ctx, sub.Prefix, sub.Prefix, netip.Addr{}); err != nil {
			l.w.t.Errorf("address on %s: %v", h.id, err)
			return
		}
	}
	e := endpoint{h: h, id: fmt.Sprintf("%064x", l.made), addr: a}
	body := cluster.Endpoint{
		ID: e.id, Network: sub.Network, Addrs: []netip.Addr{a}, MAC: "02:42:0a:80:00:02", Host: h.id,
		Container: e.id, Name: fmt.Sprintf("container-%d", l.made),
	}
	l.w.must(h.write(func(tx *replica.Tx) error { return tx.Put(body) }))
	l.endpoints = append(l.endpoints, e)
	l.s.wrote("endpoint up", h, body.Key())
}

// number is an address that nothing else made has, of whom no allocator gave it.
func (l *workload) number() netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(128 + l.made>>14), byte(l.made >> 6), byte(l.made << 2)})
}

// down stops a container, any.
func (l *workload) down() {
	if len(l.endpoints) == 0 {
		return
	}
	i := l.rnd.IntN(len(l.endpoints))
	e := l.endpoints[i]
	l.endpoints = slices.Delete(l.endpoints, i, i+1)
	l.stop(e)
}

func (l *workload) stop(e endpoint) {
	if e.h.gone {
		return
	}
	key := cluster.Endpoint{ID: e.id}.Key()
	l.w.must(e.h.write(func(tx *replica.Tx) error { tx.Delete(key); return nil }))
	if !l.w.bare {
		l.w.must(e.h.alloc.Release(e.addr))
	}
	l.s.wrote("endpoint down", e.h, key)
}

// rate is how many containers start per second under churn, and as many end: each host has one
// in ten seconds.
func (l *workload) rate() int { return max(len(l.w.alive())/10, 1) }

// churn returns what has the containers start and end that were due since its last call.
func (l *workload) churn() func() {
	due := time.Now()
	return func() {
		for ; time.Now().After(due); due = due.Add(time.Second / time.Duration(l.rate())) {
			l.up(l.host())
			l.down()
		}
	}
}

// leaver is a host that is to leave, and has no containers any more.
func (l *workload) leaver() *host {
	l.going = l.w.alive()[2]
	l.endpoints = slices.DeleteFunc(l.endpoints, func(e endpoint) bool {
		if e.h == l.going {
			l.stop(e)
		}
		return e.h == l.going
	})
	return l.going
}

// disjoint fails the test if two blocks overlap.
func disjoint(t testing.TB, blocks []netip.Prefix) {
	t.Helper()
	slices.SortFunc(blocks, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	for i := 1; i < len(blocks); i++ {
		if blocks[i].Overlaps(blocks[i-1]) {
			t.Errorf("%s and %s have two owners", blocks[i-1], blocks[i])
		}
	}
}
