package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ring"
)

// leases hands out addresses.
type leases struct {
	core  *core
	asker *asker
}

// errShort says that the host's own share has nothing (more) for a request.
var errShort = errors.New("nothing free in this host's share")

// maxAsks bounds how often one request asks peers for more: each success brings
// at least one free number, which a concurrent request may have taken meanwhile.
const maxAsks = 4

// address is Allocator.Address.
func (a *leases) address(ctx context.Context, subnet, limit netip.Prefix, want netip.Addr) (netip.Addr, error) {
	sub, ok := a.core.subnet(subnet)
	if !ok {
		return netip.Addr{}, fmt.Errorf("address in %s: %w; remove the network and create it again", subnet, ErrNoSubnet)
	}
	if want.IsValid() {
		if err := checkExact(sub, want); err != nil {
			return netip.Addr{}, err
		}
	}
	if !limit.IsValid() {
		limit = sub.Prefix
	}
	for try := 0; ; try++ {
		addr, err := a.lease(sub, limit, want)
		if !errors.Is(err, errShort) {
			return addr, err
		}
		if try == maxAsks {
			return netip.Addr{}, fmt.Errorf("address in %s: %w after asking %d times: others took what came; try again", subnet, ErrNoSpace, try)
		}
		if err := a.asker.more(ctx, sub, limit, want); err != nil {
			return netip.Addr{}, fmt.Errorf("address in %s: %w", subnet, err)
		}
	}
}

// checkExact says whether an endpoint could have that very address.
func checkExact(s cluster.Subnet, want netip.Addr) error {
	switch {
	case !s.Prefix.Contains(want):
		return fmt.Errorf("address %s is not in the subnet %s; give one inside it", want, s.Prefix)
	case want == s.Gateway:
		return fmt.Errorf("address %s is the gateway of %s; give another one", want, s.Prefix)
	case want == first(s.Prefix):
		return fmt.Errorf("address %s is the network's own in %s; give another one", want, s.Prefix)
	case want.Is4() && want == last(s.Prefix):
		return fmt.Errorf("address %s is the broadcast address of %s; give another one", want, s.Prefix)
	}
	return nil
}

// lease takes an address out of this host's own share, or returns errShort.
func (a *leases) lease(sub cluster.Subnet, limit netip.Prefix, want netip.Addr) (netip.Addr, error) {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if want.IsValid() && isAux(sub, want) {
		return want, nil
	}
	if _, ok := a.core.state.leases[want]; ok && want.IsValid() && !a.core.arrested.Load() {
		return want, nil // a replay
	}
	if err := a.core.mayHandOut(); err != nil {
		return netip.Addr{}, err
	}
	if want.IsValid() {
		if err := ofService(a.core.replica.Snapshot(), want); err != nil {
			return netip.Addr{}, err
		}
		if !a.core.replica.Snapshot().Ring().OwnsAll(a.core.cfg.Self, single(want)) {
			return netip.Addr{}, errShort
		}
		return want, a.record(sub, want)
	}
	share, err := a.core.share(sub, limit)
	if err != nil {
		return netip.Addr{}, err
	}
	free := ring.Subtract(share, a.core.taken(sub.Prefix))
	got, ok := nextAddress(free, sub.Prefix.Addr().BitLen(), a.core.state.cursors[sub.Prefix])
	if !ok {
		return netip.Addr{}, errShort
	}
	a.core.state.setCursor(sub.Prefix, got.Addr())
	return got.Addr(), a.record(sub, got.Addr())
}

func (a *leases) record(sub cluster.Subnet, addr netip.Addr) error {
	a.core.state.setLease(Lease{Addr: addr, Subnet: sub.Prefix, Since: a.core.cfg.Now()})
	return a.core.state.save(a.core.disk)
}

func isAux(s cluster.Subnet, addr netip.Addr) bool {
	for _, x := range s.Aux {
		if x == addr {
			return true
		}
	}
	return false
}

