package agent

import (
	"context"
	"errors"
	"net/netip"

	"github.com/grapevine-net/grapevine/internal/nat"
	"github.com/grapevine-net/grapevine/overlay/gateway"
)

// natGateway is the gateway port together with the masquerading of what leaves
// through it, and the way to the resolver.
type natGateway struct {
	*gateway.Gateway
	nat      *nat.NAT
	rules    []nat.Rule            // besides: the way to the resolver
	internal func() []netip.Prefix // subnets of internal networks
}

// Ensure implements overlay.Gateway.
func (g natGateway) Ensure(ctx context.Context, addrs, routes []netip.Prefix) error {
	return errors.Join(
		g.Gateway.Ensure(ctx, addrs, routes),
		g.nat.Set(ctx, nat.Config{
			Interface: gateway.Port, CIDRs: routes, Gateways: addrs, Internal: g.internal(), Rules: g.rules,
		}))
}
