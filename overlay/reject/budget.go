package reject

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

// How much is answered, and read. One sender that floods costs neither the host nor, much, others their answers.
const (
	perSender = 100  // answers a second to a sender, and as many at once
	perHost   = 1000 // of this host
	reads     = 500  // rejected packets a second are looked at in a lane; the kernel drops what there is no room for
)

// budget says what may be answered. Senders share some: the hash is another one in each agent.
type budget struct {
	mu      sync.Mutex
	seed    maphash.Seed
	senders [256]bucket
	host    bucket
}

func newBudget() *budget { return &budget{seed: maphash.MakeSeed()} }

// answers reports whether a sender may have an answer.
func (b *budget) answers(to netip.Addr, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	sender := &b.senders[maphash.Comparable(b.seed, to)%uint64(len(b.senders))]
	return sender.take(perSender, now) && b.host.take(perHost, now)
}

// bucket has as many tokens as come in a second, at most.
type bucket struct {
	used float64
	at   time.Time
}

func (b *bucket) take(rate float64, now time.Time) bool {
	if since := now.Sub(b.at).Seconds(); since > 0 {
		b.used, b.at = max(0, b.used-since*rate), now
	}
	if b.used+1 > rate {
		return false
	}
	b.used++
	return true
}
