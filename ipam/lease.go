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
	*core
	*asker
}

// errShort says that the host's own share has nothing (more) for a request.
var errShort = errors.New("nothing free in this host's share")

// maxAsks bounds how often one request asks peers for more: each success brings
// at least one free number, which a concurrent request may have taken meanwhile.
const maxAsks = 4

// Address leases an address of a subnet: want, or if that is invalid the next
// free one of limit (the --ip-range; invalid: the whole subnet). The lease is
// durable on return, and has no endpoint yet (Bind).
//
// An exact address that this host has leased already is returned again, as
// Docker repeats its requests after a restart; Bind tells two users apart. So is
// an auxiliary address, which needs no lease. If this host's share has nothing
// free it asks its peers, for some seconds at most.
func (a *leases) Address(ctx context.Context, subnet, limit netip.Prefix, want netip.Addr) (netip.Addr, error) {
	sub, ok := a.subnet(subnet)
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
		if err := a.more(ctx, sub, limit, want); err != nil {
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
	a.mu.Lock()
	defer a.mu.Unlock()
	if want.IsValid() && isAux(sub, want) {
		return want, nil
	}
	if _, ok := a.state.leases[want]; ok && want.IsValid() && !a.arrested.Load() {
		return want, nil // a replay
	}
	if err := a.mayHandOut(); err != nil {
		return netip.Addr{}, err
	}
	if want.IsValid() {
		if err := ofService(a.replica.Snapshot(), want); err != nil {
			return netip.Addr{}, err
		}
		if !a.replica.Snapshot().Ring().OwnsAll(a.cfg.Self, single(want)) {
			return netip.Addr{}, errShort
		}
		return want, a.record(sub, want)
	}
	share, err := a.share(sub, limit)
	if err != nil {
		return netip.Addr{}, err
	}
	free := ring.Subtract(share, a.taken(sub.Prefix))
	got, ok := nextAddress(free, sub.Prefix.Addr().BitLen(), a.state.cursors[sub.Prefix])
	if !ok {
		return netip.Addr{}, errShort
	}
	a.state.setCursor(sub.Prefix, got.Addr())
	return got.Addr(), a.record(sub, got.Addr())
}

func (a *leases) record(sub cluster.Subnet, addr netip.Addr) error {
	a.state.setLease(Lease{Addr: addr, Subnet: sub.Prefix, Since: a.cfg.Now()})
	return a.state.save(a.disk)
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

// Bind notes that endpoint has addr. It is an error if another one has it, and
// an address without a lease is leased if this host may; binding again is none.
// Durable on return.
func (a *leases) Bind(subnet netip.Prefix, addr netip.Addr, endpoint string) error {
	sub, ok := a.subnet(subnet)
	if !ok {
		return fmt.Errorf("address %s of %s: %w", addr, subnet, ErrNoSubnet)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l, ok := a.state.leases[addr]
	switch {
	case isAux(sub, addr):
		return fmt.Errorf("address %s is reserved as an auxiliary address of %s; give another one", addr, subnet)
	case ok && l.Endpoint == endpoint:
		return nil
	case ok && l.Endpoint != "":
		return fmt.Errorf("address %s: %w by %s; give another one or remove that container", addr, ErrInUse, a.holder(l))
	case !ok && ofService(a.replica.Snapshot(), addr) != nil:
		return ofService(a.replica.Snapshot(), addr)
	case !ok && !a.replica.Snapshot().Ring().OwnsAll(a.cfg.Self, single(addr)):
		return fmt.Errorf("address %s has no lease on this host, nor is it in its share; run the command again", addr)
	}
	a.state.setLease(Lease{Addr: addr, Subnet: subnet, Endpoint: endpoint, Since: a.cfg.Now()})
	return a.state.save(a.disk)
}

// holder is who has a lease, for people: the container, if Docker has told its name.
func (a *core) holder(l Lease) string {
	if e, _ := cluster.Get[cluster.Endpoint](a.replica.Snapshot(), l.Endpoint); e.Name != "" {
		return "container " + e.Name + " on network " + e.Network
	}
	return fmt.Sprintf("endpoint %.12s", l.Endpoint)
}

// Unbind notes that an endpoint is gone. Its addresses stay leased until Release
// or Collect. It is no error if there are none.
func (a *leases) Unbind(endpoint string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.state.leases {
		if l.Endpoint == endpoint {
			l.Endpoint, l.Since = "", a.cfg.Now()
			a.state.setLease(l)
		}
	}
	return a.state.save(a.disk)
}

// Release frees an address, durably. Nothing happens if it is not leased, or
// still has an endpoint: then the request was about a second, refused user of
// the address, and not about the one who has it.
func (a *leases) Release(addr netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l, ok := a.state.leases[addr]; !ok || l.Endpoint != "" {
		return nil
	}
	a.state.dropLease(addr)
	return a.state.save(a.disk)
}

// Leases returns all leases in address order.
func (a *leases) Leases() []Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]Lease, 0, len(a.state.leases))
	for _, l := range a.state.leases {
		out = append(out, l)
	}
	slices.SortFunc(out, func(x, y Lease) int { return x.Addr.Compare(y.Addr) })
	return out
}

// Held returns how many Leases there are. It does not wait for the disk.
func (a *leases) Held() int { return int(a.state.held.Load()) }

// Collect frees what was leased or asked for before a time and is of no use:
// addresses without an endpoint or with one that alive denies, and pools of which
// no network was made. The caller must know that Docker has none of them, but for what is in the
// subnets kept, of which it knows nothing else.
func (a *leases) Collect(before time.Time, kept []netip.Prefix, alive func(endpoint string) bool) (freed []netip.Addr, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for addr, l := range a.state.leases {
		if l.Since.Before(before) && !slices.Contains(kept, l.Subnet) && (l.Endpoint == "" || !alive(l.Endpoint)) {
			a.state.dropLease(addr)
			freed = append(freed, addr)
		}
	}
	for p, q := range a.state.pools {
		if q.Since.Before(before) && !slices.Contains(kept, p) {
			// A created network has its Subnet record and needs its pool no more.
			a.state.dropPool(p)
		}
	}
	return freed, a.state.save(a.disk)
}