// subnet is what the pool will be if its network is created as it stands.
func (p pool) subnet(self cluster.NodeID) cluster.Subnet {
	gw := p.Gateway
	if !gw.IsValid() {
		gw = defaultGateway(p.Prefix)
	}
	return cluster.Subnet{Prefix: p.Prefix, Gateway: gw, HostBits: p.HostBits, Home: self, Range: p.Range}
}

// bind is Allocator.Bind.
func (a *leases) bind(subnet netip.Prefix, addr netip.Addr, endpoint string) error {
	sub, ok := a.core.subnet(subnet)
	if !ok {
		return fmt.Errorf("address %s of %s: %w", addr, subnet, ErrNoSubnet)
	}
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	l, ok := a.core.state.leases[addr]
	switch {
	case isAux(sub, addr):
		return fmt.Errorf("address %s is reserved as an auxiliary address of %s; give another one", addr, subnet)
	case ok && l.Endpoint == endpoint:
		return nil
	case ok && l.Endpoint != "":
		return fmt.Errorf("address %s: %w by %s; give another one or remove that container", addr, ErrInUse, a.core.holder(l))
	case !ok && ofService(a.core.replica.Snapshot(), addr) != nil:
		return ofService(a.core.replica.Snapshot(), addr)
	case !ok && !a.core.replica.Snapshot().Ring().OwnsAll(a.core.cfg.Self, single(addr)):
		return fmt.Errorf("address %s has no lease on this host, nor is it in its share; run the command again", addr)
	}
	a.core.state.setLease(Lease{Addr: addr, Subnet: subnet, Endpoint: endpoint, Since: a.core.cfg.Now()})
	return a.core.state.save(a.core.disk)
}

// holder is who has a lease, for people: the container, if Docker has told its name.
func (a *core) holder(l Lease) string {
	if e, _ := cluster.Get[cluster.Endpoint](a.replica.Snapshot(), l.Endpoint); e.Name != "" {
		return "container " + e.Name + " on network " + e.Network
	}
	return fmt.Sprintf("endpoint %.12s", l.Endpoint)
}

// unbind is Allocator.Unbind.
func (a *leases) unbind(endpoint string) error {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	for _, l := range a.core.state.leases {
		if l.Endpoint == endpoint {
			l.Endpoint, l.Since = "", a.core.cfg.Now()
			a.core.state.setLease(l)
		}
	}
	return a.core.state.save(a.core.disk)
}

// release is Allocator.Release.
func (a *leases) release(addr netip.Addr) error {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if l, ok := a.core.state.leases[addr]; !ok || l.Endpoint != "" {
		return nil
	}
	a.core.state.dropLease(addr)
	return a.core.state.save(a.core.disk)
}

// leases is Allocator.Leases.
func (a *leases) leases() []Lease {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	out := make([]Lease, 0, len(a.core.state.leases))
	for _, l := range a.core.state.leases {
		out = append(out, l)
	}
	slices.SortFunc(out, func(x, y Lease) int { return x.Addr.Compare(y.Addr) })
	return out
}

// held is Allocator.Held.
func (a *leases) held() int { return int(a.core.state.held.Load()) }

// collect is Allocator.Collect.
func (a *leases) collect(before time.Time, kept []netip.Prefix, alive func(endpoint string) bool) (freed []netip.Addr, err error) {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	for addr, l := range a.core.state.leases {
		if l.Since.Before(before) && !slices.Contains(kept, l.Subnet) && (l.Endpoint == "" || !alive(l.Endpoint)) {
			a.core.state.dropLease(addr)
			freed = append(freed, addr)
		}
	}
	for p, q := range a.core.state.pools {
		if q.Since.Before(before) && !slices.Contains(kept, p) {
			// A created network has its Subnet record and needs its pool no more.
			a.core.state.dropPool(p)
		}
	}
	return freed, a.core.state.save(a.core.disk)
}
