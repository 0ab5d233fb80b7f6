package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ring"
)

// giver gives to hosts that ask.
type giver struct {
	core    *core
	commons *commons
}

// serveGive gives ownership to a peer, durably before the reply. A reply that is
// lost loses nothing: the claim reaches its new owner by gossip.
func (a *giver) serveGive(_ context.Context, from string, body []byte) ([]byte, error) {
	g, err := decode[askGive](body)
	if err != nil {
		return nil, err
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	recs, blocks, err := a.give(cluster.NodeID(from), g)
	reply := replyGive{}
	if err == nil && a.core.cfg.Former != nil {
		if reply.Former, err = a.core.cfg.Former.Given(blocks); err != nil {
			return nil, err // the claims come by gossip, and with them less is known
		}
	}
	if err != nil {
		reply.Refused = err.Error()
		reply.Begun, reply.Busy = a.isSubnet(g), errors.Is(err, errCollecting) || a.gave(cluster.NodeID(from), g)
		if g.Need || g.Kind == giveExact { // who only stocks up can wait for gossip
			recs = a.known(g.Within)
		}
	}
	if _, page, ok := bookOf(g.Within); ok && g.Kind == giveExact {
		for _, p := range realOf(page) { // by what the numbers came back, if they were taken before
			recs = append(recs, a.known(p)...)
		}
	}
	if len(recs) > 0 {
		reply.Claims = cluster.Encode(recs)
	}
	return encode(reply)
}

// isSubnet reports whether what is asked for is a subnet, made or being made here, or a
// piece of one: that is for a pool of somebody who has not heard of it yet. An address
// alone is not.
func (a *giver) isSubnet(g askGive) bool {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	blocks := []netip.Prefix{g.Within}
	if _, page, ok := bookOf(g.Within); ok {
		blocks = realOf(page)
	}
	return g.Kind == giveExact && !g.Within.IsSingleIP() && slices.ContainsFunc(a.core.subnets(), func(s cluster.Subnet) bool {
		return slices.ContainsFunc(blocks, func(p netip.Prefix) bool { return s.Prefix.Bits() <= p.Bits() && s.Prefix.Overlaps(p) })
	})
}

// give writes the claim that makes to the owner of what it asks for, and returns it, and what it is about.
func (a *giver) give(to cluster.NodeID, g askGive) (recs []cluster.Record, blocks []netip.Prefix, err error) {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if err := a.core.mayHave(to); err != nil {
		return nil, nil, err
	}
	if err := a.core.mayHandOut(); err != nil {
		return nil, nil, err
	}
	blocks, err = a.pick(to, g)
	if err != nil {
		return nil, nil, err
	}
	recs, err = a.core.claim(to, blocks...)
	if err != nil {
		return nil, nil, err
	}
	a.core.cfg.Log.Info("gave a range away", "range", blocks[0], "to", to)
	return a.core.withAround(recs), blocks, nil
}

// pick picks the blocks to give. a.mu is held.
func (a *giver) pick(to cluster.NodeID, g askGive) ([]netip.Prefix, error) {
	if g.Kind == giveBook {
		return a.commons.bookFor(to, g.Within)
	}
	block, err := a.choose(g)
	return []netip.Prefix{block}, err
}

// choose picks the block to give. a.mu is held.
func (a *giver) choose(g askGive) (netip.Prefix, error) {
	switch {
	case g.Kind == giveExact:
		return g.Within, a.mayGive(g.Within)
	case g.Kind == giveShare && g.Live > 0 && a.endedSince(g.Subnet, g.Live):
		return netip.Prefix{}, fmt.Errorf("knows that the network of %s was removed", g.Subnet)
	case g.HostBits > 0:
		sub := cluster.Subnet{Prefix: g.Subnet, HostBits: g.HostBits}
		if slot, ok := a.core.nextSlot(a.core.replica.Snapshot().Ring(), sub, g.Within); ok {
			return slot, nil
		}
		if slot, ok := a.core.spareSlot(a.core.replica.Snapshot().Ring(), sub, g.Within); ok {
			return slot, nil
		}
		return netip.Prefix{}, errors.New("has no host subnet left there")
	}
	unit, free := g.Unit, a.core.unused(g.Within)
	if g.Kind == giveShare {
		unit = g.Within.Addr().BitLen()
		free = ring.Subtract(a.core.replica.Snapshot().Ring().Owned(a.core.cfg.Self, g.Within), a.core.taken(g.Within))
	}
	block, ok := ring.Donation(free, unit)
	if !ok && g.Need {
		block, ok = ring.Fit(free, unit)
	}
	switch {
	case ok:
		return block, nil
	case g.Need:
		return netip.Prefix{}, lacks(free, unit)
	}
	return netip.Prefix{}, fmt.Errorf("has only %d numbers free there, too few to give half", ring.Count(free))
}

// lacks says that nothing of what was asked for is free.
func lacks(free []netip.Prefix, unit int) error {
	if len(free) == 0 {
		return errors.New("has nothing free there")
	}
	return fmt.Errorf("has %d addresses free there, but no whole /%d", ring.Count(free), unit)
}

// endedSince reports whether a subnet is known to have ended after a version of it.
func (a *giver) endedSince(p netip.Prefix, live uint64) bool {
	if _, made := a.core.state.pools[p]; made {
		return false
	}
	rec, ok := a.core.replica.Snapshot().Record(cluster.Subnet{Prefix: p}.Key())
	return ok && rec.Deleted != 0 && rec.Version.Counter > live
}

// gave reports whether the peer owns the very block that it asks for, by what is known here: it
// has given it to this host, which will hear of that.
func (a *giver) gave(peer cluster.NodeID, g askGive) bool {
	return g.Kind == giveExact && a.core.replica.Snapshot().Ring().OwnsAll(peer, g.Within)
}

// mayGive says why a block must not be given, if so. a.mu is held.
func (a *giver) mayGive(block netip.Prefix) error {
	if c, ok := a.core.replica.Snapshot().Ring().Owner(block.Addr()); ok && c.Owner != a.core.cfg.Self {
		return fmt.Errorf("does not own %s: host %s does", block, c.Owner)
	}
	if !a.core.replica.Snapshot().Ring().OwnsAll(a.core.cfg.Self, block) {
		return fmt.Errorf("does not own all of %s", block)
	}
	if v, ok := ring.AddrVNID(block.Addr()); ok && block.IsSingleIP() {
		if !inside(block, a.core.unused(block)) {
			return fmt.Errorf("VNID %d: %w there", v, ErrInUse)
		}
		return nil
	}
	if _, page, ok := bookOf(block); ok {
		if !a.commons.understood(a.core.replica.Snapshot(), block) {
			return fmt.Errorf("%w: has not heard all yet that concerns %s", errCollecting, block)
		}
		return a.commons.lends(page)
	}
	if block.IsSingleIP() {
		if err := ofService(a.core.replica.Snapshot(), block.Addr()); err != nil {
			return err
		}
	}
	for addr, l := range a.core.state.leases {
		if block.Contains(addr) {
			return fmt.Errorf("%s: %w there by %s", addr, ErrInUse, a.core.holder(l))
		}
	}
	for _, s := range a.core.subnets() {
		if !s.Prefix.Overlaps(block) {
			continue
		}
		if !within(block, s.Prefix) || !block.IsSingleIP() {
			return fmt.Errorf("%s overlaps the subnet %s of network %s", block, s.Prefix, s.Network)
		}
		if inside(block, reserved(s)) {
			return fmt.Errorf("%s is reserved in %s", block.Addr(), s.Prefix)
		}
	}
	return nil
}

// maxKnown bounds the claims that go with a refusal.
const maxKnown = 256

// known returns the claims about p that this host knows, so that an asker whose
// ring is behind finds the right host to ask.
func (a *giver) known(p netip.Prefix) []cluster.Record {
	snap := a.core.replica.Snapshot()
	var recs []cluster.Record
	for c := range snap.Ring().Within(p) {
		if r, ok := snap.Record(cluster.Claim{Block: c.Block}.Key()); ok && len(recs) < maxKnown {
			recs = append(recs, r)
		}
	}
	return recs
}
