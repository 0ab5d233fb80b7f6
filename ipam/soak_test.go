package ipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/replica"
)

// The pace of a soak in virtual time: that of a busy CI.
const (
	soakStep  = 30 * time.Second // between two networks
	guestEach = 400              // networks after which a host comes and goes
)

// come has a new host join.
func (w *world) come(n int) *host {
	g := &host{w: w, id: cluster.NodeID(fmt.Sprintf("%016x", n)), path: fmt.Sprintf("%s.%d", w.hosts[0].path, n), bits: 24}
	g.open()
	w.hosts = append(w.hosts, g)
	w.meet(g)
	g.stockUp(ctx)
	w.meet(g)
	return g
}

// meet has a host exchange what it knows with all others.
func (w *world) meet(g *host) {
	for range 2 {
		for _, h := range w.hosts {
			w.gossip(h, g)
			w.gossip(g, h)
		}
	}
}

// goes has a guest leave, or, if it died, be forgotten.
func (w *world) goes(g *host, dead bool) {
	if dead {
		w.meet(g) // a network whose end it alone has heard of would live on
		g.down = true
		must(w.t, w.hosts[0].Takeover(ctx, g.id))
	} else {
		g.leaves()
		w.meet(g)
	}
	w.hosts = slices.DeleteFunc(w.hosts, func(h *host) bool { return h == g })
	w.spread()
	for _, h := range w.hosts {
		must(w.t, h.collector.takeOrphans(ctx))
	}
	w.spread()
	must(w.t, g.db.Close())
	must(w.t, os.Remove(g.path))
}

// container has one run on a network and end.
func (w *world) container(h *host, id int, network string, p netip.Prefix) {
	addr := get(h.Address(ctx, p, anywhere, anyAddr))(w.t)
	e := cluster.Endpoint{
		ID: fmt.Sprintf("%064x", id), Network: network, Addrs: []netip.Addr{addr}, MAC: "02:42:ac:11:00:02", Host: h.id,
		Container: fmt.Sprintf("%064x", id), Name: fmt.Sprintf("job-%d", id), Aliases: []string{"web", "api"},
	}
	u := cluster.Use{Network: network, Host: h.id}
	_, err := h.replica.Update(func(tx *replicaTx) error { _ = tx.Put(e); return tx.Put(u) })
	must(w.t, err)
	_, err = h.replica.Update(func(tx *replicaTx) error { tx.Delete(e.Key()); tx.Delete(u.Key()); return nil })
	must(w.t, err)
	must(w.t, h.Release(addr))
}

// hour does what an agent does each hour.
func (w *world) hour() {
	w.spread()
	for _, h := range w.hosts {
		must(w.t, h.replica.Expire())
		must(w.t, h.vnids.restVNIDs())
		must(w.t, h.replica.Flush(ctx))
	}
}

// remains is what a host has.
type remains struct {
	live, tombstones, nodes, claims int
	vnids, digest                   int
	proven                          int // bytes of the claims with their proofs, as others are sent them
	file                            int64
}

func (h *host) remains() (r remains) {
	snap := h.replica.Snapshot()
	for rec := range snap.Records() {
		switch {
		case rec.Body == nil && rec.Key.Kind == cluster.KindNode:
			r.nodes++
		case rec.Body == nil:
			r.tombstones++
		case rec.Key.Kind == cluster.KindClaim:
			r.claims++
			r.proven += len(cluster.Encode([]cluster.Record{rec}))
		default:
			r.live++
		}
	}
	r.vnids, r.digest = len(h.core.state.seen), len(h.replica.Digest())
	if info, err := os.Stat(h.path); err == nil {
		r.file = info.Size()
	}
	return r
}

func (r remains) String() string {
	return fmt.Sprintf("%d live records, %d claims of %d kB, %d tombstones, %d of hosts, %d VNIDs rest, digest %d bytes, file %d kB",
		r.live, r.claims, r.proven>>10, r.tombstones, r.nodes, r.vnids, r.digest, r.file>>10)
}

