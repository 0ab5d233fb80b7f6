package membership

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/membership/identity"
	"github.com/grapevine-net/grapevine/replica"
)

// anew is what the agent of state directory dir does before anything else.
func anew(dir string) error {
	return newMember(settings(1, dir)).startAnew()
}

// TestForgottenJoinsAnew: a host that nobody is named to, as the first one of a cluster, is
// forgotten, and the new one that it becomes again. It is alone for neither.
func TestForgottenJoinsAnew(t *testing.T) { virtual(t, testForgottenJoinsAnew) }

func testForgottenJoinsAnew(t *testing.T) {
	dir := t.TempDir()
	one := newHost(t, 1, dir, 1).run()
	two := newHost(t, 2, t.TempDir(), 1).run()
	first := one.Self()
	for life := range 2 {
		eventually(t, "both know the ring and each other", func() bool {
			for _, h := range []*testHost{one, two} {
				if _, known := cluster.Get[cluster.Node](h.replica.Snapshot(), one.id.Node); !known || !h.member() || len(h.gossip.Alive()) != 1 {
					return false
				}
			}
			return true
		})
		was := one.id
		if err := one.gossip.Depart(t.Context()); err != nil { // or it takes long to be missed
			t.Fatal(err)
		}
		one.stop()
		eventually(t, "the host is missed", func() bool { return len(two.gossip.Alive()) == 0 })
		if _, err := two.Forgetter.Forget(t.Context(), api.ForgetRequest{Hosts: []string{was.Node}}); err != nil {
			t.Fatal(err)
		}
		back := newHost(t, 1, dir, 1).run()
		if back.id.Node != was.Node {
			t.Fatalf("before it heard of it, it is %s", back.id.Node)
		}
		if err := back.Rejoiner.watchForgotten(t.Context()); !errors.Is(err, ErrForgotten) {
			t.Fatal(err)
		}
		back.stop()
		if err := anew(dir); err != nil {
			t.Fatal(err)
		}
		one = newHost(t, 1, dir, 1).run()
		if one.id.Node == was.Node || one.id.Cluster != two.gossip.ClusterID() || one.role != identity.Member {
			t.Fatalf("it is %+v, %v", one.id, one.role)
		}
		eventually(t, "it has a part of its own", func() bool {
			return one.member() && one.whats() == "" && len(one.Nodes(one.replica.Snapshot())) == 2
		})
		if files := SetAside(dir); len(files) != 2*(life+1) {
			t.Errorf("set aside: %v", files)
		}
	}
	if two.replica.Snapshot().Ring().Counts(clusterRange)[first] != 0 {
		t.Error("its first life has something back")
	}
}

// TestOldStateJoinsAnew: the way out for a host whose state is too old is to be forgotten.
func TestOldStateJoinsAnew(t *testing.T) { virtual(t, testOldStateJoinsAnew) }

func testOldStateJoinsAnew(t *testing.T) {
	dir := t.TempDir()
	one := newHost(t, 1, t.TempDir(), 1, 2).run()
	two := newHost(t, 2, dir, 1, 2).run()
	eventually(t, "host2 joins", func() bool { return two.member() && len(one.gossip.Alive()) == 1 })
	two.stop()
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	two = newHost(t, 2, dir, 1, 2).run()
	eventually(t, "they meet", func() bool { return len(two.gossip.Alive()) == 1 && len(one.gossip.Alive()) == 1 })
	_, err := two.replica.Update(func(tx *replica.Tx) error { return tx.Put(cluster.Network{Name: "later", VNID: 1}) })
	if err != nil { // the copy does not know of it
		t.Fatal(err)
	}
	eventually(t, "all is told", func() bool { return bytes.Equal(one.replica.Digest(), two.replica.Digest()) })
	if err := two.gossip.Depart(t.Context()); err != nil {
		t.Fatal(err)
	}
	two.stop()
	late := newHost(t, 2, old, 1, 2).run()
	eventually(t, "it is found out", func() bool { return errors.Is(late.replica.Trouble(), cluster.ErrLostWrites) })
	if err := late.gossip.Depart(t.Context()); err != nil {
		t.Fatal(err)
	}
	late.stop()
	eventually(t, "the host is missed", func() bool { return len(one.gossip.Alive()) == 0 })
	if _, err := one.Forgetter.Forget(t.Context(), api.ForgetRequest{Hosts: []string{two.id.Node}}); err != nil {
		t.Fatal(err)
	}
	late = newHost(t, 2, old, 1, 2).run()
	if err := late.Rejoiner.watchForgotten(t.Context()); !errors.Is(err, ErrForgotten) {
		t.Error(err)
	}
}

// TestOwnLeaveIsNoReason: whoever leaves has deleted its own Node record.
func TestOwnLeaveIsNoReason(t *testing.T) { virtual(t, testOwnLeaveIsNoReason) }

