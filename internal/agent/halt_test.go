package agent

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/internal/backup"
	"github.com/grapevine-net/grapevine/internal/identity"
	"github.com/grapevine-net/grapevine/replica"
)

// whats joins what a host's problems say.
func (h *host) whats() string {
	var all []string
	for _, p := range h.membershipProblems(h.replica.Snapshot()) {
		all = append(all, p.What)
	}
	return strings.Join(all, "\n")
}

// TestClone runs two hosts with one state directory's content: all are told, and
// neither hands out anything.
func TestClone(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	one := newHost(t, 1, t.TempDir(), 1, 2).run()
	two := newHost(t, 2, dir, 1, 2).run()
	eventually(t, "host2 joins", func() bool { return two.member() && len(one.gossip.Alive()) == 1 })
	if _, err := two.alloc.VNID(ctx); err != nil {
		t.Fatal(err)
	}
	two.stop()
	copied := t.TempDir()
	if err := os.CopyFS(filepath.Join(copied, "state"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	two = newHost(t, 2, dir, 1, 2).run()
	vtep := func() netip.Addr {
		n, _ := cluster.Get[cluster.Node](one.replica.Snapshot(), two.id.Node)
		return n.VTEP
	}
	eventually(t, "host2 is back", func() bool {
		return len(one.gossip.Alive()) == 1 && len(two.gossip.Alive()) == 1 && vtep() == two.underlay.Addr
	})
	clone := newHost(t, 3, filepath.Join(copied, "state"), 1, 2).run()
	for _, h := range []*host{two, clone} {
		eventually(t, "both know", func() bool { return h.halt() != nil && h.whats() != "" })
		if _, err := h.alloc.VNID(ctx); err == nil || !strings.Contains(err.Error(), "hands out no addresses") {
			t.Errorf("a doubled host hands out a VNID: %v", err)
		}
	}
	// What is for the original does not go to its copy.
	if vtep() != two.underlay.Addr {
		t.Errorf("host1 takes %v for the VTEP of host2, which is %v", vtep(), two.underlay.Addr)
	}
	if _, err := clone.replica.Update(func(tx *replica.Tx) error { return tx.Put(cluster.Network{Name: "x"}) }); !errors.Is(err, errElsewhere) {
		t.Errorf("the copy writes: %v", err)
	}
	eventually(t, "the other host names them", func() bool {
		return strings.Contains(strings.Join(one.gossip.Problems(), "\n"), "same node ID "+two.id.Node)
	})
}

func (h *host) backUp(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := h.backup(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestRestore: a backup that has everything goes on where it was; one from before
// this host gave something away does not, whatever it is asked.
func TestRestore(t *testing.T) {
	ctx := context.Background()
	one := newHost(t, 1, t.TempDir(), 1, 2).run()
	two := newHost(t, 2, t.TempDir(), 1, 2).run()
	eventually(t, "host2 joins", func() bool { return two.member() && len(one.gossip.Alive()) == 1 })
	old := one.backUp(t)
	if _, err := two.alloc.VNID(ctx); err != nil { // from host1
		t.Fatal(err)
	}
	eventually(t, "all is told", func() bool { return bytes.Equal(one.replica.Digest(), two.replica.Digest()) })
	recent := one.backUp(t)
	one.stop()

	again := func(tar []byte) *host {
		dir := filepath.Join(t.TempDir(), "state")
		if _, err := backup.Restore(bytes.NewReader(tar), dir, false); err != nil {
			t.Fatal(err)
		}
		h := newHost(t, 1, dir, 1, 2)
		h.unproven.Store(h.id.Restored)
		return h.run()
	}
	late := again(old)
	eventually(t, "the old backup is found out", func() bool { return errors.Is(late.replica.Trouble(), cluster.ErrLostWrites) })
	if _, err := late.alloc.VNID(ctx); err == nil {
		t.Error("it hands out what it has given away")
	}
	if _, err := late.replica.Update(func(tx *replica.Tx) error { return tx.Put(cluster.Network{Name: "x"}) }); !errors.Is(err, errUnproven) {
		t.Errorf("it writes: %v", err)
	}
	late.stop()

	two.stop() // nobody is there who could agree
	good := again(recent)
	if _, err := good.alloc.VNID(ctx); !errors.Is(err, errUnproven) || !strings.Contains(good.whats(), "restored from a backup") {
		t.Errorf("alone: %v; problems: %s", err, good.whats())
	}
	two = newHost(t, 2, two.cfg.State, 1, 2).run()
	eventually(t, "the recent backup is good", func() bool { return good.halt() == nil && good.member() })
	if _, err := good.alloc.VNID(ctx); err != nil {
		t.Error(err)
	}
	if id, err := identity.Load(good.cfg.State); err != nil || id.Restored {
		t.Errorf("after a restart it would ask again: %+v, %v", id, err)
	}
}

// TestHalfAStateIsRefused: without one of its two files a state directory is
// nobody's; the error names both and says what to do.
func TestHalfAStateIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := whole(dir); err != nil {
		t.Errorf("a new host: %v", err)
	}
	h := newHost(t, 1, dir).run()
	eventually(t, "the host is a cluster", func() bool {
		id, err := identity.Load(dir)
		return err == nil && id.Cluster != ""
	})
	h.stop()
	if err := whole(dir); err != nil {
		t.Errorf("a whole state: %v", err)
	}
	for _, name := range []string{stateFile, identity.File} {
		part := filepath.Join(t.TempDir(), "state")
		if err := os.CopyFS(part, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(part, name)); err != nil {
			t.Fatal(err)
		}
		err := whole(part)
		if err == nil || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), "grapevine restore") || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// restored is a host with what is in a backup.
func restored(t *testing.T, tar []byte, alone bool, n int, join ...int) *host {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	if _, err := backup.Restore(bytes.NewReader(tar), dir, alone); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, n, dir, join...)
	h.unproven.Store(h.id.Restored)
	return h.run()
}

// Two hosts that were restored together prove nothing to each other: a third one came since
// the backups, got a share of theirs, and is down. When it is back, both go on without that.
func TestRestoreTogether(t *testing.T) {
	one := newHost(t, 1, t.TempDir(), 1, 2).run()
	two := newHost(t, 2, t.TempDir(), 1, 2).run()
	eventually(t, "host2 joins", func() bool { return two.member() && len(one.gossip.Alive()) == 1 && two.replica.Settled() })
	tars := [][]byte{one.backUp(t), two.backUp(t)}
	three := newHost(t, 3, t.TempDir(), 1, 2).run()
	eventually(t, "host3 joins", func() bool { return three.member() && len(three.gossip.Alive()) == 2 })
	if _, err := three.alloc.VNID(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*host{one, two, three} {
		h.stop()
	}
	a, b := restored(t, tars[0], false, 1, 1, 2), restored(t, tars[1], false, 2, 1, 2)
	eventually(t, "they meet", func() bool { return len(a.gossip.Alive()) == 1 && len(b.gossip.Alive()) == 1 })
	time.Sleep(4 * time.Second)
	if a.halt() == nil || b.halt() == nil {
		t.Error("two restored hosts believe each other")
	}
	three = newHost(t, 3, three.cfg.State, 1, 2).run()
	eventually(t, "who gave something away since is found out, and the other may go on", func() bool {
		lost := 0
		for _, h := range []*host{a, b} {
			switch {
			case errors.Is(h.replica.Trouble(), cluster.ErrLostWrites):
				lost++
			case h.halt() != nil:
				return false
			}
		}
		return lost > 0
	})
}

// A host that has no others, or is the first one of all that were restored, begins by itself
// if it is told that it is alone, and not before.
func TestRestoreAlone(t *testing.T) {
	one := newHost(t, 1, t.TempDir(), 1).run()
	eventually(t, "it is a cluster", one.member)
	tar := one.backUp(t)
	one.stop()
	asks := restored(t, tar, false, 1, 1)
	time.Sleep(alonePatience + 2*time.Second)
	advice := ""
	for _, p := range asks.membershipProblems(asks.replica.Snapshot()) {
		advice += p.Do
	}
	if asks.halt() == nil || !strings.Contains(advice, "restore --alone") {
		t.Errorf("it goes on, or does not say how: %v, %q", asks.halt(), advice)
	}
	asks.stop()
	h := restored(t, tar, true, 1, 1)
	eventually(t, "it goes on", func() bool { return h.halt() == nil })
	if _, err := h.alloc.VNID(t.Context()); err != nil {
		t.Error(err)
	}
	if id, err := identity.Load(h.cfg.State); err != nil || id.Restored || id.Alone {
		t.Errorf("after a restart it would ask again: %+v, %v", id, err)
	}
}

// FuzzRecollection: an answer is read as it was written, or refused.
func FuzzRecollection(f *testing.F) {
	f.Add(recollection{highest: 7, restored: true, hosts: []cluster.NodeID{"0123456789abcdef"}}.encode())
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecollection(b)
		if err == nil && !r.old && len(r.encode()) != len(b) {
			t.Errorf("%x is read as %+v", b, r)
		}
	})
}
