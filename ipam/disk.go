package ipam

import "github.com/grapevine-net/grapevine/host/store"

var bucket = store.NewBucket[[]byte]("ipam")

// StoreDisk keeps an Allocator's state in the agent's state file.
type StoreDisk struct{ DB store.File }

// Load implements Disk.
func (d StoreDisk) Load(each func(key string, value []byte) error) error {
	return d.DB.View(func(tx *store.Tx) error { return bucket.ForEach(tx, each) })
}

// Save implements Disk.
func (d StoreDisk) Save(put map[string][]byte, del []string) error {
	return d.DB.Update(func(tx *store.Tx) error {
		for _, key := range del {
			if err := bucket.Delete(tx, key); err != nil {
				return err
			}
		}
		for key, value := range put {
			if err := bucket.Put(tx, key, value); err != nil {
				return err
			}
		}
		return nil
	})
}
