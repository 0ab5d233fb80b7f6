package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// TestConcerned: what comes and goes on other hosts is no work for Run, and all else is.
func TestConcerned(t *testing.T) {
	w := newWorld(t, 2)
	h, other := w.hosts[0], w.hosts[1]
	endpoint := func(on *host, id string) cluster.Endpoint {
		return cluster.Endpoint{ID: id, Network: "blue", Host: on.id, MAC: "02:42:0a:80:00:02", Container: id, Addrs: []netip.Addr{netip.MustParseAddr("10.128.0.9")}}
	}
	for _, c := range []struct {
		what      string
		by        *host
		write     func(*replica.Tx) error
		concerned bool
	}{
		{"nothing", h, func(*replica.Tx) error { return nil }, false},
		{"another host's endpoint", other, func(tx *replica.Tx) error { return tx.Put(endpoint(other, "a")) }, false},
		{"another host's use", other, func(tx *replica.Tx) error { return tx.Put(cluster.Use{Network: "blue", Host: other.id}) }, false},
		{"the end of another host's endpoint", other, func(tx *replica.Tx) error { tx.Delete(endpoint(other, "a").Key()); return nil }, false},
		{"an endpoint here", h, func(tx *replica.Tx) error { return tx.Put(endpoint(h, "b")) }, true},
		{"the end of an endpoint here", h, func(tx *replica.Tx) error { tx.Delete(endpoint(h, "b").Key()); return nil }, true},
		{"a network", other, func(tx *replica.Tx) error { return tx.Put(cluster.Network{Name: "blue", VNID: 7}) }, true},
		{"the end of a network", other, func(tx *replica.Tx) error { tx.Delete(cluster.Network{Name: "blue"}.Key()); return nil }, true},
	} {
		before := h.replica.Snapshot()
		_, err := c.by.replica.Update(c.write)
		must(t, err)
		w.spread()
		if got := h.concerned(before, h.replica.Snapshot()); got != c.concerned {
			t.Errorf("%s: concerned is %v", c.what, got)
		}
	}
	if !h.concerned(nil, h.replica.Snapshot()) {
		t.Error("not concerned at its start")
	}
}

// TestStockUpOfMoreHostsThanNetworks: there are prefixes for two hosts, and six hosts. Those
// who get none do not go on asking hosts that have none to spare.
func TestStockUpOfMoreHostsThanNetworks(t *testing.T) {
	w := newWorld(t, 6)
	for _, h := range w.hosts {
		h.bits = 17
		h.restart()
	}
	stockUp := func() {
		for _, h := range w.hosts {
			h.stockUp(ctx)
			w.spread()
		}
		w.now = w.now.Add(time.Hour) // nobody is made to wait
	}
	stockUp()
	stockUp()
	w.calls.Store(0)
	stockUp()
	if w.calls.Load() > 0 {
		t.Errorf("%d calls for what nobody has", w.calls.Load())
	}
	poor := slices.IndexFunc(w.hosts, func(h *host) bool {
		return !h.prefixes.hasPrefix(room{cidr: netip.MustParsePrefix("10.128.0.0/16")}, 17)
	})
	_ = get(w.hosts[poor].Prefix(ctx, 4, 17, 0))(t) // who needs one gets it all the same
}

// TestRefusalBringsClaimsToWhoNeedsThem: they help to find another host to ask, at once.
func TestRefusalBringsClaimsToWhoNeedsThem(t *testing.T) {
	w := newWorld(t, 2)
	for range 2 {
		_ = get(w.hosts[0].Prefix(ctx, 4, 17, 0))(t)
	}
	for _, need := range []bool{false, true} {
		t.Run(fmt.Sprintf("need=%v", need), func(t *testing.T) {
			space := netip.MustParsePrefix("10.128.0.0/16")
			body := get(encode(askGive{Kind: giveSpace, Within: space, Unit: 17, Need: need}))(t)
			reply := get(decode[replyGive](get(w.hosts[0].giver.serveGive(ctx, string(w.hosts[1].id), body))(t)))(t)
			if reply.Refused == "" || (len(reply.Claims) > 0) != need {
				t.Errorf("refused with %q and %d bytes of claims", reply.Refused, len(reply.Claims))
			}
		})
	}
}
