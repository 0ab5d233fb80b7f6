package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ring"
)

// asker asks other hosts for numbers.
type asker struct {
	core    *core
	flights singleflight
	backoff backoff
	// lent are the claims by which lines of books came here, for what is taken out of the commons.
	lent map[cluster.Version]bool
}

// callTimeout bounds a call to one peer: a few round trips and disk writes.
const callTimeout = 2 * time.Second

// maxPeers bounds the peers asked for one request. The first ones have the most
// free: if none of those gives, hardly a later one will.
const maxPeers = 8

// more asks peers for numbers of a subnet: the address want, or some of limit.
// Requests for one subnet wait for each other, as what one gets serves many.
func (a *asker) more(ctx context.Context, sub cluster.Subnet, limit netip.Prefix, want netip.Addr) error {
	g := askGive{Kind: giveShare, Within: limit, Subnet: sub.Prefix, HostBits: sub.HostBits, Need: true, Live: a.core.versionOf(sub)}
	if want.IsValid() {
		g = askGive{Kind: giveExact, Within: single(want)}
	}
	key := "share " + limit.String()
	if want.IsValid() {
		key = "exact " + want.String()
	}
	enough := func() bool { return a.hasFree(sub, limit, want) }
	return a.flights.do(ctx, key, enough, func() error { return a.ask(ctx, g) })
}

// hasFree reports whether a lease would succeed without asking.
func (a *asker) hasFree(sub cluster.Subnet, limit netip.Prefix, want netip.Addr) bool {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if want.IsValid() {
		return a.core.replica.Snapshot().Ring().OwnsAll(a.core.cfg.Self, single(want))
	}
	share, err := a.core.share(sub, limit)
	if err != nil {
		return false
	}
	return len(ring.Subtract(share, a.core.taken(sub.Prefix))) > 0
}

