package gossip

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// clone is a host that is said to be at another address than where it is known to be: there
// are two of it, or it has moved, or the word is an old one.
type clone struct {
	id nodeID
	at netip.AddrPort
}

const (
	clonePause = 3 * time.Second // between two looks at the same one
	maxClones  = 16              // of one ID that are remembered, for cloneMemory
)

// clones finds out which hosts there are twice.
type clones struct {
	*core
	prover   *prover
	refusals *refusals

	mu    sync.Mutex
	looks map[clone]time.Time // when a look at each ended; the zero time: it goes on
	own   netip.AddrPort      // who else has our ID
	met   time.Time           // when it was last
}

// clone is Gossip.Clone.
func (s *clones) clone() (at netip.AddrPort, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own, !s.met.IsZero() && time.Since(s.met) < cloneMemory
}

// begin reports whether it is time to look at a clone, and whether that is news, and notes it.
func (s *clones) begin(t clone, now time.Time) (first, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended, known := s.looks[t]
	if known && (ended.IsZero() || now.Sub(ended) < clonePause) {
		return false, false
	}
	var same []clone
	for o, ended := range s.looks {
		if !ended.IsZero() && now.Sub(ended) > cloneMemory {
			delete(s.looks, o)
		} else if o.id == t.id {
			same = append(same, o)
		}
	}
	if !known && len(same) >= maxClones {
		i := slices.IndexFunc(same, func(o clone) bool { return !s.looks[o].IsZero() })
		if i < 0 {
			return false, false
		}
		delete(s.looks, same[i])
	}
	s.looks[t] = time.Time{}
	return !known, true
}

func (s *clones) end(t clone, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks[t] = now
}

// looking reports whether a look at one with an ID goes on.
func (s *clones) looking(id nodeID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t, ended := range s.looks {
		if t.id == id && ended.IsZero() {
			return true
		}
	}
	return false
}

// suspect looks in the background whether a host that is known to be at one address is at
// another one as well. It does not block.
func (s *clones) suspect(known netip.AddrPort, t clone) {
	if !t.at.IsValid() || t.at == known {
		return
	}
	first, ok := s.begin(t, time.Now())
	if !ok {
		return
	}
	if !s.work.spawn(func(ctx context.Context) {
		defer func() { s.end(t, time.Now()) }()
		s.look(ctx, known, t, first)
	}) {
		s.end(t, time.Now())
	}
}

// look finds out which it is: two hosts are two runs of one ID that both prove to have its
// key. This host itself is one of its own.
func (s *clones) look(ctx context.Context, known netip.AddrPort, t clone, first bool) {
	run, there := s.prover.whoIs(ctx, t.id, t.at, proofPatience)
	if !there {
		s.stats.add(RefusedReplay, 1)
		if first {
			s.log.Info("a host is said to be at another address, where it is not: an old word", "host", t.id, "addr", known, "not", t.at)
		}
		return
	}
	other := s.prover.run
	if t.id != s.self {
		if other, there = s.prover.whoIs(ctx, t.id, known, proofPatience); !there {
			return // it has moved
		}
	}
	if run == other {
		return // one host with two addresses
	}
	if t.id == s.self {
		s.mu.Lock()
		s.own, s.met = t.at, time.Now()
		s.mu.Unlock()
	}
	id := t.id.String()
	_ = s.refusals.refuse(RefusedClone, "conflict "+id+" "+t.at.String(), cloneError(id, known, t.at))
}
