package membership

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/membership/backup"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// restoreAs runs host n from a backup, in a new directory.
func restoreAs(t *testing.T, n int, tar []byte, join ...int) *testHost {
	t.Helper()
	return restored(t, tar, false, n, join...)
}

// restored is restoreAs, with or without --alone.
func restored(t *testing.T, tar []byte, alone bool, n int, join ...int) *testHost {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	if _, err := backup.Restore(bytes.NewReader(tar), dir, alone); err != nil {
		t.Fatal(err)
	}
	return newHost(t, n, dir, join...).run()
}

// staysHalted fails the test when one of the hosts hands out anything within d.
func staysHalted(t *testing.T, d time.Duration, hosts ...*testHost) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, h := range hosts {
			if h.Quarantine.Quarantined() == nil {
				t.Fatalf("%s goes on", h.cfg.Name)
			}
		}
	}
}

// settledPair is two hosts, each of which owns something and knows all of the other.
func settledPair(t *testing.T) (one, two *testHost) {
	t.Helper()
	one = newHost(t, 1, t.TempDir(), 1, 2).run()
	two = newHost(t, 2, t.TempDir(), 1, 2).run()
	eventually(t, "host2 joins", func() bool { return two.member() && len(one.gossip.Alive()) == 1 })
	if _, err := two.alloc.VNID(t.Context()); err != nil {
		t.Fatal(err)
	}
	same := func() bool {
		return one.replica.Settled() && two.replica.Settled() && bytes.Equal(one.replica.Digest(), two.replica.Digest())
	}
	eventually(t, "all is told", same)
	return one, two
}

// TestRestoreTogether: two hosts are restored while the third, which has got something of
// theirs since, is down. They know nothing of it, so that each other's word is worth nothing.
func TestRestoreTogether(t *testing.T) { virtual(t, testRestoreTogether) }

func testRestoreTogether(t *testing.T) {
	one, two := settledPair(t)
	tar1, tar2 := one.backUp(t), two.backUp(t)
	three := newHost(t, 3, t.TempDir(), 1, 2).run()
	eventually(t, "host3 joins", func() bool { return three.member() && len(three.gossip.Alive()) == 2 })
	if _, err := three.alloc.VNID(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all is told", func() bool {
		return bytes.Equal(one.replica.Digest(), three.replica.Digest()) && bytes.Equal(two.replica.Digest(), three.replica.Digest())
	})
	for _, h := range []*testHost{one, two, three} {
		h.stop()
	}
	a, b := restoreAs(t, 1, tar1, 1, 2), restoreAs(t, 2, tar2, 1, 2)
	eventually(t, "they meet", func() bool { return len(a.gossip.Alive()) == 1 && len(b.gossip.Alive()) == 1 })
	staysHalted(t, 4*time.Second, a, b)

	three = newHost(t, 3, three.cfg.State, 1, 2).run()
	eventually(t, "who gave something away is found out, and the other goes on", func() bool {
		lost := 0
		for _, h := range []*testHost{a, b} {
			switch {
			case h.replica.Trouble() != nil:
				lost++
			case h.Quarantine.Quarantined() != nil:
				return false
			}
		}
		return lost > 0
	})
}

// TestRestoreAmongNewHosts: who has joined a restored host knows what that has told it, and
// not what the host has given away since the backup.
func TestRestoreAmongNewHosts(t *testing.T) { virtual(t, testRestoreAmongNewHosts) }

func testRestoreAmongNewHosts(t *testing.T) {
	one := newHost(t, 1, t.TempDir(), 1).run()
	eventually(t, "host1 begins a cluster", one.member)
	tar := one.backUp(t)
	two := newHost(t, 2, t.TempDir(), 1).run()
	eventually(t, "host2 joins", func() bool { return two.member() && len(two.gossip.Alive()) == 1 })
	if _, err := two.alloc.VNID(t.Context()); err != nil {
		t.Fatal(err)
	}
	two.stop()
	one.stop()
	again := restoreAs(t, 1, tar, 1)
	three := newHost(t, 3, t.TempDir(), 1).run()
	eventually(t, "host3 joins", func() bool {
		_, ok := cluster.Get[cluster.Node](again.replica.Snapshot(), three.id.Node)
		return three.member() && ok
	})
	staysHalted(t, 4*time.Second, again)
}

