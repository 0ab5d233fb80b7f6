package store

import (
	"encoding/binary"
	"fmt"
	"maps"

	"go.etcd.io/bbolt"
)

// tally is what a bucket must hold. The checksums of values say that none has changed, and
// not that none is missing: one bit in the header of a page hides half of it.
type tally struct {
	Entries int
	Sum     uint64 // of the checksums of all values, modulo 2^64
}

// plus is the tally with one entry more, or, with sign -1, one less.
func (t tally) plus(sealed []byte, sign int) tally {
	if len(sealed) < sealSize {
		return t // a Put over it, or the check, finds that it is damaged
	}
	t.Entries += sign
	t.Sum += uint64(sign) * uint64(binary.BigEndian.Uint32(sealed))
	return t
}

// tallied is what an Update says of all buckets, its own one aside.
type tallied struct {
	// Update is the number of the Update in the file. Agents that know no tallies leave
	// those of another one: then they are counted anew.
	Update  int
	Buckets map[string]tally
}

var tallies = NewBucket[tallied](metaBucket)

const tallyKey = "tally"

// counted takes note that a value replaces another one; either may be nil.
func (tx *Tx) counted(bucket, old, sealed []byte) {
	if tx.tallies == nil || string(bucket) == metaBucket {
		return
	}
	t := tx.tallies[string(bucket)]
	if old != nil {
		t = t.plus(old, -1)
	}
	if sealed != nil {
		t = t.plus(sealed, +1)
	}
	tx.tallies[string(bucket)] = t
}

// readTallies begins an Update.
func (tx *Tx) readTallies() error {
	last, found, err := tallies.Get(tx, tallyKey)
	switch {
	case err != nil:
		return err
	case found && last.Update == tx.bolt.ID()-1:
		tx.tallies = last.Buckets
	default:
		if tx.tallies, err = count(tx.bolt); err != nil {
			return err
		}
	}
	if tx.tallies == nil {
		tx.tallies = map[string]tally{}
	}
	return nil
}

// writeTallies ends an Update.
func (tx *Tx) writeTallies() error {
	maps.DeleteFunc(tx.tallies, func(_ string, t tally) bool { return t == tally{} })
	return tallies.Put(tx, tallyKey, tallied{tx.bolt.ID(), tx.tallies})
}

// count reads all buckets, of a file in which values have checksums.
func count(tx *bbolt.Tx) (map[string]tally, error) {
	all := map[string]tally{}
	err := tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		var t tally
		err := walk(b, func(k, v []byte) error {
			if !isSealed(name, k) {
				return nil
			}
			t = t.plus(v, +1)
			_, err := opened(k, v)
			return err
		})
		if string(name) != metaBucket && t != (tally{}) {
			all[string(name)] = t
		}
		return err
	})
	return all, err
}

// compare reports whether the buckets hold what the last Update says.
func compare(tx *bbolt.Tx) error {
	is, err := count(tx)
	if err != nil {
		return err
	}
	last, found, err := tallies.Get(&Tx{bolt: tx}, tallyKey)
	if err != nil || !found || last.Update != tx.ID() {
		return err
	}
	for name := range is {
		if _, ok := last.Buckets[name]; !ok {
			return fmt.Errorf("%w: nobody wrote %.40q", ErrCorrupt, name)
		}
	}
	for name, want := range last.Buckets {
		if is[name] != want {
			return fmt.Errorf("%w: of %d entries of %s there are %d", ErrCorrupt, want.Entries, name, is[name].Entries)
		}
	}
	return nil
}
