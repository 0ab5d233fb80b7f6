package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

type lease struct {
	Addr netip.Addr
	Tag  string
}

var (
	leases = NewBucket[lease]("test/leases")
	blobs  = NewBucket[[]byte]("test/blobs")
)

func file(t *testing.T) string { return filepath.Join(t.TempDir(), "new", "state.db") }

func openFile(t *testing.T, path string) *DB {
	t.Helper()
	db, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func update(t *testing.T, db *DB, fn func(*Tx) error) {
	t.Helper()
	if err := db.Update(fn); err != nil {
		t.Fatal(err)
	}
}

// contents prints both buckets.
func contents(t *testing.T, db *DB) string {
	t.Helper()
	var all []string
	err := db.View(func(tx *Tx) error {
		return errors.Join(
			leases.ForEach(tx, func(k string, l lease) error { all = append(all, fmt.Sprint(k, l)); return nil }),
			blobs.ForEach(tx, func(k string, b []byte) error { all = append(all, fmt.Sprintf("%s%d", k, b)); return nil }),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func TestWhatIsWrittenIsThereAfterwards(t *testing.T) {
	path := file(t)
	db := openFile(t, path)
	want := lease{netip.MustParseAddr("10.0.0.1"), "x"}
	update(t, db, func(tx *Tx) error {
		return errors.Join(leases.Put(tx, "b", want), leases.Put(tx, "a", lease{}), blobs.Put(tx, "k", []byte{1, 2}))
	})
	update(t, db, func(tx *Tx) error { return errors.Join(leases.Delete(tx, "a"), leases.Delete(tx, "none")) })
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = openFile(t, path)
	if got := contents(t, db); got != "b{10.0.0.1 x} k[1 2]" {
		t.Errorf("contents %q", got)
	}
	err := db.View(func(tx *Tx) error {
		got, ok, err := leases.Get(tx, "b")
		if got != want || !ok {
			t.Errorf("Get = %v, %v", got, ok)
		}
		if _, ok, _ := leases.Get(tx, "a"); ok {
			t.Error("a is still there")
		}
		if _, ok, err := NewBucket[int]("test/none").Get(tx, "x"); ok || err != nil {
			t.Errorf("a bucket that is not there: %v, %v", ok, err)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: others could read keys", st.Mode(), err)
	}
}

func TestUpdateIsAllOrNothing(t *testing.T) {
	db := openFile(t, file(t))
	update(t, db, func(tx *Tx) error { return blobs.Put(tx, "old", []byte("1")) })
	before := contents(t, db)
	failure := errors.New("no more")
	err := db.Update(func(tx *Tx) error {
		if err := errors.Join(leases.Put(tx, "new", lease{}), blobs.Clear(tx)); err != nil {
			return err
		}
		return failure
	})
	if !errors.Is(err, failure) || contents(t, db) != before {
		t.Errorf("error %v, contents %q, before %q", err, contents(t, db), before)
	}
	for name, key := range map[string]string{"empty key": "", "long key": strings.Repeat("x", 40000)} {
		if err := db.Update(func(tx *Tx) error { return blobs.Put(tx, key, nil) }); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := db.View(func(tx *Tx) error { return blobs.Put(tx, "x", nil) }); err == nil {
		t.Error("wrote in a View")
	}
}

func TestForEachStops(t *testing.T) {
	db := openFile(t, file(t))
	update(t, db, func(tx *Tx) error {
		return errors.Join(blobs.Put(tx, "a", nil), blobs.Put(tx, "b", nil), leases.Put(tx, "x", lease{}))
	})
	failure := errors.New("enough")
	for _, stop := range []error{ErrStop, failure} {
		var seen []string
		err := db.View(func(tx *Tx) error {
			return blobs.ForEach(tx, func(k string, _ []byte) error { seen = append(seen, k); return stop })
		})
		if !slices.Equal(seen, []string{"a"}) || errors.Is(err, failure) != errors.Is(stop, failure) || errors.Is(err, ErrStop) {
			t.Errorf("%v: saw %v, error %v", stop, seen, err)
		}
	}
	numbers := NewBucket[int]("test/leases") // of another type than was written
	err := db.View(func(tx *Tx) error { return numbers.ForEach(tx, func(string, int) error { return nil }) })
	if err == nil || !strings.Contains(err.Error(), "test/leases") || !strings.Contains(err.Error(), db.Path()) || !strings.Contains(err.Error(), "grapevine restore") {
		t.Errorf("error %v", err)
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	valid := func(t *testing.T, fn func(*Tx) error) string {
		path := file(t)
		db := openFile(t, path)
		update(t, db, fn)
		db.Close()
		return path
	}
	many := func(tx *Tx) error {
		for i := range 2000 {
			if err := blobs.Put(tx, strconv.Itoa(i), make([]byte, 100)); err != nil {
				return err
			}
		}
		return nil
	}
	tests := map[string]struct {
		path func(t *testing.T) string
		want error
	}{
		"newer": {func(t *testing.T) string {
			return valid(t, func(tx *Tx) error { return schema.Put(tx, schemaKey, Schema+1) })
		}, ErrNewer},
		"garbage": {func(t *testing.T) string {
			path := valid(t, many)
			if err := os.WriteFile(path, bytes.Repeat([]byte("junk"), 1<<14), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}, ErrCorrupt},
		"short": {func(t *testing.T) string {
			path := valid(t, many)
			if err := os.Truncate(path, 100); err != nil {
				t.Fatal(err)
			}
			return path
		}, ErrCorrupt},
		"truncated": {func(t *testing.T) string {
			path := valid(t, many)
			if err := os.Truncate(path, 1<<16); err != nil {
				t.Fatal(err)
			}
			return path
		}, ErrCorrupt},
		"directory": {func(t *testing.T) string { return t.TempDir() }, ErrCorrupt},
		"in use": {func(t *testing.T) string {
			path := file(t)
			openFile(t, path)
			return path
		}, ErrInUse},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := tt.path(t)
			db, err := open(path, 50*time.Millisecond)
			if err == nil {
				db.Close()
			}
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want %v and the path", err, tt.want)
			}
		})
	}
}

func TestAnEmptyFileIsNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	openFile(t, path)
}

// TestDamageNeverCrashes overwrites bytes anywhere in the file: Open refuses it,
// or has all that was written.
func TestDamageNeverCrashes(t *testing.T) {
	path := file(t)
	db := openFile(t, path)
	update(t, db, func(tx *Tx) error {
		for i := range 300 {
			if err := leases.Put(tx, strconv.Itoa(i), lease{Tag: strings.Repeat("x", 50)}); err != nil {
				return err
			}
		}
		return nil
	})
	want := contents(t, db)
	db.Close()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for i := range 200 {
		bad := slices.Clone(good)
		at := random.IntN(len(bad) - 16)
		for j := range 16 {
			bad[at+j] = byte(random.Uint32())
		}
		damaged := filepath.Join(t.TempDir(), strconv.Itoa(i))
		if err := os.WriteFile(damaged, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := open(damaged, time.Second)
		if err != nil {
			refused++
			continue
		}
		// A meta page that is damaged looks like one that was being written when power
		// was lost: the Update before counts, and the file says so.
		if got := contents(t, db); got != want && (!db.Behind() || got != "") {
			t.Errorf("%d: opened with other contents", i)
		}
		db.Close()
	}
	if refused == 0 {
		t.Error("no damage was noticed")
	}
}

func TestUpdatesOfManyGoroutines(t *testing.T) {
	db := openFile(t, file(t))
	counter := NewBucket[int]("test/counter")
	done := make(chan error)
	for range 4 {
		go func() {
			for range 25 {
				if err := db.Update(func(tx *Tx) error {
					n, _, err := counter.Get(tx, "n")
					return errors.Join(err, counter.Put(tx, "n", n+1))
				}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	_ = db.View(func(tx *Tx) error {
		if n, _, err := counter.Get(tx, "n"); n != 100 || err != nil {
			t.Errorf("counted to %d, %v", n, err)
		}
		return nil
	})
}

// TestWriting: for how long an Update has had the file is told while it has it, and no longer.
func TestWriting(t *testing.T) {
	db := openFile(t, file(t))
	const wait = 10 * time.Millisecond
	update(t, db, func(*Tx) error {
		time.Sleep(wait)
		if took := db.Writing(); took < wait {
			t.Errorf("%v after %v", took, wait)
		}
		return nil
	})
	if took := db.Writing(); took != 0 {
		t.Errorf("%v when nothing is written", took)
	}
}
