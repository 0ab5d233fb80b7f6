package plane

import (
	"context"
	"errors"
	"time"

	"github.com/grapevine-net/grapevine/host/bypass"
	"github.com/grapevine-net/grapevine/overlay/fastpath"
)

// Modes auto and look of the fast path: packets between hosts are direct while nothing on this host would do more to them than let
// them pass.

var errNotLooking = errors.New("the agent does not look at this host's rules")

// judge says why packets between hosts are not to be direct; nil: they may be.
func (f *fastPath) judge(t bypass.Traffic) error {
	if l := f.lookout.Load(); l != nil {
		return l.Judge(t)
	}
	return errNotLooking
}

// ports are those of a bridge by which packets between hosts leave, as judge has found them.
func (f *fastPath) ports() bypass.Ports {
	if l := f.lookout.Load(); l != nil {
		return l.Ports()
	}
	return bypass.Ports{}
}

// look begins to hear of changes of the host's rules; f.mu is held. While it does not, nothing is direct.
func (f *fastPath) look() {
	ctx, cancel := context.WithCancel(context.Background())
	l := bypass.NewLookout(fastpath.AtNIC, bypass.Tell{Withdraw: f.withdraw, Again: func() { go f.lookAgain(ctx) }, Renew: f.path.Renew}, func(err error) {
		f.log.Warn("packets between hosts take the VXLAN device: the agent does not hear of changes of this host's rules, and tries again", "err", err)
	})
	ended := make(chan struct{})
	f.lookout.Store(l)
	f.stop = func() { cancel(); <-ended }
	go func() {
		defer close(ended)
		l.Run(ctx)
	}()
}

// unwatch ends what look began; f.mu is held.
func (f *fastPath) unwatch() {
	f.lookout.Store(nil)
	if f.stop != nil {
		f.stop()
		f.stop = nil
	}
}

// close lets go of what runs; what is attached carries on.
func (f *fastPath) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unwatch()
	return f.path.Close()
}

// looked waits until it is known what the host's rules say, where that is asked.
func (f *fastPath) looked(ctx context.Context) {
	const most = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for errors.Is(f.path.Direct(), bypass.ErrLooking) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// withdraw takes packets between hosts back to the VXLAN device, at once.
func (f *fastPath) withdraw() {
	if err := f.path.Withdraw(); err != nil {
		f.log.Warn("packets between hosts could not be taken back to the VXLAN device as usual", "err", err)
	}
}

// lookAgain makes a pass, which asks judge.
func (f *fastPath) lookAgain(ctx context.Context) {
	if err := f.pass(ctx); err != nil && ctx.Err() == nil {
		f.log.Debug("look whether packets between hosts may be direct", "err", err)
	}
}
