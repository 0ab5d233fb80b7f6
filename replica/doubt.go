package replica

import (
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
)

// doubtDelay is how long what proves a record may take to come, before the
// record is reported: broadcasts overtake each other, and anti-entropy takes
// seconds.
const doubtDelay = 15 * time.Second

// doubts remembers since when records are not believed.
type doubts struct {
	mu    sync.Mutex
	list  []cluster.Doubt
	since map[cluster.Version]time.Time
}

func (d *doubts) note(list []cluster.Doubt, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	since := map[cluster.Version]time.Time{}
	for _, doubt := range list {
		at, known := d.since[doubt.Version]
		if !known {
			at = now
		}
		since[doubt.Version] = at
	}
	d.list, d.since = list, since
}

// Doubts returns the records of others that have not been believed for a while:
// claims on what the writer does not own, and tombstones of hosts that it may not
// forget, or of what belongs to others.
func (r *Replica) Doubts() (list []cluster.Doubt) {
	r.doubts.mu.Lock()
	defer r.doubts.mu.Unlock()
	for _, doubt := range r.doubts.list {
		if r.now().Sub(r.doubts.since[doubt.Version]) >= doubtDelay {
			list = append(list, doubt)
		}
	}
	return list
}
