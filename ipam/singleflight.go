package ipam

import (
	"context"
	"sync"
	"time"
)

// singleflight lets one request at a time ask peers for the same thing. The zero
// value is ready.
type singleflight struct {
	mu  sync.Mutex
	out map[string]chan struct{} // closed when the one under way is over
}

// do runs f, unless another call with the key is under way: then it waits for
// that one first, and skips f if enough says that it brought what is needed.
func (f *singleflight) do(ctx context.Context, key string, enough func() bool, run func() error) error {
	for {
		done, mine := f.start(key)
		if mine {
			break
		}
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if enough() {
			return nil
		}
	}
	defer f.end(key)
	if enough() {
		return nil // it came while we waited for our turn
	}
	return run()
}

func (f *singleflight) start(key string) (done chan struct{}, mine bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if done, ok := f.out[key]; ok {
		return done, false
	}
	if f.out == nil {
		f.out = map[string]chan struct{}{}
	}
	f.out[key] = make(chan struct{})
	return nil, true
}

func (f *singleflight) end(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.out[key])
	delete(f.out, key)
}

// backoff remembers when something that failed may be tried again. It belongs to
// one goroutine. The zero value is ready.
type backoff struct {
	until map[string]time.Time
	delay map[string]time.Duration
}

// The first and the longest delay.
const (
	minBackoff = time.Second
	maxBackoff = time.Minute
)

func (b *backoff) ready(key string, now time.Time) bool { return !now.Before(b.until[key]) }

func (b *backoff) failed(key string, now time.Time) {
	if b.until == nil {
		b.until, b.delay = map[string]time.Time{}, map[string]time.Duration{}
	}
	b.delay[key] = min(max(2*b.delay[key], minBackoff), maxBackoff)
	b.until[key] = now.Add(b.delay[key])
}

func (b *backoff) worked(key string) {
	delete(b.until, key)
	delete(b.delay, key)
}

// forget drops what has not been tried for long: most of it is about networks that are gone.
func (b *backoff) forget(now time.Time) {
	for key, until := range b.until {
		if now.Sub(until) > 10*maxBackoff {
			b.worked(key)
		}
	}
}
