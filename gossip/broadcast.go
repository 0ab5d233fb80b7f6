package gossip

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"sync"

	"github.com/hashicorp/memberlist"
)

const (
	outboxLimit   = 1024     // broadcasts in the queue; the most often sent go first
	eagerPeers    = 3        // peers that a broadcast is sent to at once
	eagerBelow    = 32       // but not if as many are queued
	bulkLimit     = 16       // deltas larger than MaxBroadcast that wait to be sent
	bulkPeers     = 3        // peers that such a delta is sent to
	incomingLimit = 1024     // received deltas that wait to be merged
	incomingBytes = 64 << 20 // and their bytes
	seenLimit     = 4096     // hashes of recent deltas
)

// delta is a received message for State.Merge.
type delta struct {
	from nodeID
	body []byte
}

// outbox holds what is to be spread.
type outbox struct {
	queue *memberlist.TransmitLimitedQueue
	bulk  chan []byte
}

func newOutbox(hosts func() int) outbox {
	return outbox{
		queue: &memberlist.TransmitLimitedQueue{NumNodes: hosts, RetransmitMult: 4},
		bulk:  make(chan []byte, bulkLimit),
	}
}

// message is a queued broadcast. None replaces another.
type message []byte

func (m message) Invalidates(memberlist.Broadcast) bool { return false }
func (m message) Message() []byte                       { return m }
func (m message) Finished()                             {}

// UniqueBroadcast saves memberlist the search for what it replaces.
func (m message) UniqueBroadcast() {}

// Broadcast spreads a message for the peers' State.Merge. It does not block and
// may lose it; anti-entropy mends that, if the State has what it says. Messages of
// up to MaxBroadcast bytes travel best. Before the cluster is known, and without
// peers, it does nothing.
func (g *Gossip) Broadcast(b []byte) {
	if sealed := g.relay(b); sealed != nil && g.out.queue.NumQueued() < eagerBelow {
		// A few peers get it now, not at the next tick; a burst can wait for that.
		for _, n := range g.pick(eagerPeers) {
			if err := g.ml.SendBestEffort(n, sealed); err != nil {
				g.log.Debug("send delta", "host", n.Name, "err", err)
			}
		}
	}
}

// relay queues a message for gossip. It returns what was queued, nil if nothing
// was or if it is a large one.
func (g *Gossip) relay(b []byte) []byte {
	if g.ClusterID() == "" || g.alive.Load() == 0 || len(b) == 0 {
		return nil
	}
	if len(b) > MaxBody {
		g.stats.add(RefusedSize, 1)
		g.log.Error("broadcast is too large: it will spread by anti-entropy only", "bytes", len(b), "limit", MaxBody)
		return nil
	}
	g.seen.add(b)
	sealed := g.seal(kindDelta, b)
	if len(b) > MaxBroadcast {
		select {
		case g.out.bulk <- sealed:
		default:
			g.stats.add(LostQueueFull, 1)
		}
		return nil
	}
	g.out.queue.QueueBroadcast(message(sealed))
	if over := g.out.queue.NumQueued() - outboxLimit; over > 0 {
		g.out.queue.Prune(outboxLimit)
		g.stats.add(LostQueueFull, uint64(over))
	}
	return sealed
}

// bulkLoop sends large deltas to a few peers, reliably.
func (g *Gossip) bulkLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-g.out.bulk:
			for _, n := range g.pick(bulkPeers) {
				if err := g.ml.SendReliable(n, b); err != nil {
					g.log.Debug("send delta", "host", n.Name, "bytes", len(b), "err", err)
				}
			}
		}
	}
}

// mergeLoop merges received deltas and passes on what was new.
func (g *Gossip) mergeLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-g.incoming:
			g.incomingHeld.Add(-int64(len(d.body)))
			if g.seen.has(d.body) {
				continue
			}
			fresh, err := g.merge(d.from.String(), d.body)
			if err == nil {
				g.seen.add(d.body)
			}
			g.relay(fresh)
		}
	}
}

// merge gives a message to the State. A panic in it is an error like others: what
// makes one host's State panic would go on to fell the next.
func (g *Gossip) merge(from string, b []byte) (fresh []byte, err error) {
	g.mergeMu.Lock()
	defer g.mergeMu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			g.stats.add(HandlerPanic, 1)
			g.log.Error("merge panicked", "from", from, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("merge panicked: %v", p)
		}
	}()
	if fresh, err = g.state.Merge(b); err != nil {
		g.stats.add(RefusedMerge, 1)
		if g.mergeLog.due() {
			g.log.Warn("refused gossiped state", "from", from, "err", err)
		}
	}
	return fresh, err
}

// seal makes an envelope of this host.
func (g *Gossip) seal(k kind, body []byte) []byte {
	return envelope{k, g.ClusterID(), g.self, body}.encode()
}

// receive takes a message from memberlist: it copies, hands on and returns.
func (g *Gossip) receive(b []byte, pushPull bool) {
	e, err := decodeEnvelope(b)
	switch {
	case errors.Is(err, errVersion):
		_ = g.refuse(RefusedVersion, "message version", err)
		return
	case err != nil:
		g.stats.add(RefusedGarbage, 1)
		return
	case e.from == g.self:
		return
	}
	switch ours := g.ClusterID(); {
	case ours == "" || e.cluster == "":
		g.stats.add(RefusedNoCluster, 1)
		return
	case e.cluster != ours:
		id := e.from.String()
		_ = g.refuse(RefusedCluster, "cluster "+id, clusterError(id, g.lastAddr(id), e.cluster, ours))
		return
	}
	e.body = append([]byte(nil), e.body...)
	switch e.kind {
	case kindDelta:
		g.enqueue(delta{e.from, e.body})
	case kindSum:
		g.heardSum(e.from.String(), e.body, pushPull)
	case kindRequest:
		g.heardRequest(e.from.String(), e.body)
	case kindResponse:
		g.heardResponse(e.from.String(), e.body)
	}
}

// enqueue queues a delta for mergeLoop, or drops it.
func (g *Gossip) enqueue(d delta) {
	if g.incomingHeld.Add(int64(len(d.body))) <= incomingBytes {
		select {
		case g.incoming <- d:
			return
		default:
		}
	}
	g.incomingHeld.Add(-int64(len(d.body)))
	g.stats.add(LostQueueFull, 1)
}

// recent remembers the hashes of the last messages: gossip brings each several
// times, and to hash one is cheaper than to merge it.
type recent struct {
	mu   sync.Mutex
	seed maphash.Seed
	set  map[uint64]struct{}
	ring []uint64
	next int
}

func newRecent(limit int) *recent {
	return &recent{seed: maphash.MakeSeed(), set: map[uint64]struct{}{}, ring: make([]uint64, limit)}
}

func (r *recent) has(b []byte) bool {
	h := maphash.Bytes(r.seed, b)
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.set[h]
	return ok
}

func (r *recent) add(b []byte) {
	h := maphash.Bytes(r.seed, b)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.set[h]; ok {
		return
	}
	delete(r.set, r.ring[r.next])
	r.ring[r.next] = h
	r.set[h] = struct{}{}
	r.next = (r.next + 1) % len(r.ring)
}
