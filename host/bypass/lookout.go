package bypass

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Lookout is a Watch, and another one when that has ended: until then nothing passes the host by.
type Lookout struct {
	ours string
	tell Tell
	deaf func(error)
	now  atomic.Pointer[Watch]
	why  atomic.Pointer[error] // nil: it has just begun
}

// Between two attempts to hear of changes again.
const (
	firstPause = 500 * time.Millisecond
	mostPause  = 30 * time.Second
)

// NewLookout returns one that hears of changes while it runs. deaf is told why it does not, for a while, and once of a reason.
func NewLookout(ours string, tell Tell, deaf func(error)) *Lookout {
	return &Lookout{ours: ours, tell: tell, deaf: deaf}
}

// Judge is Watch.Judge.
func (l *Lookout) Judge(t Traffic) error {
	if w := l.now.Load(); w != nil {
		return w.Judge(t)
	}
	if why := l.why.Load(); why != nil {
		return fmt.Errorf("%w: %w", errNotWatching, *why)
	}
	return ErrLooking
}

// Ports is Watch.Ports.
func (l *Lookout) Ports() Ports {
	if w := l.now.Load(); w != nil {
		return w.Ports()
	}
	return Ports{}
}

// Run hears of changes until ctx is done. It is called in the namespace that is judged, on a thread that stays there.
func (l *Lookout) Run(ctx context.Context) {
	pause, said := firstPause, ""
	for ctx.Err() == nil {
		began := time.Now()
		err := l.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		l.why.Store(&err)
		if text := fmt.Sprint(err); text != said { // a kernel without these sockets will not have them in half a minute
			l.deaf(err)
			said = text
		}
		l.tell.Again() // whoever asks hears why
		if time.Since(began) > mostPause {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, mostPause)
	}
}

// watch is one Watch from its beginning to its end.
func (l *Lookout) watch(ctx context.Context) error {
	w, err := Open(l.ours, l.tell)
	if err != nil {
		return err
	}
	defer w.Close()
	l.now.Store(w)
	defer l.now.Store(nil)
	return w.Run(ctx)
}
