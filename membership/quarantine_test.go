package membership

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/membership/backup"
	"github.com/grapevine-net/grapevine/membership/identity"
	"github.com/grapevine-net/grapevine/replica"
)

// whats joins what a host's problems say.
func (h *testHost) whats() string {
	var all []string
	for _, p := range h.Problems(h.replica.Snapshot()) {
		all = append(all, p.What)
	}
	return strings.Join(all, "\n")
}

// TestClone runs two hosts with one state directory's content: all are told, and
// neither hands out anything.
func TestClone(t *testing.T) { virtual(t, testClone) }

func testClone(t *testing.T) {
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
		return len(one.gossip.Alive()) == 1 && len(two.gossip.Alive()) == 1 && vtep() == two.to.Addr
	})
	clone := newHost(t, 3, filepath.Join(copied, "state"), 1, 2).run()
	for _, h := range []*testHost{two, clone} {
		eventually(t, "both know", func() bool { return h.Quarantine.Quarantined() != nil && h.whats() != "" })
		if _, err := h.alloc.VNID(ctx); err == nil || !strings.Contains(err.Error(), "hands out no addresses") {
			t.Errorf("a doubled host hands out a VNID: %v", err)
		}
	}
	// What is for the original does not go to its copy.
	if vtep() != two.to.Addr {
		t.Errorf("host1 takes %v for the VTEP of host2, which is %v", vtep(), two.to.Addr)
	}
	if _, err := clone.replica.Update(func(tx *replica.Tx) error { return tx.Put(cluster.Network{Name: "x"}) }); !errors.Is(err, errElsewhere) {
		t.Errorf("the copy writes: %v", err)
	}
	eventually(t, "the other host names them", func() bool {
		return strings.Contains(strings.Join(one.gossip.Problems(), "\n"), "same node ID "+two.id.Node)
	})
}

func (h *testHost) backUp(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := h.Backup(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestRestore: a backup that has everything goes on where it was; one from before
// this host gave something away does not, whatever it is asked.
func TestRestore(t *testing.T) { virtual(t, testRestore) }

func testRestore(t *testing.T) {
	ctx := context.Background()
	// Neither asks for anything unasked: a gift after the backup would be a write that it lacks.
	one := newHost(t, 1, t.TempDir(), 1, 2).start()
	two := newHost(t, 2, t.TempDir(), 1, 2).start()
	eventually(t, "host2 joins", func() bool { return two.member() && len(one.gossip.Alive()) == 1 })
	old := one.backUp(t)
	if _, err := two.alloc.VNID(ctx); err != nil { // from host1
		t.Fatal(err)
	}
	eventually(t, "all is told", func() bool { return bytes.Equal(one.replica.Digest(), two.replica.Digest()) })
	recent := one.backUp(t)
	one.stop()

	again := func(tar []byte) *testHost {
		dir := filepath.Join(t.TempDir(), "state")
		if _, err := backup.Restore(bytes.NewReader(tar), dir, false); err != nil {
			t.Fatal(err)
		}
		h := newHost(t, 1, dir, 1, 2)
		return h.start()
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
	two = newHost(t, 2, two.cfg.State, 1, 2).start()
	eventually(t, "the recent backup is good", func() bool { return good.Quarantine.Quarantined() == nil && good.member() })
	if _, err := good.alloc.VNID(ctx); err != nil {
		t.Error(err)
	}
	if id, err := identity.Load(good.cfg.State); err != nil || id.Restored {
		t.Errorf("after a restart it would ask again: %+v, %v", id, err)
	}
}

// TestHalfAStateIsRefused: without one of its two files a state directory is
// nobody's; the error names both and says what to do.
func TestHalfAStateIsRefused(t *testing.T) { virtual(t, testHalfAStateIsRefused) }

func testHalfAStateIsRefused(t *testing.T) {
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

// rot flips a bit of the page that says what the newest state in a state file is.
func rot(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, stateFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const txid = 16 + 48
	newest := 0
	if p := os.Getpagesize(); binary.NativeEndian.Uint64(b[p+txid:]) > binary.NativeEndian.Uint64(b[txid:]) {
		newest = p
	}
	b[newest+txid] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLastUpdateMayBeMissing: a host whose state file may lack what was written last hands out
// nothing until another one has said that it does not; one without others asks, and goes on.
func TestLastUpdateMayBeMissing(t *testing.T) { virtual(t, testLastUpdateMayBeMissing) }

func testLastUpdateMayBeMissing(t *testing.T) {
	one, two := settledPair(t)
	two.stop()
	one.stop()
	rot(t, two.cfg.State)
	two = newHost(t, 2, two.cfg.State, 1, 2)
	if id, err := identity.Load(two.cfg.State); err != nil || !id.Restored || id.Alone {
		t.Errorf("after a restart it would not ask: %+v, %v", id, err)
	}
	staysHalted(t, 2*time.Second, two.run())
	newHost(t, 1, one.cfg.State, 1, 2).run()
	eventually(t, "it goes on", func() bool { return two.Quarantine.Quarantined() == nil })

	three := newHost(t, 3, t.TempDir(), 3).run()
	eventually(t, "it begins a cluster", three.member)
	three.stop()
	rot(t, three.cfg.State)
	three = newHost(t, 3, three.cfg.State, 3).run()
	if three.Quarantine.Quarantined() == nil {
		t.Error("it asks nobody")
	}
	eventually(t, "it goes on", func() bool { return three.Quarantine.Quarantined() == nil })
}

// TestDamageIsNamed: what makes no sense in the state file is refused with its name and a way out.
func TestDamageIsNamed(t *testing.T) {
	for name, read := range map[string]func(*store.DB) error{
		"ipam": func(db *store.DB) error {
			_, err := ipam.New(ipam.Config{}, nil, nil, ipam.StoreDisk{DB: db})
			return err
		},
		"replica/records": func(db *store.DB) error { _, err := replica.Open(db, "self"); return err },
		"replica/marks":   func(db *store.DB) error { _, err := replica.Open(db, "self"); return err },
		"agent/peers":     func(db *store.DB) error { _, err := knownPeers(db); return err },
	} {
		db, err := store.Open(filepath.Join(t.TempDir(), stateFile))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		key := peersKey
		if name == "ipam" {
			key = "lease 10.0.0.1"
		}
		err = db.Update(func(tx *store.Tx) error { return store.NewBucket[[]byte](name).Put(tx, key, []byte("junk")) })
		if err != nil {
			t.Fatal(err)
		}
		if err := read(db); err == nil || strings.Count(err.Error(), db.Path()) != 1 || strings.Count(err.Error(), "grapevine restore") != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
