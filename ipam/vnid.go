package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ring"
)

// vnids hands out VNIDs.
type vnids struct {
	core  *core
	asker *asker
	// nextRest is the age of the state file from which on it is looked again which VNIDs have rested.
	nextRest time.Duration
}

// vnidRest is how long, by the age of the state file, a VNID that no network has rests before it is handed out
// again: as long as tombstones live, so that no host, however long cut off, still
// has a network of that VNID.
const vnidRest = 72 * time.Hour

// restEvery is how often it is looked which of them have rested.
const restEvery = time.Hour

// vnid is Allocator.VNID.
func (a *vnids) vnid(ctx context.Context) (uint32, error) {
	for try := 0; ; try++ {
		v, err := a.nextVNID()
		if !errors.Is(err, errShort) {
			return v, err
		}
		if try == maxAsks {
			return 0, fmt.Errorf("find a VNID: %w after asking %d times; try again", ErrNoSpace, try)
		}
		if err := a.moreVNIDs(ctx); err != nil {
			return 0, fmt.Errorf("find a VNID: %w", err)
		}
	}
}

func (a *vnids) moreVNIDs(ctx context.Context) error {
	return a.asker.flights.do(ctx, "vnids", a.hasVNID, func() error {
		return a.asker.ask(ctx, askGive{Kind: giveSpace, Within: ring.VNIDs, Unit: ring.VNIDs.Addr().BitLen(), Need: true})
	})
}

func (a *vnids) hasVNID() bool {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	_, ok := a.freeVNID()
	return ok
}

// freeVNID is the next one that this host owns and nobody has or had lately. Those that rest
// may be a hundred thousand, so they are looked up, not listed. a.mu is held.
func (a *vnids) freeVNID() (netip.Addr, bool) {
	snap := a.core.replica.Snapshot()
	live := map[uint32]bool{0: true} // 0 is never handed out: many networks may have it
	for n := range cluster.All[cluster.Network](snap) {
		live[n.VNID] = true
	}
	free := func(addr netip.Addr) bool {
		v, _ := ring.AddrVNID(addr)
		_, leased := a.core.state.vnids[v]
		_, seen := a.core.state.seen[v]
		return !live[v] && !leased && !seen
	}
	cursor, owned := a.core.state.cursors[ring.VNIDs], snap.Ring().Owned(a.core.cfg.Self, ring.VNIDs)
	for _, from := range []netip.Addr{cursor, {}} { // behind the cursor, else from the start
		for _, b := range owned {
			for addr := b.Addr(); b.Contains(addr); addr = addr.Next() {
				if from.IsValid() && !from.Less(addr) && b.Contains(from) {
					addr = from
					continue
				}
				if from.IsValid() && !from.Less(addr) {
					break
				}
				if free(addr) {
					return addr, true
				}
			}
		}
	}
	return netip.Addr{}, false
}

func (a *vnids) nextVNID() (uint32, error) {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if err := a.core.mayHandOut(); err != nil {
		return 0, err
	}
	addr, ok := a.freeVNID()
	if !ok {
		return 0, errShort
	}
	v, _ := ring.AddrVNID(addr)
	a.core.state.setCursor(ring.VNIDs, addr)
	a.core.state.setVNID(vnidLease{VNID: v, Since: a.core.cfg.Now(), Age: a.core.cfg.Age()})
	return v, a.core.state.save(a.core.disk)
}

// vnidExact is Allocator.VNIDExact.
func (a *vnids) vnidExact(ctx context.Context, v uint32, name string) error {
	addr := ring.VNIDAddr(v)
	if !addr.IsValid() {
		return fmt.Errorf("VNID %d is above %d", v, 1<<24-1)
	}
	if v == 0 {
		return nil
	}
	for n := range cluster.All[cluster.Network](a.core.replica.Snapshot()) {
		if n.VNID == v && n.Name != name {
			return fmt.Errorf("VNID %d: %w by network %s; choose another one, or leave the option out", v, ErrInUse, n.Name)
		}
		if n.VNID == v {
			return nil
		}
	}
	enough := func() bool { return a.core.replica.Snapshot().Ring().OwnsAll(a.core.cfg.Self, single(addr)) }
	err := a.asker.flights.do(ctx, "exact "+addr.String(), enough, func() error {
		return a.asker.ask(ctx, askGive{Kind: giveExact, Within: single(addr)})
	})
	if err != nil {
		return fmt.Errorf("VNID %d: %w", v, err)
	}
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if err := a.core.mayHandOut(); err != nil {
		return err
	}
	if !inside(single(addr), a.core.unused(single(addr))) {
		return fmt.Errorf("VNID %d: %w by a network that is being created or was deleted less than %s ago; choose another one", v, ErrInUse, vnidRest)
	}
	a.core.state.setVNID(vnidLease{VNID: v, Since: a.core.cfg.Now(), Age: a.core.cfg.Age()})
	return a.core.state.save(a.core.disk)
}

// releaseVNID is Allocator.ReleaseVNID.
func (a *vnids) releaseVNID(v uint32) error {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if _, ok := a.core.state.vnids[v]; !ok {
		return nil
	}
	a.core.state.dropVNID(v)
	return a.core.state.save(a.core.disk)
}

// restVNIDs renews the leases of VNIDs that networks have, about once a day, and
// ends those that no network has had for vnidRest. It does the same with VNIDs that others
// have handed out: whoever takes over from a host knows which ones rest.
func (a *vnids) restVNIDs() error {
	live := map[uint32]bool{}
	for n := range cluster.All[cluster.Network](a.core.replica.Snapshot()) {
		live[n.VNID] = true
	}
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	now := a.core.cfg.Age()
	for v := range live {
		if l, leased := a.core.state.vnids[v]; leased && now-l.Age > vnidRest/3 {
			l.Since, l.Age = a.core.cfg.Now(), now
			a.core.state.setVNID(l)
		}
		if at, known := a.core.state.seen[v]; v != 0 && (!known || now-at > vnidRest/3) {
			a.core.state.setSeen(v, now)
		}
	}
	if now < a.nextRest { // those that rest may be a hundred thousand, and this comes with each change
		return a.core.state.save(a.core.disk)
	}
	a.nextRest = now + restEvery
	for v, l := range a.core.state.vnids {
		if !live[v] && now-l.Age > vnidRest+vnidRest/3 {
			a.core.state.dropVNID(v)
		}
	}
	for v, at := range a.core.state.seen {
		if !live[v] && now-at > vnidRest+vnidRest/3 {
			a.core.state.dropSeen(v)
		}
	}
	return a.core.state.save(a.core.disk)
}
