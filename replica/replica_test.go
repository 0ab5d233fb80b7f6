package replica

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
)

func id(n int) cluster.NodeID { return cluster.NodeID(fmt.Sprintf("%016x", n)) }

var space = netip.MustParsePrefix("10.0.0.0/24")

// openAt opens the replica of a host in a file.
func openAt(t testing.TB, path string, self cluster.NodeID) *Replica {
	t.Helper()
	db, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	r, err := Open(db, self)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func open(t testing.TB, self cluster.NodeID) *Replica {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "state.db"), self)
}

// afterPowerLoss opens what a replica has on its disk at this moment.
func afterPowerLoss(t testing.TB, r *Replica) *Replica {
	t.Helper()
	b, err := os.ReadFile(r.db.Path())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return openAt(t, path, r.Self())
}

func put(t testing.TB, r *Replica, bodies ...cluster.Body) uint64 {
	t.Helper()
	rev, err := r.Update(func(tx *Tx) error {
		for _, b := range bodies {
			if err := tx.Put(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// all is everything a replica has, as bytes.
func all(r *Replica) string { return string(cluster.Encode(slices.Collect(r.Snapshot().Records()))) }

// exchange lets a replica hear what another one has.
func exchange(t testing.TB, from, to *Replica) {
	t.Helper()
	for m := range from.Missing(to.Digest(), 300) {
		if _, err := to.Merge(m); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a replica until the test ends, and fails if it does not stop then.
func run(t testing.TB, r *Replica) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("run: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("Run does not end")
		}
	})
}

func changed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestUpdateIsDurableAndSeen(t *testing.T) {
	r := open(t, id(1))
	watch := r.Watch()
	old := r.Snapshot()
	rev := put(t, r, cluster.Network{Name: "blue"}, cluster.Claim{Block: space, Owner: id(1)})
	if !changed(watch) || changed(r.Watch()) {
		t.Error("the change feed is wrong")
	}
	snap := r.Snapshot()
	if snap.Rev() != rev || rev <= old.Rev() || !snap.Ring().OwnsAll(id(1), space) {
		t.Errorf("revision %d, before %d, returned %d", snap.Rev(), old.Rev(), rev)
	}
	if got := afterPowerLoss(t, r); all(got) != all(r) {
		t.Error("the disk has something else")
	}
}

func TestUpdateThatFailsChangesNothing(t *testing.T) {
	r := open(t, id(1))
	put(t, r, cluster.Network{Name: "blue"})
	before, watch := all(r), r.Watch()
	failure := errors.New("changed my mind")
	for name, tt := range map[string]struct {
		fn   func(*Tx) error
		want error
	}{
		"own error": {func(tx *Tx) error {
			tx.Delete(cluster.Key{Kind: cluster.KindNetwork, ID: "blue"})
			return failure
		}, failure},
		"refused and ignored": {func(tx *Tx) error {
			_ = tx.Put(cluster.Network{Name: "red"})
			_ = tx.Put(cluster.Network{Name: ""})
			return nil
		}, cluster.ErrMalformed},
	} {
		if _, err := r.Update(tt.fn); !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", name, err, tt.want)
		}
	}
	if err := r.db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Update(func(tx *Tx) error { return tx.Put(cluster.Network{Name: "red"}) }); err == nil {
		t.Error("no error without a disk")
	}
	if all(r) != before || changed(watch) || len(r.out.pending) != 1 {
		t.Error("a failed update changed something")
	}
}

func TestTxSeesItsOwnWrites(t *testing.T) {
	r := open(t, id(1))
	before := all(r)
	_, err := r.Update(func(tx *Tx) error {
		if err := tx.Put(cluster.Network{Name: "blue"}); err != nil {
			return err
		}
		rec, ok := tx.Snapshot().Record(cluster.Key{Kind: cluster.KindNetwork, ID: "blue"})
		if !ok || rec.Version.Node != id(1) || all(r) != before {
			t.Errorf("inside: %+v, %v", rec, ok)
		}
		if !tx.Delete(rec.Key) || tx.Delete(rec.Key) || !tx.Snapshot().Tombstone(rec.Key) {
			t.Error("delete inside")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	watch := r.Watch()
	if _, err := r.Update(func(*Tx) error { return nil }); err != nil || changed(watch) {
		t.Errorf("an update of nothing: %v", err)
	}
}

func TestMergedClaimsAndNetworksAreDurableTheRestSoon(t *testing.T) {
	a, b := open(t, id(1)), open(t, id(2))
	for _, lasting := range []cluster.Body{
		cluster.Network{Name: "blue"}, cluster.Subnet{Prefix: netip.MustParsePrefix("10.128.0.0/22"), Network: "blue", Home: id(1)},
		cluster.Policy{Scope: cluster.ScopeNetwork, Network: "blue", Name: "db", Text: strings.Repeat("x", cluster.MaxPolicyText)},
	} {
		put(t, a, lasting)
		exchange(t, a, b)
		if _, ok := afterPowerLoss(t, b).Snapshot().Record(lasting.Key()); !ok {
			t.Errorf("%v is not on the disk", lasting.Key())
		}
	}
	put(t, a, cluster.Claim{Block: space, Owner: id(1)})
	exchange(t, a, b)
	if got := afterPowerLoss(t, b); !got.Snapshot().Ring().OwnsAll(id(1), space) {
		t.Error("the claim is not on the disk")
	}
	put(t, a, cluster.Claim{Block: space, Owner: id(2)}, cluster.Network{Name: "red"})
	exchange(t, a, b)
	run(t, b)
	put(t, a, cluster.Node{ID: id(1), Name: "one"})
	exchange(t, a, b)
	deadline := time.Now().Add(10 * time.Second)
	for all(afterPowerLoss(t, b)) != all(b) {
		if time.Now().After(deadline) {
			t.Fatal("never flushed")
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func TestFlushAtTheEnd(t *testing.T) {
	a, b := open(t, id(1)), open(t, id(2))
	put(t, a, cluster.Node{ID: id(1)})
	exchange(t, a, b)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err := b.Run(ctx); err != nil {
		t.Fatal(err)
	}
	got := afterPowerLoss(t, b)
	if all(got) != all(b) || !slices.Equal(got.Digest(), b.Digest()) {
		t.Error("not everything is on the disk")
	}
}

func TestMergeReturnsWhatIsNewAndWhatIsWrong(t *testing.T) {
	a, b, c := open(t, id(1)), open(t, id(2)), open(t, id(3))
	put(t, a, cluster.Network{Name: "blue"})
	msg := slices.Collect(a.Missing(c.Digest(), 1000))[0]
	fresh, err := b.Merge(slices.Clone(msg))
	if err != nil || len(fresh) == 0 {
		t.Fatalf("fresh %x, %v", fresh, err)
	}
	if again, err := b.Merge(slices.Clone(msg)); err != nil || again != nil {
		t.Errorf("again: %x, %v", again, err)
	}
	if _, err := c.Merge(fresh); err != nil || all(c) != all(a) {
		t.Errorf("passed on: %v", err)
	}
	for name, bad := range map[string][]byte{"empty": nil, "junk": []byte("junk"), "newer": {255, 0xa0}} {
		before := all(b)
		if fresh, err := b.Merge(bad); err == nil || fresh != nil || all(b) != before {
			t.Errorf("%s: %x, %v", name, fresh, err)
		}
	}
	for m := range a.Missing([]byte("junk"), 1000) {
		t.Errorf("an answer to junk: %x", m)
	}
}

func TestMergeWithoutADiskChangesNothing(t *testing.T) {
	a, b := open(t, id(1)), open(t, id(2))
	put(t, a, cluster.Claim{Block: space, Owner: id(1)})
	before := all(b)
	if err := b.db.Close(); err != nil {
		t.Fatal(err)
	}
	for m := range a.Missing(b.Digest(), 1000) {
		if _, err := b.Merge(m); err == nil {
			t.Error("no error without a disk")
		}
	}
	if all(b) != before {
		t.Error("a claim that is not durable is in the state")
	}
}

func TestOutbox(t *testing.T) {
	r, other := open(t, id(1)), open(t, id(2))
	for i := range 40 { // nobody listens yet: it must not block
		put(t, r, cluster.Network{Name: fmt.Sprintf("network-%d", i), Labels: map[string]string{"a": strings.Repeat("x", 50)}})
	}
	run(t, r)
	for other.Snapshot().Len() < 40 {
		select {
		case m := <-r.Outbox():
			if len(m) > packet+100 {
				t.Errorf("message of %d bytes", len(m))
			}
			if _, err := other.Merge(m); err != nil {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("only %d records came", other.Snapshot().Len())
		}
	}
	if all(other) != all(r) || !slices.Equal(other.Digest(), r.Digest()) {
		t.Error("broadcasts alone did not bring everything, in order")
	}
	if _, err := r.Merge(cluster.Encode(slices.Collect(other.Snapshot().Records()))); err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-r.Outbox():
		t.Errorf("what others wrote is in the outbox: %x", m)
	case <-time.After(50 * time.Millisecond):
	}
}

func TestOutboxIsBounded(t *testing.T) {
	o := newOutbox()
	for i := range maxPending + 10 {
		o.add([]cluster.Record{{Version: cluster.Version{Counter: uint64(i)}}})
	}
	if len(o.pending) != maxPending || o.pending[0].Version.Counter != 10 {
		t.Errorf("%d pending, the first is %d", len(o.pending), o.pending[0].Version.Counter)
	}
}

// TestPartsOfAnAnswer: only who has merged all parts believes to know everything.
func TestPartsOfAnAnswer(t *testing.T) {
	a := open(t, id(1))
	for i := range 10 {
		put(t, a, cluster.Network{Name: strconv.Itoa(i)}, cluster.Network{Name: "again", VNID: uint32(i + 1)})
	}
	parts := slices.Collect(a.Missing(open(t, id(9)).Digest(), 50))
	if len(parts) < 4 {
		t.Fatalf("only %d parts", len(parts))
	}
	last := len(parts) - 1
	swapped := slices.Clone(parts)
	swapped[1], swapped[2] = swapped[2], swapped[1]
	spoilt := slices.Clone(parts)
	spoilt[1] = []byte("junk")
	for name, tt := range map[string]struct {
		parts [][]byte
		whole bool
	}{
		"all":           {parts, true},
		"first lost":    {parts[1:], false},
		"one lost":      {slices.Concat(parts[:1], parts[2:]), false},
		"last only":     {parts[last:], false},
		"last lost":     {parts[:last], false},
		"out of order":  {swapped, false},
		"one spoilt":    {spoilt, false},
		"broken, again": {slices.Concat(parts[:2], parts[1:], parts), true},
	} {
		b := open(t, id(2))
		for _, m := range tt.parts {
			_, _ = b.Merge(slices.Clone(m))
		}
		if whole := slices.Equal(b.Digest(), a.Digest()); whole != tt.whole {
			t.Errorf("%s: believes to know everything: %v", name, whole)
		}
		if got := caughtUp(b); got != tt.whole {
			t.Errorf("%s: has caught up: %v", name, got)
		}
		exchange(t, a, b)
		if all(a) != all(b) || !slices.Equal(a.Digest(), b.Digest()) {
			t.Errorf("%s: a whole answer did not help", name)
		}
	}
}

func caughtUp(r *Replica) bool {
	select {
	case <-r.CaughtUp():
		return true
	default:
		return false
	}
}

// TestCaughtUpAnew: what another host said before a restart does not count after it.
func TestCaughtUpAnew(t *testing.T) {
	r := open(t, id(1))
	if put(t, r, cluster.Network{Name: "blue", VNID: 1}); caughtUp(r) {
		t.Error("its own writes tell it what others know")
	}
	if r.Agreed(); !caughtUp(r) {
		t.Error("another host knows the same")
	}
	r.Agreed()
	if again, err := Open(r.db, r.Self()); err != nil || caughtUp(again) {
		t.Errorf("caught up as it is opened, %v", err)
	}
}

func TestAnswersAreForgotten(t *testing.T) {
	var a answers
	for sync := range uint64(10 * maxAnswers) {
		a.whole(cluster.Message{Sync: sync + 1}, true)
	}
	if len(a.next) > maxAnswers || len(a.order) > maxAnswers {
		t.Errorf("%d answers, %d in order", len(a.next), len(a.order))
	}
}

func TestExpire(t *testing.T) {
	r := open(t, id(1))
	policy := cluster.Policy{Scope: cluster.ScopeCluster, Name: "open", Text: "x"}
	put(t, r, cluster.Network{Name: "blue"}, cluster.Node{ID: id(1)}, policy)
	if _, err := r.Update(func(tx *Tx) error {
		tx.Delete(cluster.Key{Kind: cluster.KindNetwork, ID: "blue"})
		tx.Delete(policy.Key())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		age  time.Duration
		left int
	}{{time.Hour, 3}, {tombstoneAge + time.Hour - time.Minute, 3}, {tombstoneAge + time.Hour, 2}} {
		r.age = func() time.Duration { return tt.age }
		if err := r.Expire(); err != nil {
			t.Fatal(err)
		}
		if n := afterPowerLoss(t, r).Snapshot().Len(); n != tt.left || r.Snapshot().Len() != tt.left {
			t.Errorf("after %s: %d records, %d on the disk, want %d", tt.age, r.Snapshot().Len(), n, tt.left)
		}
	}
}

func TestTrouble(t *testing.T) {
	a, b := open(t, id(1)), open(t, id(2))
	put(t, a, cluster.Claim{Block: space, Owner: id(1)}, cluster.Node{ID: id(1)})
	old := afterPowerLoss(t, a)
	exchange(t, a, b)
	put(t, a, cluster.Network{Name: "blue"})
	exchange(t, a, b)
	for m := range b.Missing(old.Digest(), 1000) {
		_, _ = old.Merge(m)
	}
	if err := old.Trouble(); !errors.Is(err, cluster.ErrLostWrites) {
		t.Errorf("an old copy of the disk: %v", err)
	}
	if err := a.Trouble(); err != nil {
		t.Errorf("nothing is wrong, but: %v", err)
	}
	put(t, b, cluster.Claim{Block: space, Owner: id(2)})
	if _, err := b.Update(func(tx *Tx) error {
		tx.Delete(cluster.Node{ID: id(1)}.Key())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	back := afterPowerLoss(t, a)
	for m := range b.Missing(back.Digest(), 1000) {
		_, _ = back.Merge(m)
	}
	if err := back.Trouble(); !errors.Is(err, cluster.ErrForgotten) {
		t.Errorf("forgotten, its numbers taken over: %v", err)
	}
	if err := back.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := afterPowerLoss(t, back).Trouble(); !errors.Is(err, cluster.ErrForgotten) {
		t.Errorf("forgotten, after a restart: %v", err)
	}
}

// On a full disk what others own is not merged, which is no fault of theirs, and is merged when
// there is room again.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatalf("mount a small file system: %v; the tests run as root", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	a, b := openAt(t, filepath.Join(dir, "state.db"), id(1)), open(t, id(2))
	rest := filepath.Join(dir, "rest")
	if err := os.WriteFile(rest, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	var all []cluster.Body
	for i := range 256 {
		all = append(all, cluster.Claim{Block: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 24), Owner: id(2)},
			cluster.Network{Name: fmt.Sprint("net", i), VNID: uint32(i), Labels: map[string]string{"l": strings.Repeat("x", 1000)}})
	}
	put(t, b, all...)
	var errs []error
	for m := range b.Missing(a.Digest(), 1<<20) {
		_, err := a.Merge(m)
		errs = append(errs, err)
	}
	var own interface{ Local() bool }
	if err := errors.Join(errs...); !errors.Is(err, syscall.ENOSPC) || !errors.As(err, &own) || !own.Local() {
		t.Errorf("merged on a full disk: %v", err)
	}
	if err := a.Unwritten(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("nothing is said of the full disk: %v", err)
	}
	if err := os.Remove(rest); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=16m"); err != nil {
		t.Fatal(err)
	}
	put(t, a, cluster.Network{Name: "own"})
	if err := a.Unwritten(); err == nil {
		t.Error("there is room again, and what this host missed is missing still")
	}
	for m := range b.Missing(a.Digest(), 1<<20) {
		if _, err := a.Merge(m); err != nil {
			t.Error(err)
		}
	}
	if err := a.Unwritten(); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	for m := range a.Missing(b.Digest(), 1<<20) {
		if _, err := b.Merge(m); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(a.Digest(), b.Digest()) {
		t.Error("not all is merged")
	}
}

func TestOpenRefusesJunk(t *testing.T) {
	r := open(t, id(1))
	put(t, r, cluster.Network{Name: "blue"})
	for name, spoil := range map[string]func(*store.Tx) error{
		"record":   func(tx *store.Tx) error { return records.Put(tx, "002/x", []byte("junk")) },
		"marks":    func(tx *store.Tx) error { return marks.Put(tx, marksKey, []byte("junk")) },
		"no marks": marks.Clear,
	} {
		path := filepath.Join(t.TempDir(), "state.db")
		b, err := os.ReadFile(r.db.Path())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := store.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(spoil); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(db, id(1)); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v", name, err)
		}
		db.Close()
	}
}

// TestEverybodyAtOnce has writers, mergers, readers and a flusher at work on one
// replica; the race detector watches.
func TestEverybodyAtOnce(t *testing.T) {
	r, other := open(t, id(1)), open(t, id(2))
	put(t, other, cluster.Claim{Block: space, Owner: id(2)})
	run(t, r)
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-r.Outbox():
			case <-r.Watch():
				snap := r.Snapshot()
				snap.Ring().Clone().Counts(space)
				for range cluster.All[cluster.Network](snap) {
				}
				snap.Digest()
			}
		}
	})
	for w := range 3 {
		writers.Go(func() {
			for i := range 15 {
				put(t, r, cluster.Network{Name: fmt.Sprintf("%d-%d", w, i)})
			}
		})
	}
	writers.Go(func() {
		for i := range 15 {
			put(t, other, cluster.Network{Name: fmt.Sprintf("other-%d", i)}, cluster.Claim{Block: space, Owner: id(2)})
			exchange(t, other, r)
			if err := r.Flush(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	writers.Wait()
	close(stop)
	readers.Wait()
	exchange(t, r, other)
	if r.Snapshot().Len() != 61 || all(r) != all(other) {
		t.Errorf("%d records, the other has %d", r.Snapshot().Len(), other.Snapshot().Len())
	}
}

// TestMergeDoesNotWaitForTheFlush: what needs no disk goes on while the flush of what
// was merged before waits for it, and is flushed by the next one.
func TestMergeDoesNotWaitForTheFlush(t *testing.T) {
	from, to := open(t, id(1)), open(t, id(2))
	put(t, from, cluster.Node{ID: id(1)})
	exchange(t, from, to)
	hold, held := make(chan struct{}), make(chan struct{})
	var tasks errgroup.Group
	tasks.Go(func() error {
		return to.db.Update(func(*store.Tx) error { close(held); <-hold; return nil })
	})
	<-held
	tasks.Go(func() error { return to.Flush(t.Context()) })
	for pending := true; pending; {
		to.mu.Lock()
		pending = len(to.dirty) > 0
		to.mu.Unlock()
	}
	put(t, from, cluster.Node{ID: id(1), Name: "one"})
	exchange(t, from, to)
	close(hold)
	if err := tasks.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := to.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again := afterPowerLoss(t, to); all(again) != all(to) {
		t.Errorf("on the disk is %q", all(again))
	}
}
