package plane

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/overlay"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// epochs keeps the epochs of rules in the state file.
type epochs struct{ db store.File }

// epoch is an overlay.Epoch in the file, under its address and direction.
type epoch struct {
	Addr      netip.Addr
	Direction pipeline.Direction
	Print     uint64
	Number    uint16
	Past      bool
	Young     time.Time
}

var epochBucket = store.NewBucket[epoch]("overlay/epochs")

// Load implements overlay.Epochs.
func (e epochs) Load() (list []overlay.Epoch, err error) {
	err = e.db.View(func(tx *store.Tx) error {
		return epochBucket.ForEach(tx, func(_ string, one epoch) error {
			list = append(list, overlay.Epoch(one))
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the epochs of policies, whose state is damaged or of another version: %w", err)
	}
	return list, nil
}

// Save implements overlay.Epochs.
func (e epochs) Save(list, gone []overlay.Epoch) error {
	key := func(one overlay.Epoch) string { return fmt.Sprintf("%d/%s", one.Direction, one.Addr) }
	err := e.db.Update(func(tx *store.Tx) error {
		for _, one := range gone {
			if err := epochBucket.Delete(tx, key(one)); err != nil {
				return err
			}
		}
		for _, one := range list {
			if err := epochBucket.Put(tx, key(one), epoch(one)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("save the epochs of policies: %w", err)
	}
	return nil
}
