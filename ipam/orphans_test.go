package ipam

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store/storetest"
	"github.com/grapevine-net/grapevine/ring"
)

// leaves has h leave, as the agent does, and never come back.
func (h *host) leaves() {
	h.w.t.Helper()
	must(h.w.t, h.Leave(ctx))
	h.deleteKey(cluster.Node{ID: h.id}.Key())
}

// ownerless is what hosts own that are gone.
func (w *world) ownerless(at *host) (list []ring.Claim) {
	snap := at.replica.Snapshot()
	for c := range snap.Ring().Claims() {
		if c.Owner != Commons && snap.Tombstone(cluster.Node{ID: c.Owner}.Key()) && len(ownPart(snap.Ring(), c)) > 0 {
			list = append(list, c)
		}
	}
	return list
}

// TestGiftToWhoLeaves: what a host is given in the moment in which it leaves goes back to
// who gave it, and to nobody else; if that one has gone too, to the coordinator.
func TestGiftToWhoLeaves(t *testing.T) {
	gift := netip.MustParsePrefix("10.128.7.0/24")
	for name, giverGoes := range map[string]func(w *world, giver *host){
		"its giver stays": nil,
		"its giver leaves too": func(w *world, giver *host) {
			giver.leaves()
			w.gossip(giver, w.hosts[0])
			giver.down = true
		},
		"its giver is forgotten": func(w *world, giver *host) {
			w.gossip(giver, w.hosts[0])
			giver.down = true
			giver.gone = true
			must(t, w.hosts[0].Takeover(ctx, giver.id))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4)
			coordinator, giver, goes, other := w.hosts[0], w.hosts[1], w.hosts[2], w.hosts[3]
			coordinator.give(giver.id, "10.128.7.0/24")
			w.spread()
			must(t, goes.Leave(ctx))
			// Before anybody hears of that.
			giver.give(goes.id, "10.128.7.0/24")
			goes.deleteKey(cluster.Node{ID: goes.id}.Key())
			w.gossip(goes, coordinator)
			goes.down = true
			if giverGoes == nil {
				must(t, giver.collector.takeOrphans(ctx)) // it has not heard that the one has left
				if giver.replica.Snapshot().Ring().OwnsAll(giver.id, gift) {
					t.Fatal("it takes back what it gave to a host that is there")
				}
			} else {
				giverGoes(w, giver)
			}
			for range 3 {
				w.spread()
				for _, h := range w.hosts {
					if h.down {
						continue
					}
					must(t, h.collector.takeOrphans(ctx))
				}
			}
			w.spread()
			if left := w.ownerless(other); len(left) > 0 {
				t.Errorf("nobody's: %v", left)
			}
			want := giver
			if giverGoes != nil {
				want = coordinator
			}
			if !other.replica.Snapshot().Ring().OwnsAll(want.id, gift) {
				t.Errorf("not with %s:\n%s", want.id, w.claims(gift.Addr()))
			}
		})
	}
}

// TestOrphansAreWaitedFor: the giver does not take back what the one who left may have given
// on by a word that has not come yet.
func TestOrphansAreWaitedFor(t *testing.T) {
	w := newWorld(t, 3)
	coordinator, goes, other := w.hosts[0], w.hosts[1], w.hosts[2]
	coordinator.give(goes.id, "10.128.7.0/24")
	w.spread()
	goes.give(other.id, "10.128.7.0/25") // of which the giver does not hear
	w.gossip(goes, other)
	must(t, goes.Leave(ctx))
	goes.deleteKey(cluster.Node{ID: goes.id}.Key())
	rec, _ := goes.replica.Snapshot().Record(cluster.Node{ID: goes.id}.Key())
	_ = get(coordinator.replica.Merge(cluster.Encode([]cluster.Record{rec})))(t)
	must(t, coordinator.collector.takeOrphans(ctx))
	if coordinator.replica.Snapshot().Ring().OwnsAll(coordinator.id, netip.MustParsePrefix("10.128.7.0/25")) {
		t.Error("it took what another one may have, and has")
	}
	w.spread()
	must(t, coordinator.collector.takeOrphans(ctx))
	w.spread()
	if left := w.ownerless(coordinator); len(left) > 0 || !other.replica.Snapshot().Ring().OwnsAll(other.id, netip.MustParsePrefix("10.128.7.0/25")) {
		t.Errorf("nobody's: %v\n%s", left, w.claims(netip.MustParseAddr("10.128.7.1")))
	}
}

// give gives a block away, unasked.
func (h *host) give(to cluster.NodeID, block string) {
	h.core.mu.Lock()
	defer h.core.mu.Unlock()
	_ = get(h.core.claim(to, netip.MustParsePrefix(block)))(h.w.t)
}

