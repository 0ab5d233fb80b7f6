package ipam

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

func TestTakeover(t *testing.T) {
	w := newWorld(t, 3)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	p := w.network(a, "blue", 0)
	w.spread()
	addr := get(b.Address(ctx, p, anywhere, anyAddr))(t)
	w.spread()
	// a gives c something that b has not heard of, and dies.
	kept := get(c.Address(ctx, p, anywhere, anyAddr))(t)
	if err := b.Takeover(ctx, a.id); err == nil || !strings.Contains(err.Error(), "is alive") {
		t.Fatalf("took over from the living: %v", err)
	}
	a.down = true
	must(t, b.Takeover(ctx, a.id))
	w.spread()
	must(t, b.Takeover(ctx, a.id)) // again
	snap := b.replica.Snapshot()
	if n := snap.Ring().Counts(p); n[a.id] != 0 || n[c.id] == 0 || n[b.id] == 0 {
		t.Errorf("owners after the takeover: %v", n)
	}
	if !snap.Tombstone(cluster.Node{ID: a.id}.Key()) {
		t.Error("the dead host's record is there")
	}
	if !c.replica.Snapshot().Ring().OwnsAll(c.id, single(kept)) || !b.replica.Snapshot().Ring().OwnsAll(b.id, single(addr)) {
		t.Error("a living host lost what it had")
	}
	for range 40 {
		_ = get(b.Address(ctx, p, anywhere, anyAddr))(t)
		_ = get(c.Address(ctx, p, anywhere, anyAddr))(t)
	}
	w.unique(t)
	// What the dead gives away now is not believed.
	a.down = false
	if err := c.asker.askPeer(ctx, a.id, askGive{Kind: giveShare, Within: p}); err == nil || !strings.Contains(err.Error(), "being forgotten") {
		t.Errorf("took a share from the dead: %v", err)
	}
	if err := a.asker.askPeer(ctx, b.id, askGive{Kind: giveShare, Within: p}); err == nil || !strings.Contains(err.Error(), "was forgotten") {
		t.Errorf("gave the dead a share: %v", err)
	}
}

func TestTakeoverNeedsEveryHost(t *testing.T) {
	w := newWorld(t, 4)
	a, b, c, d := w.hosts[0], w.hosts[1], w.hosts[2], w.hosts[3]
	a.down, d.down = true, true
	err := b.Takeover(ctx, a.id)
	if err == nil || !strings.Contains(err.Error(), "h4 (0000000000000004) does not answer") {
		t.Fatalf("without h4: %v", err)
	}
	must(t, b.Takeover(ctx, a.id, d.id)) // both dead
	w.spread()
	if n := c.replica.Snapshot().Ring().Counts(everything[0]); len(n) != 1 || n[b.id] == 0 {
		t.Errorf("owners: %v", n)
	}
}

func TestTwoHeirs(t *testing.T) {
	w := newWorld(t, 4)
	a, b, c, d := w.hosts[0], w.hosts[1], w.hosts[2], w.hosts[3]
	a.down = true
	// b has the promise of d, but not of c, which is cut off from it after that.
	must(t, b.forgetter.promise(b.id, []cluster.NodeID{a.id}, 1))
	must(t, b.forgetter.askPromise(ctx, d.id, []cluster.NodeID{a.id}, 1))
	err := c.Takeover(ctx, a.id)
	if err == nil || !strings.Contains(err.Error(), "nothing was changed") {
		t.Fatalf("two heirs: %v", err)
	}
	if c.core.heir(a.id) != "" || d.core.heir(a.id) != b.id || b.core.heir(a.id) != b.id {
		t.Errorf("promises after a refusal: %q %q %q", b.core.heir(a.id), c.core.heir(a.id), d.core.heir(a.id))
	}
	d.restart() // a promise is durable
	if d.core.heir(a.id) != b.id {
		t.Error("the promise was lost")
	}
	must(t, b.Takeover(ctx, a.id))
	w.spread()
	if err := c.Takeover(ctx, a.id); err == nil || !strings.Contains(err.Error(), "at host h2") {
		t.Errorf("a second heir: %v", err)
	}
}

