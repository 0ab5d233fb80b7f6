package store

import (
	"encoding/binary"
	"fmt"
	"maps"

	"go.etcd.io/bbolt"
)

// inventory is what a bucket must hold. The checksums of values say that none has changed, and
// not that none is missing: one bit in the header of a page hides half of it.
type inventory struct {
	Entries int
	Sum     uint64 // of the checksums of all values, modulo 2^64
}

// plus is the inventory with one entry more, or, with sign -1, one less.
func (t inventory) plus(sealed []byte, sign int) inventory {
	if len(sealed) < sealSize {
		return t // a Put over it, or the check, finds that it is damaged
	}
	t.Entries += sign
	t.Sum += uint64(sign) * uint64(binary.BigEndian.Uint32(sealed))
	return t
}

// inventoried is what an Update says of all buckets, its own one aside.
type inventoried struct {
	// Update is the number of the Update in the file. Agents that know no inventories leave
	// those of another one: then they are counted anew.
	Update  int
	Buckets map[string]inventory
}

var inventories = NewBucket[inventoried](metaBucket)

// inventoryKey is what earlier agents called it, too.
const inventoryKey = "tally"

// counted takes note that a value replaces another one; either may be nil.
func (tx *Tx) counted(bucket, old, sealed []byte) {
	if tx.inventories == nil || string(bucket) == metaBucket {
		return
	}
	t := tx.inventories[string(bucket)]
	if old != nil {
		t = t.plus(old, -1)
	}
	if sealed != nil {
		t = t.plus(sealed, +1)
	}
	tx.inventories[string(bucket)] = t
}

// readInventories begins an Update.
func (tx *Tx) readInventories() error {
	last, found, err := inventories.Get(tx, inventoryKey)
	switch {
	case err != nil:
		return err
	case found && last.Update == tx.bolt.ID()-1:
		tx.inventories = last.Buckets
	default:
		if tx.inventories, err = count(tx.bolt); err != nil {
			return err
		}
	}
	if tx.inventories == nil {
		tx.inventories = map[string]inventory{}
	}
	return nil
}

// writeInventories ends an Update.
func (tx *Tx) writeInventories() error {
	maps.DeleteFunc(tx.inventories, func(_ string, t inventory) bool { return t == inventory{} })
	return inventories.Put(tx, inventoryKey, inventoried{tx.bolt.ID(), tx.inventories})
}

// count reads all buckets, of a file in which values have checksums.
func count(tx *bbolt.Tx) (map[string]inventory, error) {
	all := map[string]inventory{}
	err := tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		var t inventory
		err := walk(b, func(k, v []byte) error {
			if !isSealed(name, k) {
				return nil
			}
			t = t.plus(v, +1)
			_, err := opened(k, v)
			return err
		})
		if string(name) != metaBucket && t != (inventory{}) {
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
	last, found, err := inventories.Get(&Tx{bolt: tx}, inventoryKey)
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
