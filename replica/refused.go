package replica

import (
	"errors"
	"maps"
	"sync"

	"github.com/grapevine-net/grapevine/cluster"
)

// refusals counts refused records by reason.
type refusals struct {
	mu sync.Mutex
	m  map[string]uint64
}

// reasons names what records are refused for, in Refused.
var reasons = map[error]string{
	cluster.ErrMalformed:  "record-malformed",
	cluster.ErrVersion:    "record-newer-version",
	cluster.ErrForged:     "record-forged",
	cluster.ErrLostWrites: "record-lost-writes",
	cluster.ErrOwned:      "record-claims-ours",
	cluster.ErrCounter:    "record-counter",
	cluster.ErrForgotten:  "record-forgotten",
}

func (c *refusals) count(refused []*cluster.RefusedError) {
	if len(refused) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[string]uint64{}
	}
	for _, e := range refused {
		for reason, name := range reasons {
			if errors.Is(e.Reason, reason) {
				c.m[name]++
			}
		}
	}
}

// Refused returns how many records that others sent have been refused, by reason.
// Reasons that have not occurred are absent.
func (r *Replica) Refused() map[string]uint64 {
	r.refused.mu.Lock()
	defer r.refused.mu.Unlock()
	return maps.Clone(r.refused.m)
}