// ask asks one peer after the other, the likeliest first, until one has given
// what g asks for and its claims are merged here. The error says who was asked
// and what each answered.
func (a *asker) ask(ctx context.Context, g askGive) error {
	var said []string
	var passing bool
	asked := map[cluster.NodeID]bool{a.core.cfg.Self: true}
	for len(asked) <= maxPeers {
		// Sorted anew each time: a refusal may have brought newer claims.
		peer, ok := a.likeliest(g, asked)
		if !ok {
			break
		}
		asked[peer] = true
		err := a.askPeer(ctx, peer, g)
		if err == nil {
			return nil
		}
		if errors.Is(err, errBegun) {
			return fmt.Errorf("asked for %s; host %s: %w", g, a.core.name(peer), err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("ask host %s for %s: %w", a.core.name(peer), g, ctx.Err())
		}
		said = append(said, fmt.Sprintf("host %s: %v", a.core.name(peer), err))
		passing = passing || errors.Is(err, errCollecting)
	}
	if passing {
		return passingError{a.refused(g, said)}
	}
	return a.refused(g, said)
}

// passingError is a refusal, in its own words, that is errCollecting.
type passingError struct{ error }

func (passingError) Is(target error) bool { return target == errCollecting }
func (e passingError) Unwrap() error      { return e.error }

// refused words the failure of ask.
func (a *asker) refused(g askGive, said []string) error {
	counts := a.core.replica.Snapshot().Ring().Counts(g.Within)
	if len(said) > 0 {
		if g.Kind == giveExact && g.Within.IsSingleIP() && !ring.VNIDs.Contains(g.Within.Addr()) {
			return fmt.Errorf("%w: %s is for another host to give: %s", ErrNoSpace, g.Within.Addr(), strings.Join(said, "; "))
		}
		return fmt.Errorf("%w: asked for %s; %s", ErrNoSpace, g, strings.Join(said, "; "))
	}
	if len(counts) == 0 {
		return fmt.Errorf("%w: this host has not reached its cluster yet, which owns %s; see `grapevine status`", ErrNoSpace, g.Within)
	}
	if len(counts) == 1 && counts[a.core.cfg.Self] > 0 {
		return fmt.Errorf("%w: %s is owned by this host alone and used up; remove what is not needed, or make a larger one", ErrNoSpace, g.Within)
	}
	return a.unavailable(g, counts)
}

// unavailable says who has what nobody was asked for: hosts that do not answer, or that answer
// and have nothing left.
func (a *asker) unavailable(g askGive, counts map[cluster.NodeID]uint64) error {
	var silent, full []string
	alive := a.core.peers.Alive()
	for o := range counts {
		switch {
		case o == Commons:
		case o == a.core.cfg.Self:
			full = append(full, "this host")
		case slices.Contains(alive, string(o)) && a.core.heir(o) == "":
			full = append(full, a.core.name(o))
		default:
			silent = append(silent, a.core.name(o))
		}
	}
	slices.Sort(silent)
	slices.Sort(full)
	switch {
	case len(silent) == 0:
		return fmt.Errorf("%w: all of %s is in use (by %s); remove what is not needed, or take a larger one", ErrNoSpace, g.Within, strings.Join(full, ", "))
	case len(full) == 0:
		return fmt.Errorf("%w: %s belongs to hosts that do not answer now (%s); bring one back, or `grapevine forget` those that are gone for good",
			ErrNoSpace, g.Within, strings.Join(silent, ", "))
	}
	return fmt.Errorf("%w: of %s, %s used their part up, and the rest belongs to hosts that do not answer now (%s); bring one back, or `grapevine forget` those that are gone for good",
		ErrNoSpace, g.Within, strings.Join(full, ", "), strings.Join(silent, ", "))
}

// errSilent is what it means for people that a call to a host has not come to an end.
var errSilent = errors.New("does not answer")

// least is how many numbers a host must have to be asked: who only stocks up gets half, and
// a single one has no half. In a large cluster that is what most hosts have, and all would
// ask them for ever.
func (g askGive) least() int64 {
	switch {
	case g.Need || g.Kind == giveExact || g.HostBits > 0:
		return 1
	case g.Kind == giveShare:
		return 2
	}
	return 2 << min(g.Within.Addr().BitLen()-g.Unit, 61)
}

// likeliest returns the peer that answers, was not asked yet, and has the most
// numbers of g.Within free by what is known here.
func (a *asker) likeliest(g askGive, asked map[cluster.NodeID]bool) (cluster.NodeID, bool) {
	snap := a.core.replica.Snapshot()
	free := map[cluster.NodeID]int64{}
	for o, n := range snap.Ring().Counts(g.Within) {
		free[o] = int64(min(n, 1<<62))
	}
	if g.Kind != giveExact {
		for o := range free {
			for e := range cluster.Written[cluster.Endpoint](snap, o) {
				for _, addr := range e.Addrs {
					if g.Within.Contains(addr) {
						free[o]--
					}
				}
			}
		}
	}
	var peers []cluster.NodeID
	for _, id := range a.core.peers.Alive() {
		if id := cluster.NodeID(id); !asked[id] && free[id] >= g.least() && a.core.heir(id) == "" {
			peers = append(peers, id)
		}
	}
	if len(peers) == 0 {
		return "", false
	}
	return slices.MinFunc(peers, func(x, y cluster.NodeID) int {
		return cmp.Or(cmp.Compare(free[y], free[x]), cmp.Compare(x, y))
	}), true
}

func (a *asker) askPeer(ctx context.Context, peer cluster.NodeID, g askGive) error {
	body, err := encode(g)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	b, err := a.core.peers.Call(ctx, string(peer), methodGive, body)
	if errors.Is(err, context.DeadlineExceeded) {
		return errSilent
	}
	if err != nil {
		return err
	}
	reply, err := decode[replyGive](b)
	if err != nil {
		return err
	}
	if a.core.cfg.Former != nil && len(reply.Former) > 0 { // before an address of the block can be leased
		if err := a.core.cfg.Former.Take(reply.Former); err != nil {
			return err
		}
	}
	err = a.accept(peer, reply.Claims)
	if _, _, ok := bookOf(g.Within); ok && err == nil && reply.Refused == "" {
		a.noteLent(g.Within)
	}
	if reply.Refused != "" {
		// The claims that came along are a help for the next try, no more.
		if reply.Begun {
			return fmt.Errorf("%w: %s", errBegun, reply.Refused)
		}
		if reply.Busy {
			return fmt.Errorf("%w: %s", errCollecting, reply.Refused)
		}
		return errors.New(reply.Refused)
	}
	return err
}

// noteLent notes by which claims this host has a line of a book that it has just been lent.
func (a *asker) noteLent(line netip.Prefix) {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	for c := range a.core.replica.Snapshot().Ring().Within(line) {
		if c.Owner == a.core.cfg.Self && c.Version.By != a.core.cfg.Self && within(c.Block, line) {
			a.lent[cluster.Version{Counter: c.Version.Counter, Node: c.Version.By}] = true
		}
	}
}

// accept merges claims that a peer sent, unless the peer was forgotten while it
// was being asked: then an heir has its ranges.
func (a *asker) accept(from cluster.NodeID, claims []byte) error {
	if len(claims) == 0 {
		return nil
	}
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if heir, promised := a.core.state.promises[from]; promised {
		return fmt.Errorf("host %s is being forgotten, host %s takes over its ranges", from, heir)
	}
	if _, err := a.core.replica.Merge(claims); err != nil {
		return fmt.Errorf("claims from host %s: %w", from, err)
	}
	return nil
}

func (a *asker) fetch(ctx context.Context, g askGive) {
	key := g.String()
	a.backoff.forget(a.core.cfg.Now())
	if !a.backoff.ready(key, a.core.cfg.Now()) || ctx.Err() != nil {
		return
	}
	if err := a.ask(ctx, g); err != nil {
		a.core.cfg.Log.Debug("nothing to stock up with", "want", g, "err", err)
		a.backoff.failed(key, a.core.cfg.Now())
		return
	}
	a.backoff.worked(key)
}
