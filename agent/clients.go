package agent

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/clients/edit"
	"github.com/grapevine-net/grapevine/clients/sandbox"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// clientele is what lets in the clients that were added at this host.
type clientele struct {
	*sandbox.Keeper
	agent *Agent
	ready atomic.Bool // see run
}

// newClientele makes it; nothing is made on the host before there is a client.
func newClientele(a *Agent) *clientele {
	c := &clientele{agent: a}
	c.Keeper = sandbox.New(sandbox.Config{
		Self: a.self(), Key: func() ([32]byte, error) { return identity.LoadClients(a.cfg.State) }, Port: a.cfg.ClientPort, Run: a.cfg.Run,
		MTU: c.networkMTU, Source: a.replica, Switch: a.plane.Overlay(), Links: a.plane.Links(), Log: a.log.With("room", "clients"),
	})
	return c
}

// networkMTU is the MTU of a network's containers.
func (c *clientele) networkMTU(network string) int {
	return c.agent.replica.Snapshot().NetworkMTU(network, c.agent.wire().MTU)
}

// Ensure is the Keeper's, once this host may let anybody in: of a copied state nobody is.
func (c *clientele) Ensure(ctx context.Context) error {
	if !c.ready.Load() {
		return errNotReady
	}
	return c.Keeper.Ensure(ctx)
}

var errNotReady = errors.New("this host lets no clients in yet: `grapevine status` says what it waits for")

// Failed is the Keeper's.
func (c *clientele) Failed(endpointID string) error {
	if !c.ready.Load() {
		return errNotReady
	}
	return c.Keeper.Failed(endpointID)
}

// desk is what people do with clients here.
func (c *clientele) desk() edit.Desk {
	a := c.agent
	return edit.Desk{
		Self: a.self(), Replica: a.replica, Addresses: a.alloc, Door: c, MTU: c.networkMTU, At: netip.AddrPortFrom(a.underlay.Addr.Unmap().WithZone(""), a.cfg.ClientPort),
	}
}

// run lets clients in when the switch can have them.
func (c *clientele) run(ctx context.Context) error {
	c.agent.plane.Guard().Wait(ctx)
	c.agent.member.Quarantine.WaitMoved(ctx)
	c.agent.member.Rejoiner.WaitRejoined(ctx)
	c.ready.Store(true)
	if err := c.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (c *clientele) problems(l look) []api.Problem { return c.Problems(l.snap) }