// TestGuestsLeaveNoPieces: hosts come, get their shares and addresses, and go, by their own word or by
// others': what each host owns of the networks that live on, and of all, is what it was.
func TestGuestsLeaveNoPieces(t *testing.T) {
	for how, goes := range map[string]func(w *world, guest *host){
		"leaves": func(w *world, guest *host) {
			guest.leaves()
			w.spread()
			guest.down = true
		},
		"is forgotten": func(w *world, guest *host) {
			guest.down = true
			must(w.t, w.hosts[1].Takeover(ctx, guest.id))
			guest.gone = true
		},
	} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, 4)
			guests := w.hosts[3:]
			for _, g := range guests {
				g.down = true
			}
			p := w.network(w.hosts[0], "blue", 0)
			for range 2 {
				for _, h := range w.hosts[:3] {
					w.spread()
					h.stockUp(ctx)
				}
			}
			w.spread()
			owned := func() (s string) {
				r := w.hosts[0].replica.Snapshot().Ring()
				for _, in := range append(w.hosts[0].core.cfg.CIDRs(), p, ring.VNIDs) {
					for _, h := range w.hosts {
						s += fmt.Sprintf("%s of %s: %v\n", h.id, in, r.Owned(h.id, in))
					}
				}
				return s
			}
			before := owned()
			for _, g := range guests {
				g.down = false
				w.spread()
				g.stockUp(ctx)
				w.spread()
				addr := get(g.Address(ctx, p, anywhere, anyAddr))(t)
				w.spread()
				if owned() == before {
					t.Fatal("the guest got nothing")
				}
				if how == "leaves" {
					must(t, g.Release(addr))
				}
				goes(w, g)
				w.spread()
				if after := owned(); after != before {
					t.Fatalf("before:\n%safter:\n%s", before, after)
				}
			}
		})
	}
}

// TestLeaverGetsNothingBack: who took over from a host that leaves sends it nothing home in
// the moment before its last word.
func TestLeaverGetsNothingBack(t *testing.T) {
	clusterCIDR := netip.MustParsePrefix("10.128.0.0/16")
	w := newWorld(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	b.stockUp(ctx)
	w.spread()
	must(t, a.Leave(ctx))
	for range 2 {
		must(t, b.homing.sendHome())
		b.stockUp(ctx)
		b.commons.spreadBooks(ctx)
		a.commons.spreadBooks(ctx)
		_ = a.asker.askPeer(ctx, b.id, askGive{Kind: giveSpace, Within: clusterCIDR, Unit: 24, Need: true}) // was under way
	}
	for _, all := range everything {
		if n := b.replica.Snapshot().Ring().Counts(all)[a.id]; n != 0 {
			t.Errorf("it still owns %d numbers of %s", n, all)
		}
	}
}

// TestWhoHasLeftHandsOutNothing: what a host is given after it gave all away, and before its
// last word comes, is for nobody twice: it hands nothing of that out, nor gives it on, nor does
// an agent that is started from its disk, while its giver takes it back and uses it.
func TestWhoHasLeftHandsOutNothing(t *testing.T) {
	w := newWorld(t, 3)
	giver, heir, goes := w.hosts[0], w.hosts[1], w.hosts[2]
	blue := w.network(giver, "blue", 0)
	w.spread()
	gifts := []netip.Prefix{netip.MustParsePrefix("10.128.7.0/24"), ring.Subtract([]netip.Prefix{blue}, giver.core.taken(blue))[0], netip.PrefixFrom(ring.VNIDAddr(4096), 24)}
	heir.down = true
	must(t, goes.Leave(ctx))
	heir.down = false
	for _, p := range gifts { // it has not heard yet
		giver.give(goes.id, p.String())
	}
	w.gossip(giver, goes)
	refuses := func(when string) {
		t.Helper()
		r := goes.replica.Snapshot().Ring()
		for _, p := range gifts {
			if !r.OwnsAll(goes.id, p) {
				t.Fatalf("%s: it does not hold %s", when, p)
			}
			_, err := heir.Call(ctx, string(goes.id), methodGive, get(encode(askGive{Kind: giveExact, Within: p}))(t))
			must(t, err)
		}
		if a, err := goes.Address(ctx, blue, anywhere, anyAddr); err == nil {
			t.Errorf("%s it hands out %s", when, a)
		}
		if a, err := goes.Address(ctx, blue, anywhere, last(gifts[1])); err == nil {
			t.Errorf("%s it hands out %s", when, a)
		}
		if p, err := goes.Prefix(ctx, 4, 24, 0); err == nil {
			t.Errorf("%s it hands out %s", when, p)
		}
		if v, err := goes.VNID(ctx); err == nil {
			t.Errorf("%s it hands out VNID %d", when, v)
		}
		if err := goes.VNIDExact(ctx, 4100, "red"); err == nil {
			t.Errorf("%s it hands out VNID 4100", when)
		}
		goes.stockUp(ctx)
		if r := goes.replica.Snapshot().Ring(); len(goes.Leases()) > 0 || !r.OwnsAll(goes.id, gifts[0]) {
			t.Errorf("%s: it gave on, or leased: %v", when, goes.Leases())
		}
	}
	refuses("as it leaves")
	goes.deleteKey(cluster.Node{ID: goes.id}.Key())
	refuses("after its last word")
	must(t, goes.db.Close()) // the power goes before its state is removed
	goes.life = storetest.Life{}
	goes.open()
	refuses("started again")
	w.gossip(goes, giver)
	goes.down = true
	must(t, giver.collector.takeOrphans(ctx))
	for _, p := range gifts {
		if !giver.replica.Snapshot().Ring().OwnsAll(giver.id, p) {
			t.Errorf("%s is not its giver's again:\n%s", p, w.claims(p.Addr()))
		}
	}
	_ = get(giver.Address(ctx, blue, anywhere, last(gifts[1]).Prev()))(t)
	must(t, giver.VNIDExact(ctx, 4100, "red"))
	w.unique(t)
}
