package gossip

import (
	"net/netip"
	"sync"
	"time"
)

// Whoever opens a stream is a guest until what he has sent shows that he has the key. AES-GCM
// tells so at the end of a message only, so a guest may make this host keep what he sends. How
// much that is depends on where he comes from: one who sends from where a host of the cluster
// is, or from where somebody has shown the key, may send all that travels between hosts, and a
// stranger what a host needs to say to join.
type class int

const (
	stranger class = iota
	known
)

// allowance bounds the guests of a class, all together and one by one.
type allowance struct {
	guests int           // at once
	bytes  int           // kept of all of them
	frame  int           // of one message
	time   time.Duration // from the opening of a stream to the message's last byte
	head   time.Duration // ... to its length
}

var allowances = [...]allowance{
	// A host that joins says of itself what fits a packet, and one with thousands of hosts
	// behind it a few hundred KiB.
	stranger: {guests: 128, bytes: 8 << 20, frame: 1 << 20, time: 5 * time.Second, head: 2 * time.Second},
	known:    {guests: 512, bytes: 64 << 20, frame: maxFrame, time: streamTimeout, head: streamTimeout},
}

// maxFrame is the largest message that memberlist takes, bytes.
const maxFrame = 20 << 20

// guest is one stream whose sender has not shown the key. Its fields are guests'.
type guest struct {
	class  class
	source netip.Addr // an IPv6 network counts as one: see sourceOf
	held   int        // bytes
	number uint64     // of the stream: the lower, the older
	gone   bool       // it does not count any more
	left   bool       // and keeps nothing
	evict  func()     // ends the stream; it must not block, nor call guests
}

// guests keeps the guests within what is allowed. Where there are too many, the one goes who
// has most: a source with one stream never gives way to one with two, so a flood from few
// places keeps nobody out but itself.
type guests struct {
	mu     sync.Mutex
	number uint64
	all    map[*guest]struct{}
	count  [len(allowances)]int
	bytes  [len(allowances)]int
	ghosts [len(allowances)]int // bytes of those who had to go, until they have gone
}

func newGuests() *guests { return &guests{all: map[*guest]struct{}{}} }

// enter takes a guest in, and reports whether another one, or itself, had to go for it.
func (s *guests) enter(g *guest) (crowded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	g.number = s.number
	s.all[g] = struct{}{}
	s.count[g.class]++
	if s.count[g.class] <= allowances[g.class].guests {
		return false
	}
	s.out(s.most(g.class, func(*guest) int { return 1 }))
	return true
}

// grow lets a guest keep n bytes more, or reports false: then it is out. Room is made by others
// that go, but for no more than is allowed to be kept, before they have gone.
func (s *guests) grow(g *guest, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.gone || s.ghosts[g.class] > allowances[g.class].bytes {
		return false
	}
	g.held += n
	s.bytes[g.class] += n
	for s.bytes[g.class] > allowances[g.class].bytes {
		s.out(s.most(g.class, func(g *guest) int { return g.held }))
	}
	return !g.gone
}

// leave ends a guest's stay. To leave again is no error.
func (s *guests) leave(g *guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.gone && !g.left {
		s.ghosts[g.class] -= g.held
	}
	s.remove(g)
	g.left = true
}

func (s *guests) remove(g *guest) {
	if g.gone {
		return
	}
	g.gone = true
	delete(s.all, g)
	s.count[g.class]--
	s.bytes[g.class] -= g.held
}

func (s *guests) out(g *guest) {
	s.remove(g)
	s.ghosts[g.class] += g.held
	g.evict()
}

// most finds, among the guests of the source that weighs most, the one that weighs most; of
// equal ones the oldest.
func (s *guests) most(c class, weight func(*guest) int) (worst *guest) {
	sum := map[netip.Addr]int{}
	for g := range s.all {
		if g.class == c {
			sum[g.source] += weight(g)
		}
	}
	for g := range s.all {
		if g.class != c {
			continue
		}
		if worst == nil || heavier(g, worst, sum, weight) {
			worst = g
		}
	}
	return worst
}

func heavier(a, b *guest, sum map[netip.Addr]int, weight func(*guest) int) bool {
	switch {
	case sum[a.source] != sum[b.source]:
		return sum[a.source] > sum[b.source]
	case weight(a) != weight(b):
		return weight(a) > weight(b)
	}
	return a.number < b.number
}

// sourceOf is who counts as one: an IPv4 address, or the 64 bits of IPv6 that one machine
// chooses its addresses from.
func sourceOf(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a
	}
	p, err := a.Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}
