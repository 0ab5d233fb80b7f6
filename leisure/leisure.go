// Package leisure has a process that has little to do use one processor at a time. Go's scheduler wakes a thread for each goroutine
// that becomes ready while another one runs, and several to look for more; where nothing takes long these cost more than they save:
// of what an agent at rest takes of the processor it was a third. Who waits for an answer gets all processors at once.
package leisure

import (
	"context"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/pulse"
)

const (
	look  = time.Second
	much  = look / 20        // of a processor, from one look to the next: the process is at work
	quiet = 10 * time.Second // without work, or anybody who waits
)

// at is the one of this process.
var at = leisure{all: runtime.SetDefaultGOMAXPROCS, one: func() { runtime.GOMAXPROCS(1) }}

// Run follows how much the process has to do until ctx ends. It does nothing where somebody has said how many processors are to be used.
func Run(ctx context.Context) error {
	if os.Getenv("GOMAXPROCS") != "" {
		return nil
	}
	defer at.end()
	at.begin(time.Now())
	for spent := used(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-pulse.After(look):
		}
		now := used()
		at.look(time.Now(), now-spent)
		spent = now
	}
}

// Busy says that somebody waits for an answer. It does not block.
func Busy() { at.busy(time.Now()) }

// used is the processor time that this process has had.
func used() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // never fails
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// epoch is any moment before.
var epoch = time.Now()

// leisure is which of both a process has.
type leisure struct {
	all, one func() // processors

	runs  atomic.Bool // somebody looks
	rests atomic.Bool
	last  atomic.Int64 // that it was busy: how long after epoch, whatever the clock is set to meanwhile
	mu    sync.Mutex   // of who calls all or one
}

// since is for how long it was not busy.
func (l *leisure) since(now time.Time) time.Duration {
	return now.Sub(epoch) - time.Duration(l.last.Load())
}

func (l *leisure) begin(now time.Time) {
	l.last.Store(int64(now.Sub(epoch)))
	l.runs.Store(true)
}

func (l *leisure) end() {
	l.runs.Store(false)
	l.set(false)
}

func (l *leisure) busy(now time.Time) {
	l.last.Store(int64(now.Sub(epoch)))
	if l.runs.Load() && l.rests.Load() {
		go l.set(false) // it may wait for the garbage collector
	}
}

// look takes what the process has used of a processor since the last look.
func (l *leisure) look(now time.Time, spent time.Duration) {
	if spent > much {
		l.busy(now)
	} else if l.since(now) >= quiet {
		l.set(true)
	}
}

func (l *leisure) set(rest bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Who became busy while this one waited is not to be put to rest.
	if rest && l.since(time.Now()) < quiet/2 || rest == l.rests.Load() {
		return
	}
	l.rests.Store(rest)
	if rest {
		l.one()
	} else {
		l.all()
	}
	// Who became busy just before did not see that it rests.
	if rest && l.since(time.Now()) < quiet/2 {
		l.rests.Store(false)
		l.all()
	}
}
