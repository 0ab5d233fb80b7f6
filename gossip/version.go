package gossip

import (
	"fmt"
	"sync"
	"time"
)

// versions is a range of protocol versions, both ends included.
type versions struct{ min, max uint8 }

func (v versions) meet(o versions) bool { return v.min <= o.max && o.min <= v.max }

func (v versions) String() string { return fmt.Sprintf("%d to %d", v.min, v.max) }

// census counts the members that answer by the newest version that they speak.
type census map[uint8]int

func (c census) add(newest uint8, n int) {
	if c[newest] += n; c[newest] == 0 {
		delete(c, newest)
	}
}

// spoken is which versions the members speak that answer.
type spoken struct {
	max uint8 // the newest of this host

	mu     sync.Mutex
	newest census // of the members that answer
	gone   gone
}

// change takes a member from what it was to what it is; 0: it does not answer.
func (s *spoken) change(was, is uint8, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was != 0 {
		s.newest.add(was, -1)
	}
	if is != 0 {
		s.newest.add(is, 1)
	} else if was != 0 && was < s.max {
		s.gone.add(was, now)
	}
}

// writes is the version that this host writes to members: the newest that it and all of them that
// answer speak. Who sends asks for it when he has chosen to whom: an older host may come at any
// moment. What was on its way to a host that was replaced by an older one may have another;
// anti-entropy mends that.
//
// Who was not met yet may be of any version. He gets nothing but push/pulls (LocalState) and requests
// for a proof (prove), in the oldest form, and answers in the form of his question.
func (s *spoken) writes() uint8 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written()
}

// written is writes with mu held.
func (s *spoken) written() uint8 {
	v := s.max
	for newest := range s.newest {
		v = min(v, newest)
	}
	return v
}

// spreads is the version that this host writes to all: memberlist tells what is new also those who
// have just ceased to answer.
func (s *spoken) spreads() uint8 {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.written()
	if time.Since(s.gone.last) < goneMemory {
		v = min(v, s.gone.newest)
	}
	return v
}

// gone is the oldest of the hosts that have ceased to answer of late.
type gone struct {
	newest uint8 // version that it speaks
	last   time.Time
}

// goneMemory is longer than memberlist tells the dead what is new (GossipToTheDeadTime: 30 s).
const goneMemory = 35 * time.Second

func (o *gone) add(newest uint8, now time.Time) {
	if now.Sub(o.last) >= goneMemory || newest < o.newest {
		o.newest = newest
	}
	o.last = now
}
