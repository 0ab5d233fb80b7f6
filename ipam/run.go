package ipam

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ring"
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
		changed, snap := a.core.replica.Watch(), a.core.replica.Snapshot()
		if due || a.concerned(seen, snap) {
			if err := a.vnids.restVNIDs(); err != nil {
				a.core.cfg.Log.Warn("renew the leases of VNIDs", "err", err)
			}
			if due || a.newStrays(seen, snap) {
				if err := a.collector.takeOrphans(ctx); err != nil {
					a.core.cfg.Log.Warn("take over what hosts still own that are gone", "err", err)
				}
				if err := a.homing.sendHome(); err != nil {
					a.core.cfg.Log.Warn("give shares of deleted subnets back", "err", err)
				}
			}
			if a.core.cfg.Edge {
				if err := a.leaver.shed(); err != nil {
					a.core.cfg.Log.Warn("this host takes no share of any subnet, and has one", "err", err)
				}
			} else {
				a.supply(ctx)
			}
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

// supply has this host have what it is to have.
func (a *Allocator) supply(ctx context.Context) {
	a.stockUp(ctx)
	if err := a.commons.openCommons(ctx); err != nil {
		a.core.cfg.Log.Warn("open the commons", "err", err)
	}
	a.commons.spreadBooks(ctx)
}

// concerned reports whether anything that Run acts on is different in now: all but what
// comes and goes on other hosts, which in a large cluster is all the time.
func (a *Allocator) concerned(before, now *cluster.Snapshot) bool {
	keys, known := now.Since(before)
	return !known || slices.ContainsFunc(keys, func(k cluster.Key) bool {
		rec, _ := now.Record(k)
		return k.Kind != cluster.KindEndpoint && k.Kind != cluster.KindUse && k.Kind != cluster.KindAddresses || rec.Version.Node == a.core.cfg.Self
	})
}

// stockUp asks for what this host lacks, unless it was refused lately.
func (a *Allocator) stockUp(ctx context.Context) {
	if a.Leaving() || a.core.replica.Snapshot().Ring().Len() == 0 {
		return
	}
	for _, cidr := range a.core.cfg.CIDRs() {
		a.prefixes.stockRoom(ctx, cidr, a.homing.usualBits(cidr))
	}
	if !a.vnids.hasVNID() {
		a.asker.fetch(ctx, askGive{Kind: giveSpace, Within: ring.VNIDs, Unit: ring.VNIDs.Addr().BitLen()})
	}
	barred := a.prefixes.barred()
	for s := range cluster.All[cluster.Subnet](a.core.replica.Snapshot()) {
		if barred[s.Prefix] != nil {
			continue // no container here can have any of it
		}
		limit := leasable(s)
		if !a.asker.hasFree(s, limit, netip.Addr{}) {
			a.asker.fetch(ctx, askGive{Kind: giveShare, Within: limit, Subnet: s.Prefix, HostBits: s.HostBits, Live: a.core.versionOf(s)})
		}
	}
}

// newStrays reports whether there may be strays that were none before: a subnet ended, or
// numbers came here, or orphans: a host has left.
func (a *Allocator) newStrays(before, now *cluster.Snapshot) bool {
	keys, known := now.Since(before)
	return !known || slices.ContainsFunc(keys, func(k cluster.Key) bool {
		rec, _ := now.Record(k)
		c, isClaim := rec.Body.(cluster.Claim)
		return isClaim && c.Owner == a.core.cfg.Self || (k.Kind == cluster.KindSubnet || k.Kind == cluster.KindNode) && rec.Deleted != 0
	})
}

// Methods returns the calls that peers make, for gossip.Handle to serve.
func (a *Allocator) Methods() map[string]func(ctx context.Context, from string, body []byte) ([]byte, error) {
	return map[string]func(context.Context, string, []byte) ([]byte, error){
		methodGive:   a.giver.serveGive,
		methodForget: a.forgetter.serveForget,
		methodTake:   a.leaver.serveTake,
		methodBooks:  func(context.Context, string, []byte) ([]byte, error) { return []byte{1}, nil },
	}
}
