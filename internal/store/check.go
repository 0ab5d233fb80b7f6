package store

import (
	"bytes"
	"errors"
	"fmt"
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
// crash later, and sets or compares the schema version.
func check(db *bbolt.DB, path string) error {
	var found int
	err := db.View(func(tx *bbolt.Tx) (err error) {
		found, _, err = meta.Get(&Tx{tx}, schemaKey)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case found > Schema:
		return fmt.Errorf("%w: it has version %d, this agent knows %d", ErrNewer, found, Schema)
	}
	if err := db.View(func(tx *bbolt.Tx) error { return pages(tx, path, found >= 2) }); err != nil {
		return err
	}
	if found == Schema {
		return nil
	}
	return db.Update(func(tx *bbolt.Tx) error {
		if found == 1 {
			if err := sealAll(tx); err != nil {
				return err
			}
		}
		return meta.Put(&Tx{tx}, schemaKey, Schema)
	})
}

// sealAll makes version 2 of version 1.
func sealAll(tx *bbolt.Tx) error {
	return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		if bytes.Equal(name, meta.name) {
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

func pages(tx *bbolt.Tx, path string, sealed bool) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.Size() < tx.Size() {
		return fmt.Errorf("%w: it has %d bytes of %d", ErrCorrupt, st.Size(), tx.Size())
	}
	return tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return walk(b, sealed && !bytes.Equal(name, meta.name)) })
}

// walk reads every page of a bucket and checks the order of its keys and the
// checksums of its values.
func walk(b *bbolt.Bucket, sealed bool) error {
	var last []byte
	return b.ForEach(func(k, v []byte) error {
		if sealed {
			if _, err := opened(k, v); err != nil {
				return err
			}
		}
		if last != nil && bytes.Compare(last, k) >= 0 {
			return fmt.Errorf("%w: keys out of order", ErrCorrupt)
		}
		last = k
		return nil
	})
}
