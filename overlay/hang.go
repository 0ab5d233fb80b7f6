package overlay

import (
	"context"
	"errors"
	"time"
)

// hangPatience is how long an attachment waits for a pass before the switch is asked whether it answers at all. Who
// begins anew, at a boot or after a crash, comes back in less, or says so; who hangs lets Docker wait for a minute,
// and nobody else change the network meanwhile.
const hangPatience = 10 * time.Second

// HangError says that the switch runs and does not answer, and what to do.
type HangError struct{ error }

// Unwrap returns what was said.
func (e HangError) Unwrap() error { return e.error }

// unlessItHangs is until, but gives up with a HangError when the switch does not answer. While it is known to
// hang that takes no longer than to ask it.
func (o *Overlay) unlessItHangs(ctx context.Context, will func(result) bool) (result, error) {
	if o.cfg.Answers == nil {
		return o.until(ctx, will)
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	asking := make(chan struct{})
	go func() {
		defer close(asking)
		patience := hangPatience
		if o.hanging() != nil {
			patience = 0
		}
		for {
			sleep(ctx, patience)
			err := o.cfg.Answers(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				hang := HangError{err}
				o.mu.Lock()
				o.hang = hang
				o.mu.Unlock()
				giveUp(hang)
				return
			}
			patience = hangPatience
		}
	}()
	r, err := o.until(ctx, will)
	if hang := (HangError{}); err != nil && errors.As(context.Cause(ctx), &hang) {
		err = hang
	}
	giveUp(nil)
	<-asking
	return r, err
}

// hanging is what is known of a switch that hangs; nil: nothing. A pass that succeeds ends it.
func (o *Overlay) hanging() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.hang
}
