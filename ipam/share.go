package ipam

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ring"
)

// share returns the blocks inside limit from which this host may lease addresses
// of a subnet. a.mu is held.
//
// With host subnets it is those that the host has begun to use: a host that owns
// the rest of the prefix as well leaves that to be handed out in order. One is
// begun by a claim of the owner's own on exactly that block, when the ones before
// it are full.
func (a *core) share(sub cluster.Subnet, limit netip.Prefix) ([]netip.Prefix, error) {
	r := a.replica.Snapshot().Ring()
	if sub.HostBits == 0 {
		return r.Owned(a.cfg.Self, limit), nil
	}
	begun := clip(a.begun(r, sub), limit)
	if len(ring.Subtract(begun, a.taken(sub.Prefix))) > 0 {
		return begun, nil
	}
	slot, ok := a.nextSlot(r, sub, limit)
	if !ok {
		return begun, nil
	}
	if _, err := a.claim(a.cfg.Self, slot); err != nil {
		return nil, err
	}
	return append(begun, clip([]netip.Prefix{slot}, limit)...), nil
}

// begin is Allocator.Begin.
func (a *core) begin(s cluster.Subnet) error {
	if s.HostBits == 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.share(s, leasable(s)); err != nil {
		return fmt.Errorf("begin a host subnet of %s: %w", s.Prefix, err)
	}
	return nil
}

// leasable is the part of a subnet that containers get addresses of by themselves.
func leasable(s cluster.Subnet) netip.Prefix {
	if s.Range.IsValid() {
		return s.Range
	}
	return s.Prefix
}

// begun returns what this host owns of the host subnets of sub that it uses: it
// may have given single addresses of them away (--ip).
func (a *core) begun(r *ring.Ring, sub cluster.Subnet) []netip.Prefix {
	var out []netip.Prefix
	for c := range r.Within(sub.Prefix) {
		if c.Owner != a.cfg.Self || !within(c.Block, sub.Prefix) {
			continue
		}
		if _, ok := ring.HostSlot(sub.Prefix, int(sub.HostBits), c.Block); ok {
			out = append(out, r.Owned(a.cfg.Self, c.Block)...)
		}
	}
	return out
}

// spareSlot returns a host subnet that this host has begun, or got with all that a host that
// is gone had, and of which it uses nothing, while it has another one.
func (a *core) spareSlot(r *ring.Ring, sub cluster.Subnet, limit netip.Prefix) (spare netip.Prefix, ok bool) {
	own := 0
	for c := range r.Within(sub.Prefix) {
		if _, slot := ring.HostSlot(sub.Prefix, int(sub.HostBits), c.Block); !slot || !r.OwnsAll(a.cfg.Self, c.Block) {
			continue
		}
		own++
		used := false
		for addr := range a.state.leases {
			used = used || c.Block.Contains(addr)
		}
		if !used && c.Block.Overlaps(limit) {
			spare, ok = c.Block, true
		}
	}
	return spare, ok && own > 1
}

// nextSlot returns the first host subnet, in OpenShift's order, that this host
// owns whole, has not begun to use and has no lease in, and that overlaps limit.
func (a *core) nextSlot(r *ring.Ring, sub cluster.Subnet, limit netip.Prefix) (netip.Prefix, bool) {
	bits := int(sub.HostBits)
	used := a.begun(r, sub)
	for addr := range a.state.leases {
		used = append(used, single(addr))
	}
	length := sub.Prefix.Addr().BitLen() - bits
	around := limit // whole host subnets that overlap limit
	if around.Bits() > length {
		around = netip.PrefixFrom(limit.Addr(), length).Masked()
	}
	free := clip(ring.Subtract(r.Owned(a.cfg.Self, sub.Prefix), used), around)
	free = slices.DeleteFunc(free, func(b netip.Prefix) bool { return b.Bits() > length })
	if len(free) == 0 {
		return netip.Prefix{}, false
	}
	if sub.Prefix.Addr().Is6() {
		return nextSlot6(sub.Prefix, bits, free)
	}
	for slot := range ring.HostSlots(sub.Prefix, bits) {
		if block := ring.HostSubnet(sub.Prefix, bits, slot); inside(block, free) {
			return block, true
		}
	}
	return netip.Prefix{}, false
}

// nextSlot6 is the first host subnet in free, which is in address order. So are IPv6's
// host subnets: there may be too many to try them all.
func nextSlot6(network netip.Prefix, hostBits int, free []netip.Prefix) (netip.Prefix, bool) {
	for _, f := range free {
		block := netip.PrefixFrom(f.Addr(), network.Addr().BitLen()-hostBits)
		for range 2 { // no two neighbours are both left out
			if _, ok := ring.HostSlot(network, hostBits, block); ok && f.Contains(block.Addr()) {
				return block, true
			}
			block = netip.PrefixFrom(last(block).Next(), block.Bits())
		}
	}
	return netip.Prefix{}, false
}

// inside reports whether one of blocks is around p.
func inside(p netip.Prefix, blocks []netip.Prefix) bool {
	for _, b := range blocks {
		if within(p, b) {
			return true
		}
	}
	return false
}

// unused returns what this host owns inside p, a part of the number space in
// which networks are made, and no network, pool or lease uses. For VNIDs those
// of networks and leases are used. a.mu is held.
func (a *core) unused(p netip.Prefix) []netip.Prefix {
	snap := a.replica.Snapshot()
	var used []netip.Prefix
	if ring.VNIDs.Overlaps(p) {
		used = append(used, single(ring.VNIDAddr(0))) // never handed out: many networks may have it
		for n := range cluster.All[cluster.Network](snap) {
			used = append(used, single(ring.VNIDAddr(n.VNID)))
		}
		for v := range a.state.vnids {
			used = append(used, single(ring.VNIDAddr(v)))
		}
		for v := range a.state.seen {
			used = append(used, single(ring.VNIDAddr(v)))
		}
	}
	for _, s := range a.subnets() {
		used = append(used, s.Prefix)
	}
	for addr := range a.state.leases {
		used = append(used, single(addr))
	}
	return ring.Subtract(snap.Ring().Owned(a.cfg.Self, p), used)
}
