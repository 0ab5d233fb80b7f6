package gossip

import (
	"context"
	"sync"
	"time"
)

// tasks are goroutines with one end.
type tasks struct {
	ctx    context.Context
	cancel context.CancelFunc
	mu     *sync.Mutex
	wg     *sync.WaitGroup
}

func newTasks() tasks {
	ctx, cancel := context.WithCancel(context.Background())
	return tasks{ctx, cancel, &sync.Mutex{}, &sync.WaitGroup{}}
}

// spawn runs f until it returns, which it does soon after its context ends. It
// reports false, and does not run f, once the tasks have been cancelled.
func (t tasks) spawn(f func(context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return false
	}
	t.wg.Go(func() { f(t.ctx) })
	return true
}

// wait blocks until all have ended. cancel goes before.
func (t tasks) wait() {
	t.mu.Lock()
	//lint:ignore SA2001 to have had the lock is the point: a spawn that saw no cancellation has added itself
	t.mu.Unlock() //nolint:staticcheck // the same for golangci-lint
	t.wg.Wait()
}

// nodeLock keeps memberlist's UpdateNode, Leave and Shutdown apart: the first two
// must not meet each other, nor come after the third. They wait for packets to be
// sent; a channel and not a mutex, since testing/synctest's clock stands still
// while a goroutine waits for a mutex.
type nodeLock chan struct{}

func (l nodeLock) lock()   { l <- struct{}{} }
func (l nodeLock) unlock() { <-l }

// sleep waits for d, and reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
