package sandbox

import (
	"context"
	"errors"
	"sync/atomic"
)

// Gate is a Keeper that lets nobody in before its host may: of a copied state nobody is.
type Gate struct {
	*Keeper
	open atomic.Bool // see Run
}

var errNotReady = errors.New("this host lets no clients in yet: `grapevine status` says what it waits for")

// Ensure is the Keeper's.
func (g *Gate) Ensure(ctx context.Context) error {
	if !g.open.Load() {
		return errNotReady
	}
	return g.Keeper.Ensure(ctx)
}

// Failed is the Keeper's.
func (g *Gate) Failed(endpointID string) error {
	if !g.open.Load() {
		return errNotReady
	}
	return g.Keeper.Failed(endpointID)
}

// Run lets clients in once wait has returned.
func (g *Gate) Run(ctx context.Context, wait func(context.Context)) error {
	wait(ctx)
	g.open.Store(true)
	if err := g.Keeper.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
