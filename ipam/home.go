package ipam

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/ring"
)

// homing sends home what is of no use here any more.
type homing struct {
	core    *core
	commons *commons
	// gone are lengths of subnets that are known to be gone in goneOf, the snapshot looked at last. core.mu is held.
	gone   lengths
	goneOf *cluster.Snapshot
}

// Shares of networks that are gone go home. Which claims are such shares, and whose they
// were, is read from the ring alone, so that it does not matter in which order a share and
// the end of its network came, nor what this host remembers.
//
// A claim on this host's numbers is stock if it is on a block in which a whole network of
// the usual size fits, in the cluster's ranges, and no part of a network that is gone. All
// else that no network uses is a stray: it goes to the owner of the stock around it, from
// which it was cut.

// sendHome gives strays back in which nothing is leased.
func (a *homing) sendHome() error {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	a.dropCursors()
	if a.core.arrested.Load() || a.core.beginning > 0 {
		// What is being collected for a new network is no stray.
		return a.core.state.save(a.core.disk)
	}
	homes := map[cluster.NodeID][]netip.Prefix{}
	for _, s := range a.strays() {
		homes[s.home] = append(homes[s.home], s.blocks...)
	}
	for _, home := range slices.Sorted(maps.Keys(homes)) {
		blocks := ring.Union(homes[home])
		blocks = blocks[:min(len(blocks), maxAtOnce)]
		if _, err := a.core.claim(home, blocks...); err != nil {
			return fmt.Errorf("shares of networks that are gone: %w", err)
		}
		a.core.cfg.Log.Info("gave shares of networks that are gone back", "ranges", len(blocks), "first", blocks[0], "to", a.core.name(home))
		if home == Commons {
			for _, p := range blocks {
				if err := a.commons.returnLines(p); err != nil {
					return fmt.Errorf("books: %w", err)
				}
			}
		}
	}
	return a.core.state.save(a.core.disk)
}

// maxAtOnce bounds the claims of one write.
const maxAtOnce = 256

// stray is what a claim covers of no use here, and where it belongs.
type stray struct {
	blocks []netip.Prefix
	home   cluster.NodeID
}

// strays finds all strays. a.mu is held.
func (a *homing) strays() (out []stray) {
	snap := a.core.replica.Snapshot()
	used, gone := a.core.occupied(snap), a.goneLengths(snap)
	var open []ring.Claim // the claims around the next one, the narrowest last
	for c := range snap.Ring().Claims() {
		for len(open) > 0 && !within(c.Block, open[len(open)-1].Block) {
			open = open[:len(open)-1]
		}
		if c.Owner == a.core.cfg.Self && len(open) > 0 && !used.overlaps(c.Block) {
			if s, ok := a.strayOf(snap, gone, c, open); ok {
				out = append(out, s)
			}
		}
		open = append(open, c)
	}
	return out
}

// strayOf says what of a claim of this host's, which no network uses, belongs elsewhere.
func (a *homing) strayOf(snap *cluster.Snapshot, gone lengths, c ring.Claim, around []ring.Claim) (s stray, ok bool) {
	common := len(around) - 1
	for common >= 0 && around[common].Owner != Commons {
		common--
	}
	book, page, isLine := bookOf(c.Block)
	switch {
	case isLine:
		// A line of a book goes to who keeps the book, once the numbers are back in the commons.
		if page.Bits() == pages.Bits() || !a.commons.commonsHas(snap.Ring(), page) {
			return s, false
		}
		s.home, ok = a.core.heirOf(snap, keeper(snap.Ring(), book))
	case common >= 0 && common == len(around)-1:
		// This host took it out of the commons, and puts it back when it is whole again.
		s.blocks, s.home, ok = []netip.Prefix{c.Block}, Commons, snap.Ring().OwnsAll(a.core.cfg.Self, c.Block)
	case common >= 0:
		s.home, ok = a.core.heirOf(snap, around[common+1].Owner)
	default:
		s.home, ok = a.homeOf(snap, gone, c, around)
	}
	if !ok || s.home == a.core.cfg.Self {
		return s, false
	}
	if s.blocks == nil {
		s.blocks = ownPart(snap.Ring(), c)
	}
	return s, len(s.blocks) > 0
}

// homeOf is where a claim of this host's belongs that nothing uses, and false if it is here:
// with whoever has the narrowest stock around it. Claims in between are of other shares.
func (a *homing) homeOf(snap *cluster.Snapshot, gone lengths, c ring.Claim, around []ring.Claim) (cluster.NodeID, bool) {
	if a.stock(snap, gone, c.Block) {
		return "", false
	}
	for _, d := range slices.Backward(around) {
		if !a.stock(snap, gone, d.Block) {
			continue
		}
		if home, ok := a.core.heirOf(snap, d.Owner); ok {
			return home, true
		}
	}
	return "", false
}

