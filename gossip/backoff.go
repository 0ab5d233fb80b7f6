package gossip

import (
	"math/rand/v2"
	"time"
)

// backoff says when something that failed may be tried again: after first,
// twice that, and so on up to a limit, each with up to a quarter of jitter. The
// zero value is due at once.
type backoff struct {
	wait time.Duration
	next time.Time
}

func (b *backoff) due(now time.Time) bool { return !now.Before(b.next) }

func (b *backoff) reset() { *b = backoff{} }

func (b *backoff) failed(now time.Time, first, limit time.Duration) {
	b.wait = min(max(b.wait*2, first), limit)
	b.next = now.Add(jitter(b.wait))
}

// jitter takes up to a quarter off d, so that hosts do not act in step.
func jitter(d time.Duration) time.Duration {
	if d < 4 {
		return d
	}
	return d - time.Duration(rand.Int64N(int64(d)/4))
}

func shuffle[T any](s []T) {
	rand.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}
