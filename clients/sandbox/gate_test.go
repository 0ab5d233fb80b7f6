package sandbox

import (
	"context"
	"errors"
	"testing"
)

// TestGate: before its host may, nobody is let in, and a client that was added hears why; then the Keeper says what it does.
func TestGate(t *testing.T) {
	g := &Gate{Keeper: New(Config{})}
	if err := g.Ensure(t.Context()); !errors.Is(err, errNotReady) {
		t.Errorf("before: %v", err)
	}
	if err := g.Failed("a"); !errors.Is(err, errNotReady) {
		t.Errorf("why it is not let in: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	waited := false
	err := g.Run(ctx, func(context.Context) {
		waited = true
		if err := g.Failed("a"); !errors.Is(err, errNotReady) {
			t.Errorf("while the host waits: %v", err)
		}
	})
	if err != nil || !waited {
		t.Errorf("it ends with %v, and has waited: %v", err, waited)
	}
	if err := g.Failed("a"); err == nil || errors.Is(err, errNotReady) {
		t.Errorf("afterwards: %v", err)
	}
}
