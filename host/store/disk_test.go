package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// pageSize is at least that of bbolt's files here, or a divisor of it.
const pageSize = 4096

// TestPowerLossAtEveryWrite goes through all that the disk may have when power is
// lost during an Update: bbolt writes pages, syncs, writes one of two meta pages,
// syncs. Before the first sync any of the pages may be there or not, or half of
// one; before the second the meta page may be. The file must open with what was
// written before the Update or, only if the meta page is whole, with all of it.
func TestPowerLossAtEveryWrite(t *testing.T) {
	path := file(t)
	db := openFile(t, path)
	read := func() []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	states := 0
	for round := range 6 {
		before, had := read(), contents(t, db)
		update(t, db, func(tx *Tx) error {
			for i := range 1 + 40*(round%3) {
				if err := blobs.Put(tx, fmt.Sprintf("%d-%d", round%5, i), bytes.Repeat([]byte{byte(round)}, 100)); err != nil {
					return err
				}
			}
			return leases.Put(tx, "one", lease{Tag: strconv.Itoa(round)})
		})
		after, has := read(), contents(t, db)
		// A file that has grown is zeros there until it is written.
		old := append(bytes.Clone(before), make([]byte, max(0, len(after)-len(before)))...)
		var metas, pages []int
		for at := 0; at < len(after); at += pageSize {
			if bytes.Equal(old[at:at+pageSize], after[at:at+pageSize]) {
				continue
			}
			if at < 2*os.Getpagesize() {
				metas = append(metas, at)
			} else {
				pages = append(pages, at)
			}
		}
		if len(metas) != 1 || len(pages) == 0 {
			t.Fatalf("round %d: %d meta pages and %d others were written", round, len(metas), len(pages))
		}
		lost := func(what string, disk []byte, want ...string) {
			t.Helper()
			states++
			copied := filepath.Join(t.TempDir(), "state.db")
			if err := os.WriteFile(copied, disk, 0o600); err != nil {
				t.Fatal(err)
			}
			db, err := Open(copied)
			if err != nil {
				t.Errorf("round %d, %s: %v", round, what, err)
				return
			}
			defer db.Close()
			got := contents(t, db)
			for _, w := range want {
				if got == w {
					return
				}
			}
			t.Errorf("round %d, %s: neither what was there before nor what was written", round, what)
		}
		write := func(disk []byte, at, n int) { copy(disk[at:at+n], after[at:at+n]) }
		disk := bytes.Clone(old)
		for i, at := range pages {
			alone := bytes.Clone(old)
			write(alone, at, pageSize)
			lost(fmt.Sprintf("page %d alone", i), alone, had)
			write(disk, at, pageSize/2)
			lost(fmt.Sprintf("page %d torn", i), disk, had)
			write(disk, at, pageSize)
			lost(fmt.Sprintf("page %d of %d", i, len(pages)), disk, had)
		}
		for n := 16; n < 100; n += 8 {
			torn := bytes.Clone(disk)
			write(torn, metas[0], n)
			lost(fmt.Sprintf("%d bytes of the meta page", n), torn, had, has)
		}
		write(disk, metas[0], pageSize)
		lost("all of it", disk, has)
	}
	t.Logf("%d states of the disk", states)
}

