package agent

import (
	"context"
	"sync"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// haste is whether it has to be known within a second or so that a host is silent. To beat so often is most of what an agent at rest
// costs, and it is of use only where something goes to other hosts then: names that several hosts serve, services, and addresses
// for the outside. All hosts have the records, so all hurry, or none.
type haste struct {
	replica *replica.Replica
	hurry   func(bool)

	mu             sync.Mutex
	names, records bool
}

func (h *haste) run(ctx context.Context) error {
	for {
		changed := h.replica.Watch()
		h.tell(&h.records, cluster.FailsOver(h.replica.Snapshot()))
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// served is told whether several hosts serve a name.
func (h *haste) served(bySeveral bool) { h.tell(&h.names, bySeveral) }

func (h *haste) tell(what *bool, is bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*what = is
	h.hurry(h.names || h.records)
}
