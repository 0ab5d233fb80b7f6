package ipam

import (
	"context"
	"net/netip"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
)

// Takeover makes this host the owner of all that hosts own that are gone for
// good, and deletes their Node, Endpoint and Use records. They must not be alive
// now, and can never come back under their identity.
//
// It is safe because every other host of the cluster must first promise, durably,
// to take nothing from the dead any more, and to let no other host take over from
// them; each sends along what it knows. So all that the dead ever gave away, but what
// nobody has heard of, which nobody will believe then, is known here before the rest is
// claimed. If one host cannot promise, nothing is
// changed and the error says which and why: bring that host back, or name it as
// dead as well. Repeating it after success is no error.
func (a *Allocator) Takeover(ctx context.Context, dead ...cluster.NodeID) error {
	return a.forgetter.takeover(ctx, dead...)
}

// Coordinator returns the one host that may take over from others unasked, "" before the ring
// is known: the cluster's first, or who took over from it when it left or was forgotten.
func (a *Allocator) Coordinator() cluster.NodeID {
	return a.forgetter.coordinator()
}

// TakeoverUnasked is Takeover where no person vouches that the silent hosts are gone: they
// may be alive behind a cut, with as good a reason to forget this side. So only the coordinator
// does it, which is on one side (else the error is ErrNotCoordinator), and only if it keeps more
// than half of all hosts, lest a coordinator that is cut off alone forgets the cluster.
func (a *Allocator) TakeoverUnasked(ctx context.Context, silent ...cluster.NodeID) error {
	return a.forgetter.takeoverUnasked(ctx, silent...)
}

// MayForget reports whether this host believes that heir has forgotten dead: it has promised
// heir so, and nobody else who is still there; or, where it was not asked, dead is silent. It
// does not block, if silent does not.
func (a *Allocator) MayForget(heir, dead cluster.NodeID, silent func() bool) bool {
	return a.forgetter.mayForget(heir, dead, silent)
}

// PromisedAway reports whether this host has promised that another one may take over
// from dead. It does not block.
func (a *Allocator) PromisedAway(dead cluster.NodeID) bool {
	return a.forgetter.promisedAway(dead)
}

// Address leases an address of a subnet: want, or if that is invalid the next
// free one of limit (the --ip-range; invalid: the whole subnet). The lease is
// durable on return, and has no endpoint yet (Bind).
//
// An exact address that this host has leased already is returned again, as
// Docker repeats its requests after a restart; Bind tells two users apart. So is
// an auxiliary address, which needs no lease. If this host's share has nothing
// free it asks its peers, for some seconds at most.
func (a *Allocator) Address(ctx context.Context, subnet, limit netip.Prefix, want netip.Addr) (netip.Addr, error) {
	if err := a.core.mayLease(); err != nil {
		return netip.Addr{}, err
	}
	return a.leases.address(ctx, subnet, limit, want)
}

// Bind notes that endpoint has addr. It is an error if another one has it, and
// an address without a lease is leased if this host may; binding again is none.
// Durable on return.
func (a *Allocator) Bind(subnet netip.Prefix, addr netip.Addr, endpoint string) error {
	return a.leases.bind(subnet, addr, endpoint)
}

// Unbind notes that an endpoint is gone. Its addresses stay leased until Release
// or Collect. It is no error if there are none.
func (a *Allocator) Unbind(endpoint string) error {
	return a.leases.unbind(endpoint)
}

// Release frees an address, durably. Nothing happens if it is not leased, or
// still has an endpoint: then the request was about a second, refused user of
// the address, and not about the one who has it.
func (a *Allocator) Release(addr netip.Addr) error {
	return a.leases.release(addr)
}

// Leases returns all leases in address order.
func (a *Allocator) Leases() []Lease {
	return a.leases.leases()
}

// Held returns how many Leases there are. It does not wait for the disk.
func (a *Allocator) Held() int {
	return a.leases.held()
}

// Collect frees what was leased or asked for before a time and is of no use:
// addresses without an endpoint or with one that alive denies, and pools of which
// no network was made. The caller must know that Docker has none of them, but for what is in the
// subnets kept, of which it knows nothing else.
func (a *Allocator) Collect(before time.Time, kept []netip.Prefix, alive func(endpoint string) bool) (freed []netip.Addr, err error) {
	return a.leases.collect(before, kept, alive)
}

