package store

import (
	"fmt"
	"time"
)

// ages has one entry: for how long agents had run with the file.
var ages = NewBucket[time.Duration]("age")

const ageKey = "ran"

// Age is for how long agents have run with the file, all together. It is a clock for what is
// kept for some days: nobody sets it, and a host that has none, or that starts in 1970,
// has it too. It stands still while no agent runs, and what was not kept (KeepAge) when
// an agent was killed is not counted.
func (db *DB) Age() time.Duration { return db.before + time.Since(db.opened) }

// KeepAge writes the age to the disk. Close does, too.
func (db *DB) KeepAge() error {
	if err := db.Update(func(tx *Tx) error { return ages.Put(tx, ageKey, db.Age()) }); err != nil {
		return fmt.Errorf("keep the age of the state: %w", err)
	}
	return nil
}

// readAge is called once.
func (db *DB) readAge() error {
	db.opened = time.Now()
	return db.view(func(tx *Tx) (err error) {
		db.before, _, err = ages.Get(tx, ageKey)
		return err
	})
}