func testOwnLeaveIsNoReason(t *testing.T) {
	one := newHost(t, 1, t.TempDir(), 1).run()
	eventually(t, "host1 begins a cluster", one.member)
	one.leaving.Store(true)
	if err := one.Leaver.farewell(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := one.Rejoiner.watchForgotten(ctx); err != nil || len(SetAside(one.cfg.State)) != 0 {
		t.Errorf("%v, %v", err, SetAside(one.cfg.State))
	}
}

// spentState makes the state directory of a host that was forgotten, and noted that.
func spentState(t *testing.T, dir string) identity.Identity {
	t.Helper()
	id, err := identity.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	id.Cluster, id.Forgotten = identity.NewCluster(), asideName(dir, time.Now())
	db, err := store.Open(filepath.Join(dir, stateFile))
	if err == nil {
		err = errors.Join(putPeers(db, []gossip.Peer{{ID: "0123456789abcdef"}}), db.Close(), id.Save(dir))
	}
	if err == nil {
		_, err = identity.LoadWireGuard(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// isAnew fails unless dir is a new host's, of the same cluster, with all of old set aside.
func isAnew(t *testing.T, dir string, old identity.Identity) {
	t.Helper()
	id, err := identity.Load(dir)
	if err != nil || id.Node == old.Node || id.Cluster != old.Cluster || id.Forgotten != "" || id.Was != old.Node || whole(dir) != nil {
		t.Fatalf("it is %+v, %v, %v", id, err, whole(dir))
	}
	if _, err := os.Stat(filepath.Join(dir, identity.WireGuardFile)); err == nil {
		t.Error("it has the WireGuard key of the host that was forgotten")
	}
	was := filepath.Join(dir, "was")
	for _, name := range []string{identity.File, stateFile} {
		if err := os.MkdirAll(was, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+old.Forgotten), filepath.Join(was, name)); err != nil {
			t.Fatal(err)
		}
	}
	if id, err := identity.Load(was); err != nil || id.Node != old.Node || id.Forgotten != "" {
		t.Errorf("what is set aside is %+v, %v", id, err)
	}
	for _, d := range []string{dir, was} {
		db, err := store.Open(filepath.Join(d, stateFile))
		if err != nil {
			t.Fatal(err)
		}
		known, err := knownPeers(db)
		if db.Close(); err != nil || len(known) != 1 {
			t.Errorf("%s: hosts that it knows: %v, %v", d, known, err)
		}
	}
}

// TestAnewKilledBetweenSteps: whichever step was the last, the next start ends them.
func TestAnewKilledBetweenSteps(t *testing.T) {
	all := len(rejoinSteps("", identity.Identity{}, nil))
	for done := range all + 1 {
		dir := t.TempDir()
		old := spentState(t, dir)
		for i, step := range rejoinSteps(dir, old, carryNothing)[:done] {
			if err := step(); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
		if err := anew(dir); err != nil {
			t.Fatalf("after %d of %d steps: %v", done, all, err)
		}
		isAnew(t, dir, old)
	}
}

// TestAsideNamesDiffer: forgotten twice in a second.
func TestAsideNamesDiffer(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1_700_000_000, 0)
	seen := map[string]bool{}
	for range 3 {
		name := asideName(dir, now)
		if seen[name] {
			t.Fatalf("%s twice", name)
		}
		seen[name] = true
		if err := os.WriteFile(filepath.Join(dir, stateFile+name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if len(SetAside(dir)) != 3 {
		t.Errorf("%v", SetAside(dir))
	}
}

// smallDisk mounts a file system of so many KiB.
func smallDisk(t *testing.T, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatalf("mount a small file system: %v; the tests run as root", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	rest := filepath.Join(dir, "rest")
	if err := os.WriteFile(rest, make([]byte, 32<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	return func() { _ = os.Remove(rest) }
}

// TestAnewOnADiskThatTakesNothing: the error names a file and what to do; after that it works.
func TestAnewOnADiskThatTakesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		words string
		fail  func(dir string) (mend func())
	}{
		"full": {"make room", func(dir string) func() { return fill(t, dir) }},
		"read-only": {"writable", func(dir string) func() {
			remount := func(flags uintptr) {
				if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|flags, ""); err != nil {
					t.Fatal(err)
				}
			}
			remount(syscall.MS_RDONLY)
			return func() { remount(0) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := smallDisk(t, "1m")
			old := spentState(t, dir)
			mend := c.fail(dir)
			if err := anew(dir); err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), c.words) {
				t.Errorf("it says %v", err)
			}
			mend()
			if err := anew(dir); err != nil {
				t.Fatal(err)
			}
			isAnew(t, dir, old)
		})
	}
}

// TestForgottenOnAFullDisk: a running host that cannot note it goes on as it is, says so,
// and does it when it can.
func TestForgottenOnAFullDisk(t *testing.T) { virtual(t, testForgottenOnAFullDisk) }

func testForgottenOnAFullDisk(t *testing.T) {
	dir := smallDisk(t, "16m")
	one := newHost(t, 1, dir, 1).run()
	eventually(t, "host1 begins a cluster", one.member)
	if err := one.Leaver.farewell(t.Context()); err != nil { // in the place of another host
		t.Fatal(err)
	}
	free := fill(t, dir)
	ended := make(chan error, 1)
	go func() { ended <- one.Rejoiner.watchForgotten(t.Context()) }()
	eventually(t, "it says so", func() bool {
		return strings.Contains(one.whats(), filepath.Join(dir, identity.File)) && strings.Contains(one.whats(), "make room")
	})
	free()
	eventually(t, "it is noted", func() bool { return len(ended) == 1 })
	if err := <-ended; !errors.Is(err, ErrForgotten) {
		t.Error(err)
	}
}