// TestEveryBitOfTheHeaders: a bit that has rotted in the header of any page, or anywhere in one
// of the two that say what the newest state is, is found, or nothing is missing and what is
// written next is there; or else the file says that the last Update may be missing.
func TestEveryBitOfTheHeaders(t *testing.T) {
	path := file(t)
	db := openFile(t, path)
	had := ""
	for round := range 3 {
		had = contents(t, db)
		update(t, db, func(tx *Tx) error {
			for i := range 100 {
				if err := leases.Put(tx, strconv.Itoa(i+100*round), lease{Tag: strings.Repeat("x", 50)}); err != nil {
					return err
				}
			}
			return blobs.Put(tx, "one", []byte{byte(round)})
		})
	}
	has := contents(t, db)
	if err := db.bolt.Close(); err != nil { // Close would write
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused, behind := 0, 0
	try := func(page, bit int) {
		bad := bytes.Clone(good)
		bad[page*pageSize+bit/8] ^= 1 << (bit % 8)
		damaged := filepath.Join(filepath.Dir(path), fmt.Sprintf("%d-%d.db", page, bit)) // bbolt may keep the lock of what it refuses
		defer os.Remove(damaged)
		if err := os.WriteFile(damaged, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := open(damaged, time.Second)
		if err != nil {
			refused++
			if !strings.Contains(err.Error(), damaged) {
				t.Errorf("page %d, bit %d: %v", page, bit, err)
			}
			return
		}
		defer db.bolt.Close()
		if db.Behind() {
			behind++
		}
		if got := contents(t, db); got != has && (got != had || !db.Behind()) {
			t.Errorf("page %d, bit %d: other contents, of %d bytes instead of %d", page, bit, len(got), len(has))
			return
		}
		db.bolt.NoSync = true
		update(t, db, func(tx *Tx) error { return blobs.Put(tx, "two", make([]byte, 2*pageSize)) })
		if got := contents(t, db); !strings.Contains(got, "two[0 0 0") {
			t.Errorf("page %d, bit %d: what is written is not there", page, bit)
		}
	}
	for page := range len(good) / pageSize {
		bits := 16 * 8
		if page < 2 {
			bits += 64 * 8
		}
		for bit := range bits {
			try(page, bit)
		}
	}
	if refused == 0 || behind == 0 {
		t.Error("no damage was noticed")
	}
	t.Logf("%d pages: %d bits refused, with %d the last Update may be missing", len(good)/pageSize, refused, behind)
}

// TestOlderAgentsLeaveInventories: what an agent wrote that knows none is counted anew.
func TestOlderAgentsLeaveInventories(t *testing.T) {
	path := file(t)
	db := openFile(t, path)
	update(t, db, func(tx *Tx) error { return errors.Join(blobs.Put(tx, "a", []byte{1}), blobs.Put(tx, "b", []byte{2})) })
	if err := db.bolt.Update(func(b *bbolt.Tx) error { return blobs.Delete(&Tx{bolt: b}, "a") }); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if i > 0 {
			update(t, db, func(tx *Tx) error { return blobs.Put(tx, strconv.Itoa(i), nil) })
		}
		if err := db.bolt.Close(); err != nil {
			t.Fatal(err)
		}
		db = openFile(t, path)
	}
	if got := contents(t, db); got != "1[] 2[] b[2]" {
		t.Errorf("contents %s", got)
	}
}

// TestVersion1 is taken over, whole.
func TestVersion1(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	old, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = old.Update(func(tx *bbolt.Tx) error {
		for bucket, kv := range map[string][2]string{"meta": {schemaKey, "1"}, "test/leases": {"one", `{"Addr":"10.0.0.1","Tag":"a"}`}, "test/blobs": {"two", "b"}} {
			b, err := tx.CreateBucket([]byte(bucket))
			if err == nil {
				err = b.Put([]byte(kv[0]), []byte(kv[1]))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, old.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		db := openFile(t, path)
		if got := contents(t, db); got != "one{10.0.0.1 a} two[98]" {
			t.Errorf("contents %s", got)
		}
		db.Close()
	}
}

// small mounts a file system of 256 kB.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatalf("mount a small file system: %v; the tests run as root", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	return dir
}

// TestFullDisk: an Update that does not fit fails and changes nothing; when there
// is room again, the next one works.
func TestFullDisk(t *testing.T) {
	dir := small(t)
	path := filepath.Join(dir, "state.db")
	db := openFile(t, path)
	update(t, db, func(tx *Tx) error { return leases.Put(tx, "one", lease{Tag: "kept"}) })
	had := contents(t, db)
	rest := filepath.Join(dir, "rest")
	if err := os.WriteFile(rest, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	big := func(tx *Tx) error { return blobs.Put(tx, "big", make([]byte, 100<<10)) }
	for range 3 {
		if err := db.Update(big); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "make room") {
			t.Errorf("on a full disk: %v", err)
		}
		if got := contents(t, db); got != had {
			t.Errorf("after that: %s", got)
		}
	}
	if err := os.Remove(rest); err != nil {
		t.Fatal(err)
	}
	update(t, db, big)
	db.Close()
	if got := contents(t, openFile(t, path)); !strings.HasPrefix(got, had) || got == had {
		t.Errorf("when there is room: %.80s", got)
	}
}

// TestReadOnlyDisk: a state file that cannot be written is refused, with its name.
func TestReadOnlyDisk(t *testing.T) {
	dir := small(t)
	path := filepath.Join(dir, "state.db")
	openFile(t, path).Close()
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatalf("remount it read-only: %v", err)
	}
	for _, path := range []string{path, filepath.Join(dir, "new.db"), filepath.Join(dir, "a", "new.db")} {
		db, err := Open(path)
		if err == nil {
			db.Close()
		}
		if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), filepath.Base(dir)) || !strings.Contains(err.Error(), "writable") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// FuzzOpen: whatever is in a file, Open refuses it or what it opens can be read.
func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "state.db")
	db, err := Open(path)
	if err != nil {
		f.Fatal(err)
	}
	if err := db.Update(func(tx *Tx) error { return leases.Put(tx, "one", lease{Tag: "x"}) }); err != nil {
		f.Fatal(err)
	}
	db.Close()
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "state.db")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := open(path, 0)
		if err != nil {
			return
		}
		defer db.Close()
		_ = db.View(func(tx *Tx) error { return leases.ForEach(tx, func(string, lease) error { return nil }) })
	})
}
