package overlay

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
)

// The switch has new flows when a pass has ended, and its datapath goes on by what was worked out by those before, until that is worked
// out anew. Where flows forbid what others let through that is what must not be: so behind each pass of which flows may, the datapath is
// had go by them, however much it has. No pass waits for it, and whoever is to rely on it does (Overlay.Wait).

// narrowing has the datapath go by the flows.
type narrowing struct {
	settle func(context.Context) error // see ovs.Bridge.Settle
	log    *slog.Logger
	kick   chan struct{}

	mu    sync.Mutex
	asked uint64        // the last pass whose flows may forbid something
	done  uint64        // that of which the datapath is known to go by the flows; asked, or less
	err   error         // why the last attempt failed
	ended chan struct{} // closed and replaced when one ends
}

func newNarrowing(settle func(context.Context) error, log *slog.Logger) *narrowing {
	return &narrowing{settle: settle, log: log, kick: make(chan struct{}, 1), ended: make(chan struct{})}
}

// after notes that the flows of a pass may forbid something. It does not block.
func (n *narrowing) after(pass uint64) {
	n.mu.Lock()
	n.asked = pass
	n.mu.Unlock()
	poke(n.kick)
}

// run does it until ctx is done. What fails is done again.
func (n *narrowing) run(ctx context.Context) {
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.kick:
		}
		n.mu.Lock()
		pass := n.asked
		n.mu.Unlock()
		err := n.settle(ctx)
		if ctx.Err() != nil {
			return
		}
		n.mu.Lock()
		if n.err = err; err == nil {
			n.done = pass
		}
		close(n.ended)
		n.ended = make(chan struct{})
		n.mu.Unlock()
		if err == nil {
			failures = 0
			continue
		}
		// A switch that is down lets nothing new through, and begins anew with nothing worked out.
		if failures++; failures == 1 {
			n.log.Warn("the switch may go on by flows of before for a moment, trying again", "error", err)
		}
		sleep(ctx, retryPause(failures))
		poke(n.kick)
	}
}

// until returns when the datapath goes by the flows of all passes that have ended.
func (n *narrowing) until(ctx context.Context) error {
	n.mu.Lock()
	pass := n.asked
	n.mu.Unlock()
	for {
		n.mu.Lock()
		done, err, ended := n.done, n.err, n.ended
		n.mu.Unlock()
		if done >= pass {
			return nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			if err == nil {
				err = ctx.Err()
			}
			return fmt.Errorf("wait for the switch to go by its flows: %w", err)
		}
	}
}
