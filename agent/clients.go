package agent

import (
	"context"

	"github.com/grapevine-net/grapevine/clients/sandbox"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// newClients makes what lets in the clients that were added at this host; nothing is made on it before there is one.
func (a *Agent) newClients() *sandbox.Gate {
	return &sandbox.Gate{Keeper: sandbox.New(sandbox.Config{
		Self: a.self(), Key: func() ([32]byte, error) { return identity.LoadClients(a.cfg.State) }, Port: a.cfg.ClientPort, Run: a.cfg.Run,
		MTU: a.desks.networkMTU, Source: a.replica, Switch: a.plane.Overlay(), Links: a.plane.Links(), Log: a.log.With("room", "clients"),
	})}
}

// mayServe returns when containers, and clients, may be let into the switch.
func (a *Agent) mayServe(ctx context.Context) {
	a.plane.Guard().Wait(ctx)
	a.member.Quarantine.WaitMoved(ctx)
	a.member.Rejoiner.WaitRejoined(ctx)
}
