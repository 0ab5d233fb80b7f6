package ipam

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/grapevine-net/grapevine/cluster"
)

// A service's record is what holds its addresses, and needs no lease beside it: the owner of an address hands out
// none that a service has, and whoever inherits the address has heard the record as well. Only until the record is
// written there is a lease, without an endpoint: what the agent leaves behind when it ends at that moment is collected.

// ServiceAddresses leases an address of each of the subnets for a service, and calls write, which writes its record.
// They are durable on return, or free again.
func (a *Allocator) ServiceAddresses(ctx context.Context, subnets []netip.Prefix, write func([]netip.Addr) error) error {
	var addrs []netip.Addr
	defer func() {
		for _, addr := range addrs {
			if err := a.Release(addr); err != nil {
				a.core.cfg.Log.Warn("an address that was leased for a service is free later", "address", addr, "err", err)
			}
		}
	}()
	for _, s := range subnets {
		addr, err := a.Address(ctx, s, netip.Prefix{}, netip.Addr{})
		if err != nil {
			return err
		}
		addrs = append(addrs, addr)
	}
	return write(addrs)
}

// ofService is an error if a service has the address.
func ofService(snap *cluster.Snapshot, addr netip.Addr) error {
	s, ok := snap.ServiceAt(addr)
	if !ok {
		return nil
	}
	return fmt.Errorf("address %s: %w by service %s of network %s; give another one, or remove that one: grapevine service remove %s/%s",
		addr, ErrInUse, s.Name, s.Network, s.Network, s.Name)
}

// ofServices are the addresses in p that services have.
func ofServices(snap *cluster.Snapshot, p netip.Prefix) (out []netip.Prefix) {
	for s := range cluster.All[cluster.Service](snap) {
		for _, addr := range s.Addrs {
			if p.Contains(addr) {
				out = append(out, single(addr))
			}
		}
	}
	return out
}
