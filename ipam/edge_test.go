package ipam

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// edges makes hosts that have no Docker of some.
func (w *world) edges(list ...*host) {
	for _, h := range list {
		h.core.cfg.Edge = true
		_ = get(h.replica.Update(func(tx *replica.Tx) error {
			return tx.Put(cluster.Node{ID: h.id, Name: "h" + string(h.id[15:]), Edge: true})
		}))(w.t)
	}
	w.spread()
}

func (h *host) owns() []netip.Prefix {
	r := h.replica.Snapshot().Ring()
	return slices.Concat(r.Owned(h.id, everything[0]), r.Owned(h.id, everything[1]))
}

// TestEdgeTakesNothing: a host without Docker hands nothing out, and asks for nothing.
func TestEdgeTakesNothing(t *testing.T) {
	w := newWorld(t, 2)
	edge := w.hosts[1]
	w.edges(edge)
	blue := w.network(w.hosts[0], "blue", 0)
	w.spread()
	calls := w.calls.Load()
	for what, try := range map[string]func() error{
		"an address": func() error { _, err := edge.Address(ctx, blue, anywhere, anyAddr); return err },
		"a prefix":   func() error { _, err := edge.Prefix(ctx, 4, 24, 0); return err },
		"a pool":     func() error { return edge.Pool(ctx, PoolID{Prefix: netip.MustParsePrefix("10.9.0.0/24")}, 0) },
		"a VNID":     func() error { _, err := edge.VNID(ctx); return err },
		"that VNID":  func() error { return edge.VNIDExact(ctx, 7, "blue") },
	} {
		if err := try(); !errors.Is(err, ErrEdge) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if asked := w.calls.Load() - calls; asked > 0 || len(edge.owns()) > 0 {
		t.Errorf("it asked %d times, and owns %v", asked, edge.owns())
	}
}

// TestEdgeGivesAway: what a host without Docker owns all the same goes to a host that has use for it, but for what is leased;
// and it stays where it is while there is none.
func TestEdgeGivesAway(t *testing.T) {
	w := newWorld(t, 3)
	first, other, edge := w.hosts[0], w.hosts[1], w.hosts[2]
	blue := w.network(first, "blue", 0)
	w.spread()
	leased := get(edge.Address(ctx, blue, anywhere, anyAddr))(t) // while it had Docker
	w.edges(edge)
	must(t, edge.leaver.shed())
	if got := edge.owns(); !slices.Equal(got, []netip.Prefix{single(leased)}) {
		t.Errorf("it still owns %v, and has leased %s", got, leased)
	}
	must(t, edge.Release(leased))
	must(t, edge.leaver.shed())
	if got := edge.owns(); len(got) > 0 {
		t.Errorf("it still owns %v", got)
	}
	w.spread()
	w.unique(t)

	// Nobody but hosts without Docker is there: who leaves gives all to one, which keeps it until another host is there.
	other.down = true
	first.leaves()
	w.spread()
	if len(edge.owns()) == 0 {
		t.Fatal("what the last host with Docker had is nobody's")
	}
	must(t, edge.leaver.shed())
	if len(edge.owns()) == 0 {
		t.Error("given away, to nobody")
	}
	first.down, other.down = true, false
	w.spread()
	must(t, edge.leaver.shed())
	if got := edge.owns(); len(got) > 0 {
		t.Errorf("it owns %v though another host is there", got)
	}
}

// TestNobodyLeavesToAnEdge: a host without Docker has the least of all, and is no heir.
func TestNobodyLeavesToAnEdge(t *testing.T) {
	w := newWorld(t, 3)
	w.edges(w.hosts[1])
	w.hosts[0].leaves()
	w.spread()
	if got := w.hosts[1].owns(); len(got) > 0 {
		t.Errorf("the edge has %v", got)
	}
	if len(w.hosts[2].owns()) == 0 {
		t.Error("the other host has nothing")
	}
}
