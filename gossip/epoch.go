package gossip

import (
	"math/rand/v2"
	"sync"
)

// protoEpochs is the first version whose requests name the epoch that they are for.
const protoEpochs = 3

// servedLimit is how many requests a host remembers: those of one epoch.
const servedLimit = 1 << 14

// epochs keep requests from being run twice, though somebody on the wire recorded them and
// sends them again. A host serves in epochs: each has a number of its own, which a request
// has to name, and ends when as many were served as the host cares to remember, or when the
// host itself ends. Who names another is told the number, and asks again.
type epochs struct {
	mu     sync.Mutex
	now    uint64 // random, never 0
	served map[servedCall]struct{}
}

type servedCall struct {
	from nodeID
	id   uint64
}

func newEpochs() *epochs { return &epochs{now: newEpoch(), served: map[servedCall]struct{}{}} }

func newEpoch() uint64 { return rand.Uint64() | 1 }

// current is the number of the epoch.
func (e *epochs) current() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

// standing is what a request is to its host.
type standing int

const (
	standingFresh  standing = iota // it runs, this once
	standingServed                 // it has run
	standingStale                  // it is of another epoch
)

// admit judges a request that names an epoch, and remembers it if it is fresh.
func (e *epochs) admit(epoch uint64, c servedCall) standing {
	e.mu.Lock()
	defer e.mu.Unlock()
	if epoch != e.now {
		return standingStale
	}
	if _, ok := e.served[c]; ok {
		return standingServed
	}
	e.served[c] = struct{}{}
	if len(e.served) == servedLimit {
		e.now = newEpoch()
		clear(e.served)
	}
	return standingFresh
}
