package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ipam/ring"
)

// The pace of Run.
const (
	runEvery = 15 * time.Second
	// settle is how long after a change Run acts: changes come in crowds.
	settle = 200 * time.Millisecond
)

// Run keeps this host supplied until ctx ends, and then returns nil: with space
// for at least one new network, some VNIDs, and a share of every subnet, so that
// a partition does not stop it. It also sends shares of deleted subnets home.
// Failures are logged and tried again, later each time.
func (a *Allocator) Run(ctx context.Context) error {
	regular := time.NewTicker(runEvery)
	defer regular.Stop()
	var seen *cluster.Snapshot
	for due := true; ; {
		changed, snap := a.replica.Watch(), a.replica.Snapshot()
		if due || a.concerned(seen, snap) {
			if err := a.restVNIDs(); err != nil {
				a.cfg.Log.Warn("renew the leases of VNIDs", "err", err)
			}
			if err := a.sendHome(); err != nil {
				a.cfg.Log.Warn("give shares of deleted subnets back", "err", err)
			}
			a.stockUp(ctx)
		}
		seen, due = snap, false
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-regular.C:
			due = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(settle):
		}
	}
}

// concerned reports whether anything that Run acts on is different in now: all but what
// comes and goes on other hosts, which in a large cluster is all the time.
func (a *Allocator) concerned(before, now *cluster.Snapshot) bool {
	keys, known := now.Since(before)
	return !known || slices.ContainsFunc(keys, func(k cluster.Key) bool {
		rec, _ := now.Record(k)
		return k.Kind != cluster.KindEndpoint && k.Kind != cluster.KindUse || rec.Version.Node == a.cfg.Self
	})
}

// stockUp asks for what this host lacks, unless it was refused lately.
func (a *Allocator) stockUp(ctx context.Context) {
	if a.leaving() || a.replica.Snapshot().Ring().Len() == 0 {
		return
	}
	for _, cidr := range a.cfg.CIDRs() {
		bits := a.cfg.Bits
		if cidr.Addr().Is6() {
			bits = max(Bits6, cidr.Bits())
		}
		if !a.hasPrefix(cidr, bits, nil) {
			a.stock(ctx, askGive{Kind: giveSpace, Within: cidr, Unit: bits})
		}
	}
	if !a.hasVNID() {
		a.stock(ctx, askGive{Kind: giveSpace, Within: ring.VNIDs, Unit: ring.VNIDs.Addr().BitLen()})
	}
	for s := range cluster.All[cluster.Subnet](a.replica.Snapshot()) {
		limit := leasable(s)
		if !a.hasFree(s, limit, netip.Addr{}) {
			a.stock(ctx, askGive{Kind: giveShare, Within: limit, Subnet: s.Prefix, HostBits: s.HostBits})
		}
	}
}

func (a *Allocator) stock(ctx context.Context, g askGive) {
	key := g.String()
	if !a.backoff.ready(key, a.cfg.Now()) || ctx.Err() != nil {
		return
	}
	if err := a.ask(ctx, g); err != nil {
		a.cfg.Log.Debug("nothing to stock up with", "want", g, "err", err)
		a.backoff.failed(key, a.cfg.Now())
		return
	}
	a.backoff.worked(key)
}

func (a *Allocator) leaving() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.arrested
}

// sendHome remembers the homes of the subnets in which this host has a share,
// and gives the shares of deleted ones back as soon as nothing is leased there.
func (a *Allocator) sendHome() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	snap := a.replica.Snapshot()
	for s := range cluster.All[cluster.Subnet](snap) {
		if _, known := a.state.homes[s.Prefix]; !known && s.Home != "" && s.Home != a.cfg.Self && len(snap.Ring().Owned(a.cfg.Self, s.Prefix)) > 0 {
			a.state.setHome(s.Prefix, s.Home)
		}
	}
	for p, home := range a.state.homes {
		if err := a.sendShareHome(snap, p, home); err != nil {
			return err
		}
	}
	return a.state.save(a.disk)
}

// sendShareHome gives this host's share of p back if the subnet is known to be
// deleted: not knowing it may just mean that gossip has not brought it yet.
func (a *Allocator) sendShareHome(snap *cluster.Snapshot, p netip.Prefix, home cluster.NodeID) error {
	if _, asked := a.state.pools[p]; asked || !snap.Tombstone(cluster.Subnet{Prefix: p}.Key()) {
		return nil
	}
	for addr := range a.state.leases {
		if p.Contains(addr) {
			return nil
		}
	}
	for s := range cluster.All[cluster.Subnet](snap) {
		if s.Prefix.Overlaps(p) {
			return nil // the numbers are in use again, in another shape
		}
	}
	_, forgotten := a.state.promises[home]
	_, known := cluster.Get[cluster.Node](snap, string(home))
	owned := snap.Ring().Owned(a.cfg.Self, p)
	switch {
	case home == a.cfg.Self || forgotten || len(owned) == 0 || snap.Tombstone(cluster.Node{ID: home}.Key()):
		// It is home, or there is no home: it stays here.
	case !known:
		return nil
	default:
		if _, err := a.claim(home, owned...); err != nil {
			return fmt.Errorf("subnet %s: %w", p, err)
		}
	}
	a.state.dropHome(p)
	return nil
}
