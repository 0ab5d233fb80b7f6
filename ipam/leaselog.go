package ipam

import (
	"log/slog"
	"slices"
	"strings"
)

// leaseLog is a Disk that logs, once they are durable, which addresses and VNIDs are held and
// which are free again: a line of `key=value` from which, over the logs of all hosts, it can
// be shown that nothing had two owners.
type leaseLog struct {
	Disk
	log *slog.Logger
}

// LeasesRead and LeasesSaved are the messages of leaseLog; what is held is all that is, or what
// is held from now on, as "lease ADDRESS" and "vnid NUMBER" with commas between.
const (
	LeasesRead  = "leases on disk"
	LeasesSaved = "leases changed"
)

func (d leaseLog) Load(each func(key string, value []byte) error) error {
	var held []string
	if err := d.Disk.Load(func(key string, value []byte) error {
		held = append(held, key)
		return each(key, value)
	}); err != nil {
		return err
	}
	d.log.Debug(LeasesRead, "held", leased(held))
	return nil
}

func (d leaseLog) Save(put map[string][]byte, del []string) error {
	if err := d.Disk.Save(put, del); err != nil {
		return err
	}
	var held []string
	for key := range put {
		held = append(held, key)
	}
	if h, f := leased(held), leased(del); h+f != "" {
		d.log.Debug(LeasesSaved, "held", h, "freed", f)
	}
	return nil
}

// leased is what of the keys of entries is about addresses and VNIDs.
func leased(keys []string) string {
	keys = slices.DeleteFunc(slices.Sorted(slices.Values(keys)), func(key string) bool {
		return !strings.HasPrefix(key, "lease ") && !strings.HasPrefix(key, "vnid ")
	})
	return strings.Join(keys, ",")
}