// stock reports whether a block that no network uses is for this host to make networks of.
func (a *homing) stock(snap *cluster.Snapshot, gone lengths, b netip.Prefix) bool {
	if ring.VNIDs.Overlaps(b) {
		return true
	}
	family := 4
	if b.Addr().Is6() {
		family = 6
	}
	cidrs := ofFamily(a.core.cfg.CIDRs(), family)
	if len(cidrs) == 0 {
		return true // not known yet
	}
	for _, cidr := range cidrs {
		if within(b, cidr) && b.Bits() > a.usualBits(cidr) {
			return false
		}
		if within(b, cidr) {
			return !partOfGone(snap, gone, b)
		}
		if within(cidr, b) {
			return true
		}
	}
	return false
}

// usualBits is the prefix length of a network that does not ask for one.
func (a *homing) usualBits(cidr netip.Prefix) int {
	if cidr.Addr().Is6() {
		return max(Bits6, cidr.Bits())
	}
	return max(a.core.cfg.Bits, cidr.Bits())
}

// partOfGone reports whether b is a part of a subnet that is known to be gone.
func partOfGone(snap *cluster.Snapshot, gone lengths, b netip.Prefix) bool {
	for bits := b.Bits() - 1; bits > 0; bits-- {
		if gone[bits] && snap.Tombstone(cluster.Subnet{Prefix: netip.PrefixFrom(b.Addr(), bits).Masked()}.Key()) {
			return true
		}
	}
	return false
}

// lengths says of each prefix length whether there is a subnet of it among some.
type lengths [129]bool

// goneLengths are those of the subnets that are known to be gone: mostly one or two, so that
// few have to be looked up to know of what a block may be a part. A farm leaves tombstones of a
// hundred thousand, and this comes with each change: what has changed is looked at alone. A length
// stays when the last of its tombstones has gone, which costs a look-up.
func (a *homing) goneLengths(snap *cluster.Snapshot) lengths {
	keys, known := snap.Since(a.goneOf)
	if !known {
		a.gone, keys = lengths{}, slices.Collect(snap.Gone(cluster.KindSubnet))
	}
	for _, k := range keys {
		if k.Kind != cluster.KindSubnet || !snap.Tombstone(k) {
			continue
		}
		if p, err := netip.ParsePrefix(k.ID); err == nil {
			a.gone[p.Bits()] = true
		}
	}
	a.goneOf = snap
	return a.gone
}

// ownPart is what a claim decides about: its block without those of the claims inside it.
func ownPart(r *ring.Ring, c ring.Claim) []netip.Prefix {
	var inner []netip.Prefix
	for d := range r.Within(c.Block) {
		if d.Block.Bits() > c.Block.Bits() {
			inner = append(inner, d.Block)
		}
	}
	return ring.Subtract([]netip.Prefix{c.Block}, inner)
}

// blockSet is blocks in address order that do not overlap.
type blockSet []netip.Prefix

func (s blockSet) overlaps(p netip.Prefix) bool {
	i, _ := slices.BinarySearchFunc(s, p, func(b, p netip.Prefix) int {
		if b.Addr().Is4() == p.Addr().Is4() && last(b).Compare(p.Addr()) >= 0 {
			return 1
		}
		return cmp.Or(b.Addr().Compare(p.Addr()), -1)
	})
	return i < len(s) && s[i].Overlaps(p)
}

// dropCursors forgets where the next address comes from in subnets that are gone. a.mu is held.
func (a *homing) dropCursors() {
	snap, cidrs := a.core.replica.Snapshot(), a.core.cfg.CIDRs()
	for v := range a.commons. // what others said before is known by now, or the claim is gone
					asker.lent {
		if snap.Mark(v.Node) >= v.Counter {
			delete(a.commons.asker.lent, v)
		}
	}
	if len(a.core.state.cursors) < 64 {
		return
	}
	for p := range a.core.state.cursors {
		_, live := cluster.Get[cluster.Subnet](snap, p.String())
		if _, pool := a.core.state.pools[p]; !live && !pool && p != ring.VNIDs && !slices.Contains(cidrs, p) {
			a.core.state.dropCursor(p)
		}
	}
}

// join makes one claim of what came home in pieces in a block that this host has whole, so
// that it is one record, and one route when it is used again. Of what one claim could not prove it makes some. a.mu is held.
func (a *homing) join(tx *replica.Tx, block netip.Prefix) {
	if !tx.Snapshot().Ring().OwnsAll(a.core.cfg.Self, block) {
		return
	}
	for _, part := range tx.Provable(block) {
		for c := range tx.Snapshot().Ring().Within(part) {
			if within(c.Block, part) && c.Block != part {
				_ = tx.Put(cluster.Claim{Block: part, Owner: a.core.cfg.Self}) // Update reports it
				break
			}
		}
	}
}
