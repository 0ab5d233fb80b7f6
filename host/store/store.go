// Package store keeps an agent's state in one file (bbolt): what is written in
// an Update is on the disk, whole or not at all, when Update returns.
//
// Packages that keep state declare their own Buckets; one Update may write to
// several of them.
package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Schema is the version of what all buckets together hold. It rises when an
// older agent would misread what a newer one has written.
//
//	1: values as they are
//	2: each value after a checksum of it and its key
const Schema = 2

// LockWait is how long Open waits for another agent to let go of the file, and an agent for
// its state directory (Hold): one that is being replaced needs a moment to end.
const LockWait = 3 * time.Second

// Errors of Open, wrapped.
var (
	// ErrInUse: another process has the file open, or holds its directory.
	ErrInUse = errors.New("in use by another agent")
	// ErrCorrupt: the file is not one of ours or is damaged.
	ErrCorrupt = errors.New("damaged or not a state file")
	// ErrNewer: a newer agent has written the file.
	ErrNewer = errors.New("written by a newer agent")
)

// DB is an open state file. Any number of goroutines may use it.
type DB struct {
	bolt *bbolt.DB
	// before is the age at the time when it was opened.
	before time.Duration
	opened time.Time
	behind bool
	// began is when the Update that has the file began to, after opened; 0 if none has.
	began atomic.Int64
}

// File is what those need who keep their own in a state file; *DB is one.
type File interface {
	View(fn func(*Tx) error) error
	Update(fn func(*Tx) error) error
}

// Tx is one transaction; it is valid inside the function that it is passed to.
type Tx struct {
	bolt        *bbolt.Tx
	inventories map[string]inventory // by bucket, as of now; nil in a View
}

// metaBucket has what is said of the others.
const metaBucket = "meta"

var schema = NewBucket[int](metaBucket)

const schemaKey = "schema"

// Open opens the state file at path, and makes it (mode 0600) and its directory
// (0700) if they are not there. It waits three seconds for another agent to
// close it. Errors name the file and say what to do.
func Open(path string) (*DB, error) { return open(path, LockWait) }

func open(path string, wait time.Duration) (*DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the state file: %w%s", err, Advice(err))
	}
	if err := plausible(path); err != nil {
		return nil, explain(path, err)
	}
	var db *bbolt.DB
	err := guarded(func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: wait, FreelistType: bbolt.FreelistMapType})
		return err
	})
	if err != nil {
		return nil, explain(path, err)
	}
	opened := &DB{bolt: db}
	err = guarded(func() error { return errors.Join(opened.check(), opened.readAge()) })
	if err != nil {
		return nil, errors.Join(explain(path, err), db.Close())
	}
	return opened, nil
}

// Behind reports whether the last Update may be missing in the file, which was whole: one of
// the two pages that say by turns what the newest state is was damaged when it was
// opened. It was being written as the power failed, or it has rotted since.
func (db *DB) Behind() bool { return db.behind }

// Path returns the name of the file.
func (db *DB) Path() string { return db.bolt.Path() }

// Close waits for running transactions and lets go of the file.
func (db *DB) Close() error {
	_ = db.KeepAge() // else this run counts for less: nothing is forgotten too early
	return db.bolt.Close()
}

// Update runs fn in a transaction and writes what it did to the disk, before
// it returns, all of it; or nothing if fn or the disk fails. Updates run one
// after the other: fn must not call Update, nor wait for who does.
func (db *DB) Update(fn func(*Tx) error) error {
	var failed error
	var began int64
	defer func() { db.began.CompareAndSwap(began, 0) }()
	err := db.bolt.Update(func(b *bbolt.Tx) error {
		began = max(1, int64(time.Since(db.opened)))
		db.began.Store(began)
		tx := &Tx{bolt: b}
		if failed = tx.readInventories(); failed != nil {
			return failed
		}
		if failed = fn(tx); failed != nil {
			return failed
		}
		return tx.writeInventories()
	})
	if err != nil && failed == nil {
		return fmt.Errorf("write %s: %w%s", db.Path(), err, Advice(err))
	}
	return err
}

// Writing returns for how long the Update that has the file has had it, 0 if none has: one that
// takes seconds waits for the disk. It does not wait.
func (db *DB) Writing() time.Duration {
	if began := db.began.Load(); began != 0 {
		return time.Since(db.opened) - time.Duration(began)
	}
	return 0
}

// View runs fn in a transaction that sees the last Update whole and writes
// nothing. It does not wait for Updates. An error of fn, which makes no sense of what it
// reads, comes back as ErrCorrupt, with the file's name and what to do.
func (db *DB) View(fn func(*Tx) error) error {
	if err := db.view(fn); err != nil {
		return db.Damaged(err)
	}
	return nil
}

// Damaged is an ErrCorrupt for an error that shows that what the file says cannot be.
func (db *DB) Damaged(err error) error {
	return explain(db.Path(), fmt.Errorf("%w: %w", ErrCorrupt, err))
}

func (db *DB) view(fn func(*Tx) error) error {
	return db.bolt.View(func(tx *bbolt.Tx) error { return fn(&Tx{bolt: tx}) })
}

// Copy writes the file as it is at one moment to the writer that to returns for
// its size in bytes. Updates go on meanwhile.
func (db *DB) Copy(to func(size int64) (io.Writer, error)) error {
	return db.bolt.View(func(tx *bbolt.Tx) error {
		w, err := to(tx.Size())
		if err != nil {
			return err
		}
		_, err = tx.WriteTo(w)
		return err
	})
}

// explain turns an error of the file into one that says what to do.
func explain(path string, err error) error {
	if is(err, bolterrors.ErrInvalid, bolterrors.ErrChecksum, bolterrors.ErrVersionMismatch) {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	advice := Advice(err)
	switch {
	case is(err, bolterrors.ErrTimeout):
		err, advice = ErrInUse, ": stop that one, or give this one a state directory of its own"
	case is(err, ErrNewer):
		advice = ": install that version again, or use a new state directory"
	case is(err, ErrCorrupt):
		advice = ": restore it and its directory from a backup (`grapevine restore`), or move the directory away to join as a new host, and run `grapevine forget` for the old one"
	}
	return fmt.Errorf("state file %s: %w%s", path, err, advice)
}

// SyncDir makes the names in dir durable, after renames.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Advice says what to do about a disk that does not take what is written, after a
// colon; "" if there is nothing special to do.
func Advice(err error) string {
	switch {
	case is(err, syscall.EROFS):
		return ": mount its file system writable, or set GRAPEVINE_STATE to a directory that is"
	case is(err, syscall.ENOSPC, syscall.EDQUOT):
		return ": make room on its file system"
	case is(err, fs.ErrPermission):
		return ": the agent must run as root"
	}
	return ""
}

func is(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
}
