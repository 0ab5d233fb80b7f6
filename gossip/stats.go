package gossip

import (
	"maps"
	"sync"
)

// Reasons for which something that came from the network was refused or lost:
// the keys of Stats.
const (
	RefusedKey       = "bad-key"       // encrypted with a key that is not on the ring
	RefusedPlain     = "not-encrypted" // a stream without encryption
	RefusedGarbage   = "garbage"       // not a message at all
	RefusedSize      = "oversized"     // larger than its kind may be
	RefusedCluster   = "other-cluster" // from a host of another cluster
	RefusedNoCluster = "no-cluster"    // sender or receiver has no cluster yet; harmless
	RefusedVersion   = "other-version" // of a protocol this program does not speak
	RefusedClone     = "id-conflict"   // another host has the ID of one we know
	RefusedMerge     = "merge-refused" // the State returned an error
	RefusedCall      = "call-refused"  // unknown method, or a call out of turn
	RefusedReplay    = "replayed"      // a call that has run already, or word of a host that has left
	LostQueueFull    = "queue-full"    // too much at once; mended by anti-entropy
	LostBusy         = "busy"          // too many calls or streams at once
	HandlerPanic     = "panic"         // a handler or the State panicked on a message
)

// counters is a set of counts by reason.
type counters struct {
	mu sync.Mutex
	m  map[string]uint64
}

func (c *counters) add(reason string, n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[string]uint64{}
	}
	c.m[reason] += n
}

// Stats returns how many messages have been refused or lost, by reason. Reasons
// that have not occurred are absent.
func (g *Gossip) Stats() map[string]uint64 {
	g.stats.mu.Lock()
	defer g.stats.mu.Unlock()
	return maps.Clone(g.stats.m)
}