func TestHeirDiesUnheard(t *testing.T) {
	w := newWorld(t, 4)
	a, b, c, d := w.hosts[0], w.hosts[1], w.hosts[2], w.hosts[3]
	a.down = true
	must(t, b.Takeover(ctx, a.id))
	b.down = true // before anybody heard of its claims
	if err := c.Takeover(ctx, a.id); err == nil {
		t.Fatal("took over although the heir may have done so")
	}
	must(t, c.Takeover(ctx, a.id, b.id))
	w.spread()
	if n := d.replica.Snapshot().Ring().Counts(everything[0]); n[a.id] != 0 || n[b.id] != 0 {
		t.Errorf("the dead still own: %v", n)
	}
	w.unique(t)
}

func TestWithdrawnAfterFailure(t *testing.T) {
	w := newWorld(t, 3)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	w.cut[[2]cluster.NodeID{b.id, a.id}] = true // only b thinks that a is dead
	err := b.Takeover(ctx, a.id)
	if err == nil || !strings.Contains(err.Error(), "is alive for host h3") {
		t.Fatalf("took over from a host that others see: %v", err)
	}
	if b.core.heir(a.id) != "" || c.core.heir(a.id) != "" {
		t.Error("promises are left")
	}
}

// Nobody gives or takes back a promise in another host's name, nor says again what it once said.
func TestForgetInAnothersName(t *testing.T) {
	w := newWorld(t, 4)
	a, b, c, d := w.hosts[0], w.hosts[1], w.hosts[2], w.hosts[3]
	a.down = true
	dead := []cluster.NodeID{a.id}
	// b tries, and takes it back since d is cut off.
	var mu sync.Mutex
	var recorded [][]byte // what b says to c
	w.heard = func(from, to cluster.NodeID, method string, body []byte) {
		mu.Lock()
		defer mu.Unlock()
		if from == b.id && to == c.id && method == methodForget {
			recorded = append(recorded, body)
		}
	}
	w.fakes = map[cluster.NodeID]func(string, []byte) ([]byte, error){
		d.id: func(string, []byte) ([]byte, error) { return encode(replyForget{}) },
	}
	if err := b.Takeover(ctx, a.id); err == nil || !strings.Contains(err.Error(), "not signed by it") {
		t.Fatalf("a promise that is not signed: %v", err)
	}
	if len(recorded) != 2 || c.core.heir(a.id) != "" {
		t.Fatalf("%d calls, and the heir is %q", len(recorded), c.core.heir(a.id))
	}
	if reply, _ := c.forgetter.serveForget(ctx, string(b.id), recorded[0]); c.core.heir(a.id) != "" {
		t.Errorf("what was taken back is promised again: %s", reply)
	}
	w.fakes = nil
	attempt := get(b.forgetter.promiseSelf(ctx, dead))(t)
	must(t, b.forgetter.askPromise(ctx, c.id, dead, attempt))
	forged := askForget{Dead: dead, Attempt: attempt, Withdraw: true}
	forged.Signature = get(d.forgetter.signWord(forgetWord{Heir: b.id, Promiser: c.id, Dead: dead, Attempt: attempt, Withdraw: true}))(t)
	for what, body := range map[string][]byte{"unsigned": get(encode(askForget{Dead: dead, Attempt: attempt, Withdraw: true}))(t), "another's": get(encode(forged))(t), "recorded": recorded[1]} {
		if _, err := c.forgetter.serveForget(ctx, string(b.id), body); c.core.heir(a.id) != b.id {
			t.Fatalf("%s: a promise was taken back: %v", what, err)
		}
	}
	if err := d.Takeover(ctx, a.id); err == nil {
		t.Error("two heirs")
	}
	must(t, b.Takeover(ctx, a.id))
}