// TestSoak has networks, containers and hosts come and go, -soak of them in all, in virtual
// time. At its end nobody who has gone owns anything, nor anybody a piece of a network; after
// three more days all else is what it was, but what is remembered of hosts for good. Hosts
// may have other parts of what they make networks of than before, as guests had some.
func TestSoak(t *testing.T) {
	w := newWorld(t, 3)
	for _, h := range w.hosts {
		h.stockUp(ctx)
		w.spread()
	}
	w.homecoming()
	w.hour()
	before := w.hosts[0].remains()
	rnd := rand.New(rand.NewPCG(1, 2))
	networks, containers, guests, hours, most := 0, 0, 0, 0, remains{}
	var guest *host
	for hour := w.now.Add(time.Hour); networks+containers+guests < *soak; networks++ {
		w.now = w.now.Add(soakStep)
		if w.now.After(hour) {
			hour = w.now.Add(time.Hour)
			w.hour()
			if r := w.hosts[0].remains(); r.tombstones > most.tombstones {
				most = r
			}
			if hours++; hours%24 == 0 {
				t.Logf("day %d: %d networks, %d containers, %d hosts: %v", hours/24, networks, containers, guests, w.hosts[0].remains())
			}
		}
		switch {
		case networks%guestEach == guestEach/2:
			guests++
			guest = w.come(1000 + guests)
		case guest != nil && networks%guestEach == guestEach-1:
			w.goes(guest, guests%2 == 0)
			guest = nil
		}
		h, name := w.hosts[rnd.IntN(len(w.hosts))], fmt.Sprintf("ci%d", networks)
		p := get(h.Prefix(ctx, 4, 24, 0))(t)
		h.announceVNID(name, p, get(h.VNID(ctx))(t))
		must(t, h.vnids.restVNIDs())
		for range rnd.IntN(4) {
			containers++
			o := w.hosts[rnd.IntN(len(w.hosts))]
			w.gossip(h, o)
			w.container(o, containers, name, p)
			w.gossip(o, h)
		}
		acts := []func(){func() { h.retire(name, p) }}
		for _, o := range w.hosts {
			if o != h && rnd.IntN(2) == 0 {
				acts = append(acts, func() { w.gossip(h, o); o.stockUp(ctx); w.gossip(o, h) })
			}
		}
		rnd.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })
		for _, act := range acts {
			act()
		}
		if rnd.IntN(4) == 0 {
			w.spread()
		}
		must(t, w.hosts[rnd.IntN(len(w.hosts))].homing.sendHome())
	}
	if guest != nil {
		w.goes(guest, false)
	}
	w.homecoming()
	w.hour() // tombstones count from here
	at := w.hosts[0].remains()
	w.now = w.now.Add(100 * time.Hour)
	w.hour()
	after := w.hosts[0].remains()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%d networks, %d containers, %d hosts in %s of virtual time", networks, containers, guests, w.now.Sub(time.Unix(1_700_000_000, 0)))
	t.Logf("before: %v", before)
	t.Logf("at most: %v", most)
	t.Logf("at the end: %v", at)
	t.Logf("later: %v; heap %d kB", after, m.HeapAlloc>>10)
	if left := w.pieces(); left != "" {
		t.Errorf("pieces of networks that are gone:\n%s", left)
	}
	if list := w.ownerless(w.hosts[0]); len(list) > 0 {
		t.Errorf("hosts that are gone own %v", list)
	}
	if after.live != before.live || after.tombstones > 0 || after.vnids > 0 || after.nodes != guests || after.claims > 256*8 {
		t.Errorf("before: %v; after: %v", before, after)
	}
	for _, h := range w.hosts {
		if len(h.core.state.leases)+len(h.core.state.pools)+len(h.core.state.vnids) > 0 || len(h.core.state.cursors) > 64 || len(h.asker.backoff.until) > 1000 {
			t.Errorf("%s: %d leases, %d pools, %d VNIDs, %d cursors, %d tries", h.id, len(h.core.state.leases), len(h.core.state.pools), len(h.core.state.vnids), len(h.core.state.cursors), len(h.asker.backoff.until))
		}
	}
	_ = get(w.hosts[2].Prefix(ctx, 4, 17, 0))(t) // half of all, as at first
}

