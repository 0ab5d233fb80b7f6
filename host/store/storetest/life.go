// Package storetest ends a host in tests, as a loss of power does, at each of the updates of its
// state file in turn.
package storetest

import (
	"errors"

	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/replica"
)

// ErrOver is what every write after a Life's end returns, and the one that was its end.
var ErrOver = errors.New("the power is lost")

// Life counts the updates that a host makes and ends at a given one. Whether the disk has an
// update whole or not at all is shown by host/store's own tests. It is not safe for
// concurrent use.
type Life struct {
	Ends  int  // at which update, from 1 on; 0: at none
	Wrote bool // whether the disk has that update
	Over  bool // nothing is written any more

	updates int
}

// Write does an update, unless the life is over or ends before it.
func (l *Life) Write(do func() error) error {
	if l.Over {
		return ErrOver
	}
	l.updates++
	if l.updates != l.Ends {
		return do()
	}
	if l.Wrote {
		_ = do()
	}
	l.Over = true
	return ErrOver
}

// DB is a state file whose updates end with a Life.
type DB struct {
	*store.DB
	Life *Life
}

// Update is that of store.DB.
func (db DB) Update(fn func(*store.Tx) error) error {
	return db.Life.Write(func() error { return db.DB.Update(fn) })
}

// Replica is a replica whose updates end with a Life, and what it has heard of others likewise.
type Replica struct {
	*replica.Replica
	Life *Life
}

// Update is that of replica.Replica.
func (r Replica) Update(fn func(*replica.Tx) error) (rev uint64, err error) {
	err = r.Life.Write(func() (err error) { rev, err = r.Replica.Update(fn); return err })
	return rev, err
}

// Merge is that of replica.Replica.
func (r Replica) Merge(msg []byte) (fresh []byte, err error) {
	err = r.Life.Write(func() (err error) { fresh, err = r.Replica.Merge(msg); return err })
	return fresh, err
}