// Who takes over without having been promised it is not believed by those who promised another.
func TestOnlyTheHeirForgets(t *testing.T) {
	w := newWorld(t, 4)
	a, b, c, thief := w.hosts[0], w.hosts[1], w.hosts[2], w.hosts[3]
	a.down = true
	dead := []cluster.NodeID{a.id}
	attempt := get(b.forgetter.promiseSelf(ctx, dead))(t)
	must(t, b.forgetter.askPromise(ctx, c.id, dead, attempt))
	must(t, thief.forgetter.inherit(dead))
	w.gossip(thief, c)
	w.gossip(thief, b)
	for _, h := range []*host{b, c} {
		snap := h.replica.Snapshot()
		if snap.Tombstone(cluster.Node{ID: a.id}.Key()) || snap.Ring().Counts(everything[0])[thief.id] != 0 {
			t.Errorf("%s believes who was promised nothing: %v", h.id, snap.Ring().Counts(everything[0]))
		}
	}
	must(t, b.forgetter.inherit(dead))
	w.gossip(b, c)
	if !c.replica.Snapshot().Ring().OwnsAll(b.id, everything[0]) {
		t.Errorf("the heir has not got all: %v", c.replica.Snapshot().Ring().Counts(everything[0]))
	}
}

// A host that proves that it is there is not forgotten, whatever gossip says.
func TestPresentIsNotForgotten(t *testing.T) {
	w := newWorld(t, 3)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	a.down = true
	c.core.cfg.Present = func(_ context.Context, id cluster.NodeID) bool { return id == a.id }
	if err := b.Takeover(ctx, a.id); err == nil || !strings.Contains(err.Error(), "is alive: host h3") {
		t.Errorf("forgot a host that is there: %v", err)
	}
	if b.core.heir(a.id) != "" || c.core.heir(a.id) != "" {
		t.Error("promises are left")
	}
}

// A host that was forgotten, and has not heard of it, gets no promise.
func TestForgottenForgetsNobody(t *testing.T) {
	w := newWorld(t, 4)
	gone, heir := w.hosts[0], w.hosts[1]
	gone.down = true
	must(t, heir.Takeover(ctx, gone.id))
	w.spread()
	gone.down, heir.down = false, true
	if err := gone.Takeover(ctx, heir.id); err == nil || !strings.Contains(err.Error(), "was forgotten by the cluster") {
		t.Errorf("a forgotten host forgets another one: %v", err)
	}
	for _, h := range w.hosts[2:] {
		if h.core.heir(heir.id) != "" {
			t.Errorf("%s has promised so", h.id)
		}
	}
}

// Unasked one host forgets, on one side of a cut, and only while it keeps more than half of all.
func TestTakeoverUnasked(t *testing.T) {
	w := newWorld(t, 5)
	first, heir := w.hosts[0], w.hosts[1]
	for _, h := range w.hosts {
		h.stockUp(ctx) // ranges are everywhere, and the right to decide is where it was
	}
	w.spread()
	last := w.hosts[4]
	last.down = true
	for _, h := range w.hosts[1:4] {
		if err := h.TakeoverUnasked(ctx, last.id); !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("%s, which is not to decide: %v", h.id, err)
		}
	}
	must(t, first.TakeoverUnasked(ctx, last.id))
	w.spread()
	// Two of four are no more than half.
	w.hosts[2].down, w.hosts[3].down = true, true
	err := first.TakeoverUnasked(ctx, w.hosts[2].id, w.hosts[3].id)
	if err == nil || !strings.Contains(err.Error(), "2 of 4 hosts do not answer") {
		t.Errorf("forgot half of all: %v", err)
	}
	w.hosts[2].down, w.hosts[3].down = false, false
	// Who takes over from the first one decides from then on.
	first.down = true
	if err := heir.TakeoverUnasked(ctx, first.id); !errors.Is(err, ErrNotCoordinator) {
		t.Errorf("the one that decides was forgotten unasked: %v", err)
	}
	must(t, heir.Takeover(ctx, first.id))
	w.spread()
	if heir.Coordinator() != heir.id || w.hosts[2].Coordinator() != heir.id {
		t.Errorf("who decides: %q and %q", heir.Coordinator(), w.hosts[2].Coordinator())
	}
	w.hosts[3].down = true
	must(t, heir.TakeoverUnasked(ctx, w.hosts[3].id))
	w.unique(t)
}

