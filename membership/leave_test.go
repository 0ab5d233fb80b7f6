package membership

import (
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/membership/identity"
)

// TestLeftOnAFullDisk: the note that a host has left is there after its state has made room for it:
// else it would join again at the next boot.
func TestLeftOnAFullDisk(t *testing.T) { virtual(t, testLeftOnAFullDisk) }

func testLeftOnAFullDisk(t *testing.T) {
	dir := smallDisk(t, "16m")
	h := newHost(t, 1, dir, 1)
	fill(t, dir)
	if h.Leaver.Depart(t.Context(), ""); h.Leaver.noted == nil {
		t.Fatal("the disk is not full")
	}
	if err := h.Leaver.Erase(); err != nil {
		t.Error(err)
	}
	left, there, err := identity.LoadLeft(dir)
	if !there || err != nil || left.Node != h.id.Node {
		t.Errorf("the note: %+v, %v, %v", left, there, err)
	}
}

// TestLeaveWithoutAnEnd: a host whose leave failed on the way hands out nothing, and says so.
func TestLeaveWithoutAnEnd(t *testing.T) { virtual(t, testLeaveWithoutAnEnd) }

func testLeaveWithoutAnEnd(t *testing.T) {
	one := newHost(t, 1, t.TempDir(), 1, 2).run()
	two := newHost(t, 2, t.TempDir(), 1, 2).run()
	eventually(t, "host2 joins", func() bool { return two.member() && len(one.gossip.Alive()) == 1 })
	one.stop()
	if err := two.Leaver.giveAway(t.Context(), false); err == nil || !two.alloc.Leaving() {
		t.Fatalf("it leaves, though its heir has just ended: %v", err)
	}
	if _, err := two.alloc.VNID(t.Context()); err == nil {
		t.Error("it hands out a VNID")
	}
	if what := two.whats(); !strings.Contains(what, "is leaving its cluster, and `grapevine leave` has not come to its end") {
		t.Errorf("it says: %s", what)
	}
}
