package standing

import (
	"context"
	"sync"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// Haste is whether it has to be known within a second or so that a host is silent. To beat so often is most of what an agent at rest
// costs, and it is of use only where something goes to other hosts then: names that several hosts serve, services, and addresses
// for the outside. All hosts have the records, so all hurry, or none.
type Haste struct {
	Replica *replica.Replica
	Hurry   func(bool) // gossip.Gossip.Hurry

	mu             sync.Mutex
	names, records bool
}

// Run follows the records until ctx is done.
func (h *Haste) Run(ctx context.Context) error {
	for {
		changed := h.Replica.Watch()
		h.tell(&h.records, cluster.FailsOver(h.Replica.Snapshot()))
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// Served is told whether several hosts serve a name.
func (h *Haste) Served(bySeveral bool) { h.tell(&h.names, bySeveral) }

func (h *Haste) tell(what *bool, is bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*what = is
	h.Hurry(h.names || h.records)
}