func TestLeave(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	p := w.network(a, "blue", 0)
	w.spread()
	addr := get(a.Address(ctx, p, anywhere, anyAddr))(t)
	if err := a.Leave(ctx); err == nil || !strings.Contains(err.Error(), "1 addresses are in use") {
		t.Fatalf("left with a lease: %v", err)
	}
	must(t, a.Release(addr))
	w.loseReplies = true
	if err := a.Leave(ctx); err == nil {
		t.Fatal("left although the heir did not confirm")
	}
	w.loseReplies = false
	must(t, a.Leave(ctx))
	if !b.replica.Snapshot().Ring().OwnsAll(b.id, netip.MustParsePrefix("0.0.0.0/0")) {
		t.Error("the heir has not got everything")
	}
	if _, err := a.Address(ctx, p, anywhere, anyAddr); err == nil {
		t.Error("an address from a host that has left")
	}
}

// TestGiftHeardOfTooLate: the dead host gave something away of which nobody heard, and
// is alive after all.
func TestGiftHeardOfTooLate(t *testing.T) {
	w := newWorld(t, 3)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	p := w.network(a, "blue", 0)
	w.spread()
	want := p.Addr().Next().Next()
	w.loseReplies = true
	if _, err := c.Address(ctx, p, anywhere, want); err == nil {
		t.Fatal("an address without a reply")
	}
	w.loseReplies = false
	if !a.replica.Snapshot().Ring().OwnsAll(c.id, single(want)) {
		t.Fatal("nothing was given")
	}
	a.down = true
	must(t, b.Takeover(ctx, a.id))
	a.down, a.gone = false, true
	w.gossip(a, c)
	_, _ = c.Address(ctx, p, anywhere, want)
	_, _ = b.Address(ctx, p, anywhere, want)
	w.unique(t)
	w.spread()
	w.unique(t)
}

// TestVNIDsRestAtTheHeir: a host that was cut off may still have a network that is deleted. So
// its VNID rests, also where the host that has handed it out leaves or is forgotten.
func TestVNIDsRestAtTheHeir(t *testing.T) {
	for name, end := range map[string]func(w *world, gone *host) error{
		"leaves": func(_ *world, gone *host) error { return gone.Leave(ctx) },
		"is forgotten": func(w *world, gone *host) error {
			gone.down = true
			return w.hosts[1].Takeover(ctx, gone.id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			gone := w.hosts[0]
			v := get(gone.VNID(ctx))(t)
			key := cluster.Network{Name: "red", VNID: v}
			_ = get(gone.replica.Update(func(tx *replica.Tx) error { return tx.Put(key) }))(t)
			w.spread()
			for _, h := range w.hosts {
				must(t, h.vnids.restVNIDs())
			}
			_ = get(gone.replica.Update(func(tx *replica.Tx) error { tx.Delete(key.Key()); return nil }))(t)
			w.spread()
			must(t, end(w, gone))
			w.spread()
			for _, h := range w.hosts[1:] {
				h.restart()
				must(t, h.vnids.restVNIDs())
				if err := h.VNIDExact(ctx, v, "blue"); err == nil {
					t.Errorf("%s hands VNID %d out again at once", h.id, v)
				}
			}
			w.now = w.now.Add(2 * vnidRest)
			for _, h := range w.hosts[1:] {
				must(t, h.vnids.restVNIDs())
			}
			must(t, w.hosts[1].VNIDExact(ctx, v, "blue"))
		})
	}
}
