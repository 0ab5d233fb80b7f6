package gossip

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Stranger is a place where another gossip key is in use: all that can be known of who has no
// key of ours.
type Stranger struct {
	Addr netip.Addr
	// Since and Last are its first and its last word, or answer, that no key of ours opened.
	Since, Last time.Time
}

// strangerMemory is how long a stranger is one after its last word: longer than the pause
// between two tries of a host that looks for its cluster (rejoinLimit).
const strangerMemory = 30 * time.Second

// strangers are those of late, by address.
type strangers struct {
	mu sync.Mutex
	m  map[netip.Addr]Stranger
}

// heard notes a word of a stranger, and reports whether it is a new one.
func (s *strangers) heard(a netip.Addr, now time.Time) (fresh bool) {
	a = a.Unmap()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[netip.Addr]Stranger{}
	}
	s.expire(now)
	who, known := s.m[a]
	if !known {
		if len(s.m) >= maxProblems {
			return false
		}
		who = Stranger{Addr: a, Since: now}
	}
	who.Last = now
	s.m[a] = who
	return !known
}

// known forgets a place from which, or at which, a key of ours has been in use since.
func (s *strangers) known(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, a.Unmap())
}

func (s *strangers) expire(now time.Time) {
	for a, who := range s.m {
		if now.Sub(who.Last) > strangerMemory {
			delete(s.m, a)
		}
	}
}

// list returns them by address. Who has spoken in one moment only is left out: it may be one
// packet that was on its way while keys were changed.
func (s *strangers) list(now time.Time) (list []Stranger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	for _, who := range s.m {
		if who.Last.Sub(who.Since) >= strangerInsists {
			list = append(list, who)
		}
	}
	slices.SortFunc(list, func(a, b Stranger) int { return a.Addr.Compare(b.Addr) })
	return list
}

// strangerInsists is how long somebody has to speak to be one.
const strangerInsists = time.Second
