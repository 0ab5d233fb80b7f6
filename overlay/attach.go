package overlay

import (
	"context"
	"errors"
	"fmt"

	"github.com/grapevine-net/grapevine/host/link"
)

// Attach makes the endpoint's interface a port of the bridge and returns when its
// flows are in place. The endpoint's record must be written and the interface must
// be there, and up. It blocks while the switch is down, until ctx is done; of one that runs and
// does not answer for ten seconds and more the error is a HangError.
func (o *Overlay) Attach(ctx context.Context, endpointID, ifname string) error {
	if ifname != link.PortName(endpointID) {
		return fmt.Errorf("attach endpoint %s: its interface is named %s, not %s", endpointID, ifname, link.PortName(endpointID))
	}
	return o.change(ctx, endpointID, false, func(r result) error {
		if r.attached[endpointID] {
			return nil
		}
		if err := r.problems[endpointID]; err != nil {
			return fmt.Errorf("attach endpoint %s: %w", endpointID, err)
		}
		return fmt.Errorf("attach endpoint %s: it has no record", endpointID)
	})
}

// Detach takes the endpoint's port out of the bridge, with its flows, and keeps it
// out until Attach. An endpoint that is not attached is no error. While the switch hangs it does not wait.
func (o *Overlay) Detach(ctx context.Context, endpointID string) error {
	return o.change(ctx, endpointID, true, func(r result) error {
		if r.attached[endpointID] {
			return fmt.Errorf("detach endpoint %s: it is attached again", endpointID)
		}
		return nil
	})
}

// change asks for a pass that knows about the endpoint, and judges its result.
func (o *Overlay) change(ctx context.Context, endpointID string, detached bool, judge func(result) error) error {
	o.mu.Lock()
	if detached {
		o.detached[endpointID] = true
	} else {
		delete(o.detached, endpointID)
	}
	after := o.started
	o.mu.Unlock()
	poke(o.kick)
	if hang := o.hanging(); detached && hang != nil {
		return hang // the switch loses the port as soon as it answers
	}
	r, err := o.unlessItHangs(ctx, func(r result) bool { return r.pass > after && r.err == nil })
	if err != nil {
		return err
	}
	return judge(r)
}

// Wait returns when the flows of a snapshot with that Rev, or a later one, are in
// place, and the switch goes by them alone: nothing passes by what it had worked out before.
func (o *Overlay) Wait(ctx context.Context, rev uint64) error {
	if _, err := o.until(ctx, func(r result) bool { return r.pass > 0 && r.rev >= rev }); err != nil {
		return err
	}
	return o.narrow.until(ctx)
}

// Pass returns when a pass that began after the call has put the flows in place.
func (o *Overlay) Pass(ctx context.Context) error {
	o.mu.Lock()
	after := o.started
	o.mu.Unlock()
	poke(o.kick)
	_, err := o.until(ctx, func(r result) bool { return r.pass > after && r.err == nil })
	return err
}

// until waits for a pass whose result will do. If ctx is done first, the error
// says what was in the way.
func (o *Overlay) until(ctx context.Context, will func(result) bool) (result, error) {
	for {
		o.mu.Lock()
		r, ended := o.last, o.ended
		o.mu.Unlock()
		if will(r) {
			return r, nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			if r.err != nil {
				return r, fmt.Errorf("wait for the switch: %w: %w", ctx.Err(), r.err)
			}
			return r, fmt.Errorf("wait for the switch: %w", ctx.Err())
		}
	}
}

// pass runs the reconciler once and tells who waits. The error may be of something
// that does not concern them (the gateway): it only says to try again.
func (o *Overlay) pass(ctx context.Context, r *reconciler, why reason) error {
	o.mu.Lock()
	o.started++
	number := o.started
	o.mu.Unlock()
	r.caughtUp()
	snap := o.src.Snapshot()
	res, err := r.reconcile(ctx, snap, why, o.isDetached(snap))
	res.pass, res.placed = number, number
	if r.narrowed {
		r.narrowed = false
		o.narrow.after(number)
	}
	if res.err != nil {
		res.rev, res.attached, res.input, res.placed = o.last.rev, o.last.attached, o.last.input, o.last.placed // only this goroutine writes last
	}
	o.mu.Lock()
	o.last = res
	if res.err == nil {
		o.hang = nil
	}
	close(o.ended)
	o.ended = make(chan struct{})
	o.mu.Unlock()
	return errors.Join(res.err, err)
}
