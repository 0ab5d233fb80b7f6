package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"os"
	"runtime/debug"
	"slices"

	"go.etcd.io/bbolt"
)

// smallest is the size in bytes of the smallest file of bbolt: four pages of the
// smallest page size in use.
const smallest = 4 * 4096

// plausible looks at a file before bbolt does, which would write a new database
// into an empty file and read beyond the end of a short one.
func plausible(path string) error {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return fmt.Errorf("%w: it is a %s", ErrCorrupt, st.Mode().Type())
	case st.Size() == 0:
		return nil // a machine that lost power just after the file was made
	case st.Size() < smallest:
		return fmt.Errorf("%w: it has only %d bytes", ErrCorrupt, st.Size())
	}
	return nil
}

// guarded runs fn, which reads the file. On what it cannot make sense of bbolt
// panics, and it reads memory that is mapped beyond the end of a truncated file:
// both come back as ErrCorrupt.
func guarded(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	return fn()
}

// check reads the whole file once, so that damage is found now and not by a
// crash later, or never, and sets or compares the schema version.
func (db *DB) check() error {
	var found int
	err := db.view(func(tx *Tx) (err error) {
		if found, _, err = schema.Get(tx, schemaKey); err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		switch first, _ := tx.bolt.Cursor().First(); {
		case found > Schema:
			return fmt.Errorf("%w: it has version %d, this agent knows %d", ErrNewer, found, Schema)
		case found == 0 && (first != nil || tx.bolt.ID() > 1):
			return fmt.Errorf("%w: it says no version", ErrCorrupt)
		}
		if db.behind, err = tornMeta(db.Path()); err != nil {
			return err
		}
		if db.behind && found != Schema { // else writing the version would hide it
			return fmt.Errorf("%w: one of its first two pages", ErrCorrupt)
		}
		if err := tree(tx.bolt, db.Path()); err != nil || found < 2 {
			return err
		}
		return compare(tx.bolt)
	})
	if err != nil || found == Schema {
		return err
	}
	return db.bolt.Update(func(b *bbolt.Tx) error {
		if found == 1 {
			if err := sealAll(b); err != nil {
				return err
			}
		}
		return schema.Put(&Tx{bolt: b}, schemaKey, Schema)
	})
}

// sealAll makes version 2 of version 1.
func sealAll(tx *bbolt.Tx) error {
	return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		if string(name) == metaBucket {
			return nil
		}
		sealed := map[string][]byte{}
		err := b.ForEach(func(k, raw []byte) error {
			sealed[string(k)] = append(sum(k, raw), raw...)
			return nil
		})
		for _, k := range slices.Sorted(maps.Keys(sealed)) {
			if err == nil {
				err = b.Put([]byte(k), sealed[k])
			}
		}
		return err
	})
}

// tree reads every page and sees whether each is used once, or free, and all keys are in order.
func tree(tx *bbolt.Tx, path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.Size() < tx.Size() {
		return fmt.Errorf("%w: it has %d bytes of %d", ErrCorrupt, st.Size(), tx.Size())
	}
	// First what bbolt's own check rests on, here, where a panic is caught.
	if err := tiled(tx); err != nil {
		return err
	}
	err = tx.ForEach(func(_ []byte, b *bbolt.Bucket) error { return walk(b, func(_, _ []byte) error { return nil }) })
	if err != nil {
		return err
	}
	for e := range tx.Check() {
		if err == nil {
			err = fmt.Errorf("%w: %w", ErrCorrupt, e)
		}
	}
	return err
}

// tiled sees whether the pages follow each other to the end: some are so long that the next
// ones are theirs, too.
func tiled(tx *bbolt.Tx) error {
	next := 2 // after the meta pages
	for id := next; ; id = next {
		switch p, err := tx.Page(id); {
		case err != nil:
			return err
		case p == nil && int64(id)*int64(tx.DB().Info().PageSize) == tx.Size():
			return nil
		case p == nil:
			return fmt.Errorf("%w: a page is longer than the file", ErrCorrupt)
		case p.Type == "free":
			next++
		default:
			next += 1 + p.OverflowCount
		}
	}
}

// walk calls fn for each entry of a bucket and checks the order of their keys.
func walk(b *bbolt.Bucket, fn func(k, v []byte) error) error {
	var last []byte
	return b.ForEach(func(k, v []byte) error {
		if last != nil && bytes.Compare(last, k) >= 0 {
			return fmt.Errorf("%w: keys out of order", ErrCorrupt)
		}
		last = k
		return fn(k, v)
	})
}

// tornMeta reports whether one of bbolt's two meta pages, of which the newer one that is
// whole counts, is not whole. The form is bbolt's, after a page header of 16 bytes:
//
//	magic 4 | version 4 | page size 4 | ... | checksum 8 (FNV-1a of the 56 bytes before it)
func tornMeta(path string) (bool, error) {
	const header, length, magic = 16, 56, 0xED0CDAED
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	size := int64(0)
	whole := func(at int64) bool {
		var page [header + length + 8]byte
		if _, err := f.ReadAt(page[:], at); err != nil {
			return false
		}
		m := page[header:]
		sum := fnv.New64a()
		_, _ = sum.Write(m[:length])
		if binary.NativeEndian.Uint32(m) != magic || binary.NativeEndian.Uint64(m[length:]) != sum.Sum64() {
			return false
		}
		size = int64(binary.NativeEndian.Uint32(m[8:]))
		return true
	}
	return !whole(0) || !whole(size), nil // what opened without the first has one whole page
}