// TestSoakOfHosts has hosts come and go, a tenth of -soak, every other one dead and forgotten.
func TestSoakOfHosts(t *testing.T) {
	w := newWorld(t, 3)
	for _, h := range w.hosts {
		h.stockUp(ctx)
		w.spread()
	}
	p := w.network(w.hosts[0], "lives on", 0)
	w.spread()
	for _, h := range w.hosts {
		_ = get(h.Address(ctx, p, anywhere, anyAddr))(t)
	}
	w.homecoming()
	w.hour()
	owners, before := w.owners(), w.hosts[0].remains()
	for i := range *soak / 10 {
		g := w.come(1000 + i)
		addr := get(g.Address(ctx, p, anywhere, anyAddr))(t)
		must(t, g.Release(addr))
		w.goes(g, i%2 == 0)
		if w.now = w.now.Add(time.Minute); i%60 == 59 {
			w.hour()
		}
	}
	w.homecoming()
	w.hour()
	w.now = w.now.Add(100 * time.Hour)
	w.hour()
	after := w.hosts[0].remains()
	t.Logf("before: %v", before)
	t.Logf("after %d hosts: %v", *soak/10, after)
	for _, h := range w.hosts {
		t.Logf("%s: %d promises, %d attempts, %d withdrawn", h.id, len(h.core.state.promises), len(h.core.state.attempts), len(h.forgetter.withdrawn))
	}
	if now := w.owners(); now != owners {
		t.Errorf("before:\n%safter:\n%s", owners, now)
	}
	if after.live != before.live || after.tombstones > 0 || after.nodes != *soak/10 {
		t.Errorf("before: %v; after: %v", before, after)
	}
}

// TestGuestsLeaveNoProofs has many hosts come, have a share of a network, and leave or die and be forgotten. What they said of the
// same few blocks is not remembered in ever more claims, nor in larger ones; and a host that knows no more than what was said
// at any time before believes all that is claimed at the end.
func TestGuestsLeaveNoProofs(t *testing.T) {
	w := newWorld(t, 4)
	off := w.hosts[3]
	for _, h := range w.hosts[:3] {
		h.stockUp(ctx)
		w.spread()
	}
	const guests, first = 160, 40
	rnd := rand.New(rand.NewPCG(1, 2))
	var early remains
	var images []string
	for i := range guests {
		if i%16 == 8 {
			must(t, off.replica.Flush(ctx))
			images = append(images, fmt.Sprintf("%s.%d", off.path, i))
			must(t, os.WriteFile(images[len(images)-1], get(os.ReadFile(off.path))(t), 0o600))
		}
		g, h, name := w.come(1000+i), w.hosts[rnd.IntN(3)], fmt.Sprintf("ci%d", i)
		p := get(h.Prefix(ctx, 4, 19, 0))(t)
		h.announce(name, p)
		w.spread()
		some := []*host{g, w.hosts[rnd.IntN(3)]}
		rnd.Shuffle(2, func(i, j int) { some[i], some[j] = some[j], some[i] })
		for _, o := range some {
			for range 2 {
				must(t, o.Release(get(o.Address(ctx, p, anywhere, anyAddr))(t)))
			}
		}
		h.retire(name, p)
		w.homecoming()
		w.goes(g, i%2 == 0)
		if i == first {
			early = w.hosts[0].remains()
		}
	}
	w.homecoming()
	late := w.hosts[0].remains()
	t.Logf("after %d guests: %v", first, early)
	t.Logf("after %d guests: %v", guests, late)
	if late.claims > early.claims*5/4 || late.proven > early.proven*3/2 {
		t.Errorf("after %d guests %d claims of %d bytes, after %d guests %d of %d", first, early.claims, early.proven, guests, late.claims, late.proven)
	}
	for _, path := range images {
		db := get(store.Open(path))(t)
		r := get(replica.Open(db, off.id))(t)
		for msg := range w.hosts[0].replica.Missing(r.Digest(), 1<<20) {
			_ = get(r.Merge(msg))(t)
		}
		if want, got := slices.Collect(w.hosts[0].replica.Snapshot().Ring().Claims()), slices.Collect(r.Snapshot().Ring().Claims()); !slices.Equal(want, got) {
			t.Errorf("%s: who was off since believes\n%v\nwant\n%v", path, got, want)
		}
		must(t, db.Close())
	}
}