// TestRestoreForgotten: no host vouches for one that was forgotten, not even for the moment
// until that hears of it.
func TestRestoreForgotten(t *testing.T) { virtual(t, testRestoreForgotten) }

func testRestoreForgotten(t *testing.T) {
	dead := newHost(t, 1, t.TempDir()).start()
	heir := newHost(t, 2, t.TempDir(), 1).start()
	for _, h := range []*testHost{dead, heir} {
		eventually(t, "both know the ring and each other", func() bool {
			return h.replica.Settled() && h.replica.Snapshot().Ring().OwnsAll(dead.Self(), clusterRange) &&
				len(h.gossip.Alive()) == 1 && len(h.Nodes(h.replica.Snapshot())) == 2
		})
	}
	eventually(t, "all is told", func() bool { return bytes.Equal(dead.replica.Digest(), heir.replica.Digest()) })
	tar := dead.backUp(t)
	if _, err := heir.Quarantine.recall(t.Context(), dead.id.Node, nil); err != nil {
		t.Fatal(err)
	}
	dead.stop()
	eventually(t, "the host is missed", func() bool { return len(heir.gossip.Alive()) == 0 })
	if _, err := heir.Forgetter.Forget(t.Context(), api.ForgetRequest{Hosts: []string{dead.id.Node}}); err != nil {
		t.Fatal(err)
	}
	if _, err := heir.Quarantine.recall(t.Context(), dead.id.Node, nil); err == nil || !strings.Contains(err.Error(), "forgotten") {
		t.Errorf("the heir vouches for whom it has forgotten: %v", err)
	}
	back := restoreAs(t, 1, tar, 2)
	staysHalted(t, 2*time.Second, back)
	eventually(t, "it hears of it", func() bool { return errors.Is(back.replica.Trouble(), cluster.ErrForgotten) })
	staysHalted(t, time.Second, back)
}

// TestRestoreElsewhere: on another machine, while the original runs.
func TestRestoreElsewhere(t *testing.T) { virtual(t, testRestoreElsewhere) }

func testRestoreElsewhere(t *testing.T) {
	_, two := settledPair(t)
	other := restoreAs(t, 3, two.backUp(t), 1, 2)
	staysHalted(t, 4*time.Second, other)
	eventually(t, "it knows why", func() bool { return other.whats() != "" })
	if id, err := identity.Load(other.cfg.State); err != nil || !id.Restored && other.Quarantine.Quarantined() == nil {
		t.Errorf("%+v, %v", id, err)
	}
}

// A host that has no others, or is the first one of all that were restored, begins by itself
// if it is told that it is alone, and not before.
func TestRestoreAlone(t *testing.T) { virtual(t, testRestoreAlone) }

func testRestoreAlone(t *testing.T) {
	one := newHost(t, 1, t.TempDir(), 1).run()
	eventually(t, "it is a cluster", one.member)
	tar := one.backUp(t)
	one.stop()
	asks := restored(t, tar, false, 1, 1)
	time.Sleep(alonePatience + 2*time.Second)
	advice := ""
	for _, p := range asks.Problems(asks.replica.Snapshot()) {
		advice += p.Do
	}
	if asks.Quarantine.Quarantined() == nil || !strings.Contains(advice, "restore --alone") {
		t.Errorf("it goes on, or does not say how: %v, %q", asks.Quarantine.Quarantined(), advice)
	}
	asks.stop()
	h := restored(t, tar, true, 1, 1)
	eventually(t, "it goes on", func() bool { return h.Quarantine.Quarantined() == nil })
	if _, err := h.alloc.VNID(t.Context()); err != nil {
		t.Error(err)
	}
	if id, err := identity.Load(h.cfg.State); err != nil || id.Restored || id.Alone {
		t.Errorf("after a restart it would ask again: %+v, %v", id, err)
	}
}

// TestNoAgentDuringARestore: it would begin with a part of the state.
func TestNoAgentDuringARestore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	release, err := store.Lock(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := Identify(settings(1, dir)); !errors.Is(err, store.ErrInUse) {
		t.Errorf("the agent begins: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%v, %v: want no file", files, err)
	}
}
