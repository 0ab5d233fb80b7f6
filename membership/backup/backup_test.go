package backup

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/membership/identity"
)

var numbers = store.NewBucket[int]("numbers")

// state makes a state directory and a backup of it.
func state(t testing.TB) (id identity.Identity, tar []byte) {
	t.Helper()
	dir := t.TempDir()
	id, err := identity.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(filepath.Join(dir, StateFile))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(func(tx *store.Tx) error { return numbers.Put(tx, "one", 1) }); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Write(&b, Manifest{Node: id.Node, Name: "host1"}, dir, db); err != nil {
		t.Fatal(err)
	}
	return id, b.Bytes()
}

func TestBackupAndRestore(t *testing.T) {
	id, tar := state(t)
	if m, err := Check(bytes.NewReader(tar)); err != nil || m.Node != id.Node || m.Name != "host1" {
		t.Fatalf("%+v, %v", m, err)
	}
	dir := filepath.Join(t.TempDir(), "a", "state")
	if _, err := Restore(bytes.NewReader(tar), dir, false); err != nil {
		t.Fatal(err)
	}
	got, err := identity.Load(dir)
	if err != nil || got.Node != id.Node || !got.Restored {
		t.Errorf("identity %+v, %v: want that of %s, restored", got, err, id.Node)
	}
	if key, err := os.ReadFile(filepath.Join(dir, "key")); err != nil || string(key) != "key\n" {
		t.Errorf("key %q, %v", key, err)
	}
	db, err := store.Open(filepath.Join(dir, StateFile))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *store.Tx) error {
		if n, _, err := numbers.Get(tx, "one"); err != nil || n != 1 {
			t.Errorf("%d, %v", n, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("%v, %v: want three files", entries, err)
	}
	before := contents(t, dir)
	if _, err := Restore(bytes.NewReader(tar), dir, false); err == nil {
		t.Error("restored over what was there")
	}
	if !maps.Equal(before, contents(t, dir)) {
		t.Error("a refused restore changed the state that was there")
	}
}

// contents are the files of a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		raw, readErr := os.ReadFile(filepath.Join(dir, e.Name()))
		files[e.Name()], err = string(raw), errors.Join(err, readErr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// meanwhile is a backup while which is read something is done.
type meanwhile struct {
	io.Reader
	do func()
}

func (r meanwhile) Read(p []byte) (int, error) {
	r.do()
	return r.Reader.Read(p)
}

// TestOneAtATime: no agent begins while its state is restored, and nothing is restored while
// one runs.
func TestOneAtATime(t *testing.T) {
	_, tar := state(t)
	dir := filepath.Join(t.TempDir(), "state")
	tried := 0
	_, err := Restore(meanwhile{bytes.NewReader(tar), func() {
		if release, err := store.Lock(dir, 0); !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), dir) {
			t.Errorf("an agent may begin: %v, %v", release != nil, err)
		}
		tried++
	}}, dir, false)
	if err != nil || tried == 0 {
		t.Fatalf("%v, tried %d times", err, tried)
	}
	before := contents(t, dir)
	release, err := store.Lock(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(bytes.NewReader(tar), dir, false); err == nil || !strings.Contains(err.Error(), "the agent runs") {
		t.Errorf("restored while an agent runs: %v", err)
	}
	if after := contents(t, dir); !maps.Equal(before, after) {
		t.Errorf("before %v, after %v", before, after)
	}
	release()
	if release, err = store.Lock(dir, 0); err != nil {
		t.Fatal(err)
	}
	release()
}

// TestDamagedBackupRestoresNothing: cut off anywhere, or with a byte changed in
// what holds it together.
func TestDamagedBackupRestoresNothing(t *testing.T) {
	_, tar := state(t)
	nothing := func(name string, b []byte, wantDamaged bool) {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "state")
		_, err := Restore(bytes.NewReader(b), dir, false)
		if err == nil || wantDamaged && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) > 0 {
			t.Errorf("%s: left %v", name, entries)
		}
	}
	for n := 0; n < len(tar)-3*512; n += 509 { // the end entry and two empty blocks
		nothing("cut off", tar[:n], true)
	}
	nothing("no backup", []byte("junk"), true)
	at := bytes.Index(tar, []byte(`"node"`)) // in the manifest; the identity's comes next
	at += bytes.Index(tar[at+6:], []byte(`"node"`)) + 6
	spoilt := bytes.Clone(tar)
	spoilt[at+10] ^= 1
	nothing("another identity", spoilt, false)
}

// FuzzRestore: whatever a file has in it, it is refused and leaves nothing, or makes a state that
// opens.
func FuzzRestore(f *testing.F) {
	_, good := state(f)
	if _, err := Restore(bytes.NewReader(good), filepath.Join(f.TempDir(), "state"), false); err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-3*512])
	f.Add([]byte("junk"))
	f.Fuzz(func(t *testing.T, b []byte) {
		t.Setenv("TMPDIR", "/dev/shm") // what is written has not to wait for a disk
		dir := filepath.Join(t.TempDir(), "state")
		if _, err := Restore(bytes.NewReader(b), dir, false); err != nil {
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("%v: left %v", err, left)
			}
			return
		}
		if id, err := identity.Load(dir); err != nil || !id.Restored {
			t.Errorf("identity %+v, %v", id, err)
		}
		db, err := store.Open(filepath.Join(dir, StateFile))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		_ = db.View(func(tx *store.Tx) error { return numbers.ForEach(tx, func(string, int) error { return nil }) })
	})
}
