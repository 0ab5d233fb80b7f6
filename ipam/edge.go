package ipam

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ring"
)

// An edge host has no containers of its own, and so no use for numbers: what it owned, nobody could have. It asks for
// none. It may come by some all the same: it had Docker before, it forgot a host, or one left while no other was there.
// These it gives away as a host does that leaves, as soon as there is one to have them.

// ErrEdge refuses numbers to an edge host.
var ErrEdge = errors.New("this host has no Docker (GRAPEVINE_DOCKER=none) and takes no share of any subnet: do it on a host that has Docker")

// mayLease says why this host may have no numbers to hand out.
func (a *core) mayLease() error {
	if a.cfg.Edge {
		return ErrEdge
	}
	return nil
}

// takers are those of some hosts that have use for numbers.
func takers(snap *cluster.Snapshot, ids []string) (list []string) {
	for _, id := range ids {
		if n, known := cluster.Get[cluster.Node](snap, id); known && !n.Edge {
			list = append(list, id)
		}
	}
	return list
}

// shed gives away what this host owns and has not leased, if there is a host that has use for it.
func (a *leaver) shed() error {
	owned := a.core.replica.Snapshot().Ring()
	if len(owned.Owned(a.core.cfg.Self, everything[0]))+len(owned.Owned(a.core.cfg.Self, everything[1])) == 0 {
		return nil
	}
	heir, err := a.leaveTo()
	if err != nil || len(takers(a.core.replica.Snapshot(), []string{string(heir)})) == 0 {
		return nil //nolint:nilerr // another time
	}
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if a.core.mayHandOut() != nil {
		return nil
	}
	var leased []netip.Prefix
	for addr := range a.core.state.leases {
		leased = append(leased, single(addr))
	}
	given, err := a.claimHome(heir, leased)
	if err != nil {
		return fmt.Errorf("give away what this host owns, which has no Docker: %w", err)
	}
	if given > 0 {
		a.core.cfg.Log.Info("gave away what this host owned, which has no Docker", "ranges", given)
	}
	return nil
}

// claimHome claims what this host owns, but for what is kept, for whom it came from, and else for heir. a.mu is held.
func (a *leaver) claimHome(heir cluster.NodeID, kept []netip.Prefix) (given int, err error) {
	snap := a.core.replica.Snapshot()
	alive := takers(snap, a.core.peers.Alive())
	may := func(id cluster.NodeID) bool { return slices.Contains(alive, string(id)) && a.core.mayHave(id) == nil }
	owned := homes(snap.Ring(), a.core.cfg.Self, heir, may)
	for _, to := range slices.Sorted(maps.Keys(owned)) {
		blocks := owned[to]
		if len(kept) > 0 {
			blocks = ring.Subtract(blocks, kept)
		}
		if len(blocks) == 0 {
			continue
		}
		if _, err := a.core.claim(to, blocks...); err != nil {
			return given, err
		}
		given += len(blocks)
	}
	return given, nil
}
