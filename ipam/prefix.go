package ipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/ring"
)

// prefixes has prefixes for networks.
type prefixes struct {
	core      *core
	asker     *asker
	commons   *commons
	homing    *homing
	asked     map[netip.Prefix][]time.Time // see Asked
	automatic []netip.Prefix               // the last ones that Docker got without choosing: see Automatic
}

// prefix is Allocator.Prefix.
func (a *prefixes) prefix(ctx context.Context, family, bits, hostBits int) (netip.Prefix, error) {
	var errs []error
	cidrs := a.core.cfg.CIDRs()
	for _, cidr := range ofFamily(cidrs, family) {
		if cidr.Bits() > bits {
			continue
		}
		room, err := a.roomIn(cidr, bits)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p, err := a.prefixIn(ctx, room, bits, hostBits)
		if err == nil {
			return p, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return netip.Prefix{}, fmt.Errorf("a network of /%d does not fit into the cluster's IPv%d ranges (%s); ask for a smaller one (a longer prefix), or give a --subnet", bits, family, prefixList(ofFamily(cidrs, family)))
	}
	return netip.Prefix{}, fmt.Errorf("find a /%d for the network: %w", bits, errors.Join(errs...))
}

// prefixList is prefixes, for people.
func prefixList(all []netip.Prefix) string {
	var texts []string
	for _, p := range all {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}

// ofFamily picks the prefixes of a family, 4 or 6.
func ofFamily(all []netip.Prefix, family int) (out []netip.Prefix) {
	for _, p := range all {
		if p.Addr().Is4() == (family == 4) {
			out = append(out, p)
		}
	}
	return out
}

func (a *prefixes) prefixIn(ctx context.Context, in room, bits, hostBits int) (netip.Prefix, error) {
	defer a.begins()()
	for try := 0; ; try++ {
		p, err := a.reservePrefix(in, bits, hostBits)
		if !errors.Is(err, errShort) {
			return p, err
		}
		if try == maxAsks {
			return p, fmt.Errorf("%w in %s after asking %d times: others took it; try again", ErrNoSpace, in.cidr, try)
		}
		enough := func() bool { return a.hasPrefix(in, bits) }
		err = a.asker.flights.do(ctx, "space "+in.cidr.String(), enough, func() error {
			return a.askRoom(ctx, in, bits)
		})
		if err != nil {
			if p, ok := a.collectPrefix(ctx, in.cidr, bits, hostBits, in.avoid); ok {
				return p, nil
			}
			return p, err
		}
	}
}

// begins counts a request that collects numbers for a new network, until what it returns is called.
func (a *prefixes) begins() (done func()) {
	count := func(n int) {
		a.core.mu.Lock()
		defer a.core.mu.Unlock()
		a.core.beginning += n
	}
	count(1)
	return func() { count(-1) }
}

// maxCollected bounds the prefixes for which collectPrefix asks.
const maxCollected = 4

// collectPrefix makes a prefix whole of which several hosts have parts, none of them a block
// of that length: each is asked for its part, as for a --subnet.
func (a *prefixes) collectPrefix(ctx context.Context, cidr netip.Prefix, bits, hostBits int, avoid []netip.Prefix) (netip.Prefix, bool) {
	for range maxCollected {
		p, ok := ring.Fit(ring.Subtract(a.reachable(cidr), avoid), bits)
		if !ok {
			return p, false
		}
		err := a.obtain(ctx, PoolID{Prefix: p}, hostBits)
		if err == nil {
			return p, true
		}
		a.core.cfg.Log.Debug("a prefix in parts is not to be had", "prefix", p, "err", err)
		avoid = append(slices.Clip(avoid), p)
	}
	return netip.Prefix{}, false
}

// reachable returns what hosts that answer, and this one, own of p and no network uses.
func (a *prefixes) reachable(p netip.Prefix) []netip.Prefix {
	r := a.core.replica.Snapshot().Ring()
	all := append(r.Owned(a.core.cfg.Self, p), r.Owned(Commons, p)...)
	for _, id := range a.core.peers.Alive() {
		if peer := cluster.NodeID(id); a.core.heir(peer) == "" {
			all = append(all, r.Owned(peer, p)...)
		}
	}
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	return ring.Subtract(all, a.core.occupied(a.core.replica.Snapshot()))
}

// hasPrefix reports whether reservePrefix would find one.
func (a *prefixes) hasPrefix(in room, bits int) bool {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	_, ok := next(ring.Subtract(a.core.unused(in.cidr), in.avoid), bits, netip.Addr{})
	return ok
}

func (a *prefixes) reservePrefix(in room, bits, hostBits int) (netip.Prefix, error) {
	cidr := in.cidr
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if err := a.core.mayHandOut(); err != nil {
		return netip.Prefix{}, err
	}
	// A prefix of a deleted network is used again only when this host owns all of
	// it: then every host that had a share has given it back, knowing that the
	// network is gone. The cursor makes that as late as can be.
	free := ring.Subtract(a.core.unused(cidr), in.avoid)
	p, ok := next(free, bits, a.cursor(free, bits, cidr))
	if !ok {
		return p, errShort
	}
	if err := a.whole(p); err != nil {
		return p, err
	}
	a.core.state.setCursor(cidr, last(p))
	a.core.state.setPool(pool{Prefix: p, HostBits: uint8(hostBits), Since: a.core.cfg.Now()})
	return p, a.core.state.save(a.core.disk)
}

// rounds is, as a power of two, how many prefixes are used before one is used again: each that was used leaves claims in the
// ring for good (one for each share that other hosts had and gave back), and of small networks, and of IPv6, there are
// prefixes without end. It is as many as a usual range has of usual networks, /22 of a /14.
const rounds = 8

// cursor is where the search for a prefix begins. a.mu is held.
func (a *prefixes) cursor(free []netip.Prefix, bits int, cidr netip.Prefix) netip.Addr {
	at := a.core.state.cursors[cidr]
	from, ok := next(free, bits, netip.Addr{})
	if round := bits - rounds; ok && round > cidr.Bits() && !netip.PrefixFrom(from.Addr(), round).Masked().Contains(at) {
		return netip.Addr{}
	}
	return at
}

// whole makes one claim of p, if what this host owns there came in pieces: others route
// claim by claim. a.mu is held.
func (a *prefixes) whole(p netip.Prefix) error {
	_, err := a.core.replica.Update(func(tx *replica.Tx) error {
		a.homing.join(tx, p)
		return nil
	})
	if err != nil {
		return fmt.Errorf("claim %s in one piece: %w", p, err)
	}
	return nil
}

// pool is Allocator.Pool.
func (a *prefixes) pool(ctx context.Context, id PoolID, hostBits int) error {
	p := id.Prefix
	_, joined := cluster.Get[cluster.Subnet](a.core.replica.Snapshot(), p.String())
	if why := a.core.cfg.Reach().Barred([]netip.Prefix{p}, !joined)[p]; why != nil {
		return fmt.Errorf("subnet %s cannot be a network's: %w, and nothing is taken away from a host that it reaches by itself; choose another one, or leave --subnet out to be given one", p, why)
	}
	// A host for which p is a network's may be making it, or may not have heard yet that it
	// was removed; or p has gone from one to another meanwhile. It is there in a moment, or to be had.
	patience, cancel := context.WithTimeout(ctx, beginning)
	defer cancel()
	for {
		before := a.core.replica.Snapshot().Ring().Counts(p)
		err := a.obtain(ctx, id, hostBits)
		begun, passing := errors.Is(err, errBegun), errors.Is(err, errCollecting)
		if err == nil || !begun && !passing && maps.Equal(before, a.core.replica.Snapshot().Ring().Counts(p)) {
			return err
		}
		if (begun || passing) && a.awaitSubnet(patience, p) {
			return nil
		}
		if patience.Err() != nil {
			return err
		}
	}
}

// obtain collects all of a prefix from its owners and reserves it, unless it is a subnet already.
func (a *prefixes) obtain(ctx context.Context, id PoolID, hostBits int) error {
	defer a.begins()()
	for {
		missing, err := a.reservePool(id, hostBits)
		if err != nil || len(missing) == 0 {
			return err
		}
		// Each round brings one owner's pieces in, or fails.
		for _, piece := range missing {
			if err := a.obtainPiece(ctx, piece); err != nil {
				return fmt.Errorf("subnet %s: %w", id.Prefix, err)
			}
		}
	}
}

func (a *prefixes) obtainPiece(ctx context.Context, piece netip.Prefix) error {
	if a.core.replica.Snapshot().Ring().OwnsAll(Commons, piece) {
		return a.commons.obtainCommons(ctx, piece)
	}
	enough := func() bool { return a.core.replica.Snapshot().Ring().OwnsAll(a.core.cfg.Self, piece) }
	return a.asker.flights.do(ctx, "exact "+piece.String(), enough, func() error {
		return a.asker.ask(ctx, askGive{Kind: giveExact, Within: piece})
	})
}

// beginning is how long a network takes at most from its pool to the record of its
// subnet, and that one to get here.
const beginning = 3 * time.Second

// askAgain is how long awaitSubnet waits at most.
const askAgain = 300 * time.Millisecond

// awaitSubnet waits a moment for another host, which is making it, to tell of the subnet p.
func (a *prefixes) awaitSubnet(ctx context.Context, p netip.Prefix) bool {
	ctx, cancel := context.WithTimeout(ctx, askAgain)
	defer cancel()
	for {
		changed := a.core.replica.Watch()
		if _, live := cluster.Get[cluster.Subnet](a.core.replica.Snapshot(), p.String()); live {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// reservePool reserves p if it can be, and else returns the pieces of it that
// other hosts own.
func (a *prefixes) reservePool(id PoolID, hostBits int) (missing []netip.Prefix, err error) {
	p := id.Prefix
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	for _, s := range a.core.subnets() {
		if s.Prefix != p && s.Prefix.Overlaps(p) {
			return nil, fmt.Errorf("subnet %s overlaps the subnet %s of %s; choose another one, or give exactly that one to join it", p, s.Prefix, describe(s))
		}
	}
	snap := a.core.replica.Snapshot()
	if s, ok := cluster.Get[cluster.Subnet](snap, p.String()); ok {
		if hostBits != 0 && int(s.HostBits) != hostBits {
			return nil, fmt.Errorf("subnet %s exists with hostsubnetlength=%d in network %s; leave the option out to join it", p, s.HostBits, s.Network)
		}
		return nil, nil
	}
	r := snap.Ring()
	if r.Len() == 0 {
		return nil, fmt.Errorf("subnet %s: %w: this host has not reached its cluster yet; see `grapevine status`", p, ErrNoSpace)
	}
	if !r.OwnsAll(a.core.cfg.Self, p) {
		for o := range r.Counts(p) {
			if o != a.core.cfg.Self {
				missing = append(missing, r.Owned(o, p)...)
			}
		}
		return missing, nil
	}
	for addr, l := range a.core.state.leases {
		if p.Contains(addr) && l.Subnet != p {
			return nil, fmt.Errorf("subnet %s: %s in it is still leased from the subnet %s; remove that container, or wait", p, addr, l.Subnet)
		}
	}
	if err := a.whole(p); err != nil {
		return nil, err
	}
	q := a.core.state.pools[p] // asked for again, it keeps what it was given since
	q.Prefix, q.Since = p, a.core.cfg.Now()
	if hostBits != 0 {
		q.HostBits = uint8(hostBits)
	}
	if id.Range.IsValid() {
		q.Range = id.Range
	}
	a.core.state.setPool(q)
	return nil, a.core.state.save(a.core.disk)
}

func describe(s cluster.Subnet) string {
	if s.Network == "" {
		return "a network that is just being created"
	}
	return "network " + s.Network
}

// gateway is Allocator.Gateway.
func (a *prefixes) gateway(subnet netip.Prefix, want netip.Addr) (netip.Addr, error) {
	sub, ok := a.core.subnet(subnet)
	switch {
	case !ok:
		return want, fmt.Errorf("gateway of %s: this is no subnet of the cluster, nor was it asked for; create the network again", subnet)
	case !want.IsValid() || want == sub.Gateway:
		return sub.Gateway, nil
	case !subnet.Contains(want):
		return want, fmt.Errorf("gateway %s is not in the subnet %s; give one inside it", want, subnet)
	case want == first(subnet) || want.Is4() && want == last(subnet):
		return want, fmt.Errorf("gateway %s is the first or last address of %s; give one in between", want, subnet)
	case sub.Network != "":
		return want, fmt.Errorf("subnet %s of network %s has the gateway %s; leave --gateway out to join it", subnet, sub.Network, sub.Gateway)
	}
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if l, ok := a.core.state.leases[want]; ok {
		return want, fmt.Errorf("gateway %s: %w by %s", want, ErrInUse, a.core.holder(l))
	}
	p := a.core.state.pools[subnet]
	p.Gateway = want
	a.core.state.setPool(p)
	return want, a.core.state.save(a.core.disk)
}

// subnet is Allocator.Subnet.
func (a *prefixes) subnet(p netip.Prefix) (cluster.Subnet, bool) { return a.core.subnet(p) }

// unasked is Allocator.Unasked.
func (a *prefixes) unasked(p netip.Prefix) {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if times := a.asked[p]; len(times) > 0 {
		a.asked[p] = times[:len(times)-1]
	}
}

// noteAsked remembers that Docker has asked for a pool, for Asked.
func (a *prefixes) noteAsked(p netip.Prefix) {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	now := a.core.cfg.Now()
	for q, times := range a.asked {
		times = slices.DeleteFunc(times, func(t time.Time) bool { return now.Sub(t) > time.Minute })
		if a.asked[q] = times; len(times) == 0 {
			delete(a.asked, q)
		}
	}
	a.asked[p] = append(a.asked[p], now)
}

// askedSince is Allocator.Asked.
func (a *prefixes) askedSince(since time.Time) map[netip.Prefix]int {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	out := map[netip.Prefix]int{}
	for p, times := range a.asked {
		for _, t := range times {
			if t.After(since) {
				out[p]++
			}
		}
	}
	return out
}

// poolDone is Allocator.PoolDone.
func (a *prefixes) poolDone(p netip.Prefix) error {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if times := a.asked[p]; len(times) > 0 {
		a.asked[p] = times[1:]
	}
	if _, ok := a.core.state.pools[p]; !ok {
		return nil
	}
	a.core.state.dropPool(p)
	return a.core.state.save(a.core.disk)
}
