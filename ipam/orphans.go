package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/ring"
)

// collector takes what belongs to hosts that are gone.
type collector struct {
	core      *core
	forgetter *forgetter
}

// A host that leaves gives all away, but what another one gives it in that moment, as a
// share that goes home, comes too late: it would be nobody's for ever. Who gave it takes it
// back, once it has heard all that the one said who left; for then it knows that it is not
// somebody's by now. If the giver is not there any more either, the coordinator takes over from
// the one who left as `forget` does, with the promise of all.

// takeOrphans takes what is for this host to take of what hosts own that are gone.
func (a *collector) takeOrphans(ctx context.Context) error {
	blocks, gone := a.orphans()
	if err := a.takeBack(blocks); err != nil {
		return err
	}
	key := fmt.Sprint("orphans ", gone)
	if len(gone) == 0 || !a.forgetter.asker.backoff.ready(key, a.core.cfg.Now()) {
		return nil
	}
	if err := a.forgetter.takeover(ctx, gone...); err != nil {
		a.forgetter.asker.backoff.failed(key, a.core.cfg.Now())
		return err
	}
	a.forgetter.asker.backoff.worked(key)
	a.core.cfg.Log.Info("took over what hosts still owned that have left", "hosts", gone)
	return nil
}

// orphans finds what hosts own that have left: what this host gave them, and has heard that
// they did not give on, and those of whose numbers the giver is gone as well, and it is for
// this host to take over.
func (a *collector) orphans() (mine []orphan, gone []cluster.NodeID) {
	snap := a.core.replica.Snapshot()
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if a.core.arrested.Load() {
		return nil, nil
	}
	left := map[cluster.NodeID]bool{}
	for c := range snap.Ring().Claims() {
		is, known := left[c.Owner]
		if !known {
			is = c.Owner != Commons && snap.Tombstone(cluster.Node{ID: c.Owner}.Key())
			left[c.Owner] = is
		}
		if !is {
			continue
		}
		own := ownPart(snap.Ring(), c)
		_, promised := a.core.state.promises[c.Owner]
		switch {
		case len(own) == 0:
		case c.Version.By == a.core.cfg.Self:
			if snap.Left(c.Owner) && !promised && heardOut(snap, c.Owner) {
				mine = append(mine, orphan{c, own})
			}
		case snap.Tombstone(cluster.Node{ID: c.Version.By}.Key()) && a.decides(snap, c.Owner) && !slices.Contains(gone, c.Owner):
			gone = append(gone, c.Owner)
		}
	}
	slices.Sort(gone)
	return mine, gone
}

// orphan is a claim for a host that has left, and what of its block is that one's.
type orphan struct {
	claim  ring.Claim
	blocks []netip.Prefix
}

// heardOut reports whether all is known here that a host said which has left.
func heardOut(snap *cluster.Snapshot, id cluster.NodeID) bool {
	rec, _ := snap.Record(cluster.Node{ID: id}.Key())
	return snap.Mark(id) >= rec.Version.Counter
}

// decides reports whether it is for this host to take over from one that is gone: its heir,
// or where there is none, since it left by its own word, the coordinator. a.mu is held.
func (a *collector) decides(snap *cluster.Snapshot, gone cluster.NodeID) bool {
	if heir, ok := a.core.heirOf(snap, gone); ok {
		return heir == a.core.cfg.Self
	}
	return a.forgetter.coordinator() == a.core.cfg.Self
}

// takeBack claims orphans.
func (a *collector) takeBack(list []orphan) error {
	if len(list) == 0 {
		return nil
	}
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if err := a.core.mayHandOut(); err != nil {
		return nil // another time
	}
	n := 0
	_, err := a.core.replica.Update(func(tx *replica.Tx) error {
		n = 0
		for _, o := range list {
			if _, promised := a.core.state.promises[o.claim.Owner]; promised {
				continue
			}
			for _, b := range o.blocks {
				if n < maxAtOnce && tx.Snapshot().Ring().OwnsAll(o.claim.Owner, b) {
					_ = tx.Put(cluster.Claim{Block: b, Owner: a.core.cfg.Self}) // Update reports it
					n++
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("take back what was given to a host as it left: %w", err)
	}
	if n > 0 {
		a.core.cfg.Log.Info("took back what was given to hosts as they left", "ranges", n, "first", list[0].claim.Block, "host", list[0].claim.Owner)
	}
	return nil
}
