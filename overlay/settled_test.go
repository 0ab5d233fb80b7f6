package overlay

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
)

// TestSettled: as long as the switch may have flows of a former life, no endpoint's port is added; the flows are
// in place first, and the port comes in the same pass.
func TestSettled(t *testing.T) {
	h := newHost(t)
	a := h.container('a', "blue", "10.128.0.7", "10.128.0.1")
	h.stop()
	b := endpoint(me, 'b', "red", "10.129.0.8")
	ovstest.Container(t, "b", link.PortName(b.ID), macOf('b'), "10.129.0.8/22", "10.129.0.1")
	h.put(b)

	var settled atomic.Bool
	h.settled = settled.Load
	h.inPlace = func(ctx context.Context) error {
		state, err := h.bridge.State(ctx)
		if err != nil {
			return err
		}
		if _, there := state.Ports[link.PortName(a.ID)]; !there {
			t.Error("a port that was there has gone")
		}
		if _, there := state.Ports[link.PortName(b.ID)]; there && !settled.Load() {
			t.Error("a port was added before the flows were in place")
		}
		settled.Store(true)
		return nil
	}
	h.start()
	if err := h.Attach(t.Context(), b.ID, link.PortName(b.ID)); err != nil {
		t.Fatal(err)
	}
	if !settled.Load() {
		t.Error("attached before the flows were in place")
	}
	h.reaches("b", "10.129.0.1")
}
