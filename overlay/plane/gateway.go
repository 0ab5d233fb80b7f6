package plane

import (
	"context"
	"errors"

	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/guard"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// natGateway is the gateway port together with the masquerading of what leaves
// through it, and the way to the resolver.
type natGateway struct {
	*gateway.Gateway
	guard  *guard.Guard
	nat    *nat.NAT
	names  Names
	source Source
}

// Ensure implements overlay.Gateway. The rules of what may pass come before anything can:
// without them gv0 stays down.
func (g natGateway) Ensure(ctx context.Context, cfg gateway.Config) error {
	if err := g.guard.Set(); err != nil && !g.guard.InPlace() {
		return errors.Join(err, g.Shut())
	}
	err := g.nat.Set(ctx, nat.Config{
		Interface: gateway.Port, CIDRs: cfg.CIDRs, Gateways: cfg.Addrs, Hosts: pipeline.HostRanges, Internal: g.source.Snapshot().InternalSubnets(), Rules: g.names.Rules,
	})
	g.names.Hear(ctx) // before anybody can ask there
	return errors.Join(g.Gateway.Ensure(ctx, cfg), err)
}