// Leave gives all that this host owns back to whom it came from, or to the peer with the
// least, which confirms that it is on its disk, and hands out nothing from then on. It is an error,
// and nothing happens, while addresses are leased, or if no peer answers and the
// host is not the only one. Repeating it is no error. It blocks for seconds at most.
func (a *Allocator) Leave(ctx context.Context) error {
	return a.leaver.leave(ctx)
}

// Leaving reports whether this host has begun to leave, and so hands out nothing. It does not wait
// for the disk.
func (a *Allocator) Leaving() bool {
	return a.core.leaving()
}

// Prefix finds a prefix of the given length for a new network in the cluster's
// CIDRs of a family (4 or 6): owned by this host, used by no network, and
// overlapping nothing that a host has. It is reserved, durably, until the network's
// Subnet record is written, PoolDone or Collect. It may ask peers for space, for
// some seconds at most.
func (a *Allocator) Prefix(ctx context.Context, family, bits, hostBits int) (netip.Prefix, error) {
	if err := a.core.mayLease(); err != nil {
		return netip.Prefix{}, err
	}
	return a.prefixes.prefix(ctx, family, bits, hostBits)
}

// Pool makes p available to this host as the prefix of a network: it is a subnet
// of the cluster already, or all of it becomes this host's, asked of its owners if
// need be, and is reserved as Prefix does. Overlapping another subnet, or what this host
// or, if it is new, any host reaches by itself, is an error that names both. Repeating it
// is no error.
func (a *Allocator) Pool(ctx context.Context, id PoolID, hostBits int) error {
	if err := a.core.mayLease(); err != nil {
		return err
	}
	return a.prefixes.pool(ctx, id, hostBits)
}

// Gateway fixes the gateway address of a subnet that is being created, and
// returns it: want, or if that is invalid the first address. An existing subnet
// keeps its own: another one is an error.
func (a *Allocator) Gateway(subnet netip.Prefix, want netip.Addr) (netip.Addr, error) {
	return a.prefixes.gateway(subnet, want)
}

// Subnet returns the subnet that p is or, if it was only asked for yet, will be.
func (a *Allocator) Subnet(p netip.Prefix) (cluster.Subnet, bool) {
	return a.prefixes.subnet(p)
}

// Unasked forgets the last time at which Docker asked for p: nothing comes of it.
func (a *Allocator) Unasked(p netip.Prefix) {
	a.prefixes.unasked(p)
}

// Asked returns the pools that Docker has asked for after a time, not longer ago than a
// minute, and how often each, for networks that are not made yet.
func (a *Allocator) Asked(since time.Time) map[netip.Prefix]int {
	return a.prefixes.askedSince(since)
}

// Automatic reports whether Docker has asked for a pool without a subnet, not long ago, and got p.
func (a *Allocator) Automatic(p netip.Prefix) bool {
	return a.prefixes.isAutomatic(p)
}

// PoolDone ends the reservation of Prefix and Pool: the Subnet record exists, or
// the network will not be made. It is no error if there is none.
func (a *Allocator) PoolDone(p netip.Prefix) error {
	return a.prefixes.poolDone(p)
}

// Begin begins the first host subnet of s, if it has any, on the host that creates it:
// before the others hear of s and ask for theirs.
func (a *Allocator) Begin(s cluster.Subnet) error {
	return a.core.begin(s)
}

// VNID hands out a VNID that no network has or had lately, durably. It may ask
// peers, for some seconds at most.
func (a *Allocator) VNID(ctx context.Context) (uint32, error) {
	if err := a.core.mayLease(); err != nil {
		return 0, err
	}
	return a.vnids.vnid(ctx)
}

// VNIDExact hands out the VNID v, durably, for the network called name: 0, which
// any number of networks may have, or one that no other network has. It may ask
// the owner.
func (a *Allocator) VNIDExact(ctx context.Context, v uint32, name string) error {
	if err := a.core.mayLease(); err != nil {
		return err
	}
	return a.vnids.vnidExact(ctx, v, name)
}

// ReleaseVNID takes back a VNID that no record has ever carried: its network was
// not made. Others become free by themselves, vnidRest after their network went.
func (a *Allocator) ReleaseVNID(v uint32) error {
	return a.vnids.releaseVNID(v)
}
