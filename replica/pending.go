package replica

import (
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
)

// pendingDelay is how long what proves a record may take to come, before the
// record is reported: broadcasts overtake each other, and anti-entropy takes
// seconds.
const pendingDelay = 15 * time.Second

// unproven remembers since when records are not believed.
type unproven struct {
	mu    sync.Mutex
	list  []cluster.Pending
	since map[cluster.Version]time.Time
}

func (d *unproven) note(list []cluster.Pending, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	since := map[cluster.Version]time.Time{}
	for _, p := range list {
		at, known := d.since[p.Version]
		if !known {
			at = now
		}
		since[p.Version] = at
	}
	d.list, d.since = list, since
}

// Pending returns the records of others that have not been believed for a while:
// claims on what the writer does not own, and tombstones of hosts that it may not
// forget, or of what belongs to others.
func (r *Replica) Pending() (list []cluster.Pending) {
	r.unproven.mu.Lock()
	defer r.unproven.mu.Unlock()
	for _, p := range r.unproven.list {
		if r.now().Sub(r.unproven.since[p.Version]) >= pendingDelay {
			list = append(list, p)
		}
	}
	return list
}
