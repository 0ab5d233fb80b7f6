package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
)

// leaver gives all away when this host leaves.
type leaver struct {
	core  *core
	asker *asker
}

// leave is Allocator.Leave.
func (a *leaver) leave(ctx context.Context) error {
	heir, err := a.leaveTo()
	if err != nil {
		return fmt.Errorf("leave the cluster: %w", err)
	}
	if heir == "" {
		return nil
	}
	recs, err := a.giveAll(heir)
	if err != nil {
		return fmt.Errorf("leave the cluster: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := a.core.peers.Call(ctx, string(heir), methodTake, cluster.Encode(recs)); err != nil {
		return fmt.Errorf("leave the cluster: give this host's ranges to host %s: %w; run it again", a.core.name(heir), err)
	}
	return nil
}

// leaveTo picks the heir, "" if this host is the only one.
func (a *leaver) leaveTo() (cluster.NodeID, error) {
	snap := a.core.replica.Snapshot()
	alive := a.core.peers.Alive()
	others := 0
	for n := range cluster.All[cluster.Node](snap) {
		if n.ID != a.core.cfg.Self {
			others++
		}
	}
	alive = slices.DeleteFunc(slices.Clone(alive), func(id string) bool { return a.core.heir(cluster.NodeID(id)) != "" })
	switch {
	case others == 0:
		return "", nil
	case len(alive) == 0:
		return "", errors.New("no other host answers to take over this host's ranges; try again, or `grapevine forget` it from another host later")
	}
	if some := takers(snap, alive); len(some) > 0 {
		alive = some
	}
	owned := snap.Ring().Counts(everything[0])
	heir := slices.MinFunc(alive, func(x, y string) int {
		return cmp.Or(cmp.Compare(owned[cluster.NodeID(x)], owned[cluster.NodeID(y)]), cmp.Compare(x, y))
	})
	return cluster.NodeID(heir), nil
}

// giveAll stops handing out and claims everything for the heir. A second call
// gives again what the first may not have delivered.
func (a *leaver) giveAll(heir cluster.NodeID) ([]cluster.Record, error) {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if n := len(a.core.state.leases); n > 0 {
		return nil, fmt.Errorf("%d addresses are in use here; remove the containers from grapevine's networks first", n)
	}
	a.core.arrested.Store(true)
	if _, err := a.claimHome(heir, nil); err != nil {
		return nil, err
	}
	var recs []cluster.Record
	snap := a.core.replica.Snapshot()
	for c := range snap.Ring().Claims() {
		if rec, ok := snap.Record(cluster.Claim{Block: c.Block}.Key()); ok && rec.Version.Node == a.core.cfg.Self {
			recs = append(recs, rec)
		}
	}
	return a.core.withAround(recs), nil
}

// serveTake is the heir's side of Leave.
func (a *leaver) serveTake(_ context.Context, from string, body []byte) ([]byte, error) {
	a.core.goesNow(cluster.NodeID(from))
	return nil, a.asker.accept(cluster.NodeID(from), body)
}

// farewell is how long a host may take from giving all away to its last word. What it is
// given meanwhile comes back (orphans.go), but is nobody's to use until then.
const farewell = time.Minute
