package ipam

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/ring"
)

// core is what an Allocator knows, and what can be answered from that alone.
type core struct {
	cfg     Config
	replica Replica
	peers   Peers
	disk    Disk

	mu    sync.Mutex // covers state, its disk, what the rooms note, and every claim that is written
	state state
	// goes are hosts that have given this one all that they own, to leave, and until when
	// nothing is given to them (farewell).
	goes      map[cluster.NodeID]time.Time
	arrested  atomic.Bool // Leave was called: nothing is handed out any more
	beginning int         // how many requests collect numbers for a network
}

// mayHandOut says why nothing may be handed out or given away that is not
// already. a.mu is held.
func (a *core) mayHandOut() error {
	if a.arrested.Load() {
		return errors.New("this host is leaving the cluster: it hands out no addresses and makes no networks")
	}
	if a.cfg.Halt != nil {
		if err := a.cfg.Halt(); err != nil {
			return fmt.Errorf("this host hands out no addresses and makes no networks now: %w; see `grapevine status`", err)
		}
	}
	return nil
}

// claim writes that owner owns blocks from now on, all of which this host owns
// until now, and returns the records. a.mu is held.
func (a *core) claim(owner cluster.NodeID, blocks ...netip.Prefix) ([]cluster.Record, error) {
	var recs []cluster.Record
	_, err := a.replica.Update(func(tx *replica.Tx) error {
		recs = recs[:0]
		for _, b := range blocks {
			if !tx.Snapshot().Ring().OwnsAll(a.cfg.Self, b) {
				return fmt.Errorf("%s is not owned by this host", b)
			}
			parts, _ := tx.Claim(cluster.Claim{Block: b, Owner: owner}) // Update reports it
			recs = append(recs, parts...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("claim %v for host %s: %w", blocks, owner, err)
	}
	return recs, nil
}

// withAround returns claims and those around them: who is given numbers, and claims more than these at once, replaces a claim around
// them that it may not have heard of yet, and with it the proofs that it carries.
func (a *core) withAround(recs []cluster.Record) []cluster.Record {
	snap := a.replica.Snapshot()
	seen := map[netip.Prefix]bool{}
	for _, r := range recs {
		given, ok := r.Body.(cluster.Claim)
		if !ok {
			continue
		}
		for c := range snap.Ring().Within(given.Block) {
			if c.Block.Bits() >= given.Block.Bits() || seen[c.Block] {
				continue
			}
			seen[c.Block] = true
			if around, ok := snap.Record(cluster.Claim{Block: c.Block}.Key()); ok {
				recs = append(slices.Clip(recs), around)
			}
		}
	}
	return recs
}

// mayHave refuses askers that no number must go to.
func (a *core) mayHave(to cluster.NodeID) error {
	switch _, promised := a.state.promises[to]; {
	case !to.Valid():
		return fmt.Errorf("asker %.40q is not a host ID", string(to))
	case to == a.cfg.Self:
		return errors.New("a host cannot ask itself")
	case a.going(to):
		return fmt.Errorf("host %s has given all away to leave", to)
	case promised, a.replica.Snapshot().Tombstone(cluster.Node{ID: to}.Key()):
		return fmt.Errorf("host %s was forgotten by the cluster; remove its state directory and let it join as a new one", to)
	}
	return nil
}

// leaving is Allocator.Leaving.
func (a *core) leaving() bool { return a.arrested.Load() }

// going reports whether a host is about to leave. a.mu is held.
func (a *core) going(id cluster.NodeID) bool { return a.cfg.Now().Before(a.goes[id]) }

func (a *core) goesNow(leaver cluster.NodeID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.cfg.Now()
	maps.DeleteFunc(a.goes, func(_ cluster.NodeID, until time.Time) bool { return now.After(until) })
	a.goes[leaver] = now.Add(farewell)
}

// heir returns who was promised a dead host's ranges, "" if nobody was.
func (a *core) heir(dead cluster.NodeID) cluster.NodeID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state.promises[dead]
}

// heirOf is a host, or who took over from it, and so on; false if it is not there.
func (a *core) heirOf(snap *cluster.Snapshot, id cluster.NodeID) (cluster.NodeID, bool) {
	for range 16 {
		rec, known := snap.Record(cluster.Node{ID: id}.Key())
		_, promised := a.state.promises[id]
		switch {
		case !known || a.going(id) || promised && rec.Deleted == 0 || rec.Version.Node == id && rec.Deleted != 0:
			return "", false
		case rec.Deleted == 0:
			return id, true
		}
		id = rec.Version.Node
	}
	return "", false
}

// isThere reports whether a host is of the cluster, and nobody takes over from it. a.mu is held.
func (a *core) isThere(snap *cluster.Snapshot, id cluster.NodeID) bool {
	_, promised := a.state.promises[id]
	_, live := cluster.Get[cluster.Node](snap, string(id))
	return live && !promised
}

// name returns a host's name for people.
func (a *core) name(id cluster.NodeID) string {
	if id == Commons {
		return "nobody"
	}
	if n, ok := cluster.Get[cluster.Node](a.replica.Snapshot(), string(id)); ok && n.Name != "" {
		return fmt.Sprintf("%s (%s)", n.Name, id)
	}
	return string(id)
}

// subnet returns a live subnet of the cluster, or one that was asked for here
// and is not created yet, as if it were.
func (a *core) subnet(p netip.Prefix) (cluster.Subnet, bool) {
	if s, ok := cluster.Get[cluster.Subnet](a.replica.Snapshot(), p.String()); ok {
		return s, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if q, ok := a.state.pools[p]; ok {
		return q.subnet(a.cfg.Self), true
	}
	return cluster.Subnet{}, false
}

// subnets returns the live subnets of the cluster and the pools that are not
// created yet. a.mu is held.
func (a *core) subnets() []cluster.Subnet {
	snap := a.replica.Snapshot()
	var out []cluster.Subnet
	for s := range cluster.All[cluster.Subnet](snap) {
		out = append(out, s)
	}
	for _, p := range a.state.pools {
		if _, live := cluster.Get[cluster.Subnet](snap, p.Prefix.String()); !live {
			out = append(out, p.subnet(a.cfg.Self))
		}
	}
	return out
}

// versionOf is the counter of the version of a subnet's record, 0 if it has none yet.
func (a *core) versionOf(sub cluster.Subnet) uint64 {
	rec, ok := a.replica.Snapshot().Record(sub.Key())
	if !ok || rec.Deleted != 0 {
		return 0
	}
	return rec.Version.Counter
}

// taken returns what is leased or reserved of the numbers that overlap p. a.mu is held.
func (a *core) taken(p netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for addr := range a.state.leases {
		if p.Contains(addr) {
			out = append(out, single(addr))
		}
	}
	for _, s := range a.subnets() {
		if s.Prefix.Overlaps(p) {
			out = append(out, reserved(s)...)
		}
	}
	return append(out, ofServices(a.replica.Snapshot(), p)...)
}

// occupied is what networks, pools and leases use, in address order without overlaps. a.mu is held.
func (a *core) occupied(snap *cluster.Snapshot) blockSet {
	var used []netip.Prefix
	for s := range cluster.All[cluster.Subnet](snap) {
		used = append(used, s.Prefix)
	}
	for p := range a.state.pools {
		used = append(used, p)
	}
	for addr := range a.state.leases {
		used = append(used, single(addr))
	}
	return ring.Union(used)
}
