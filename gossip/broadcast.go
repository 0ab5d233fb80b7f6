package gossip

import (
	"bytes"
	"context"

	"github.com/hashicorp/memberlist"
)

const (
	outboxLimit   = 1024     // broadcasts in the queue; the most often sent go first
	earlyLimit    = 64       // broadcasts that wait for the first peer; the oldest go first
	eagerPeers    = 3        // peers that a broadcast is sent to at once
	eagerBelow    = 32       // but not if as many are queued
	bulkLimit     = 16       // deltas larger than MaxBroadcast that wait to be sent
	bulkPeers     = 4        // peers that such a delta is sent to
	incomingLimit = 1024     // received deltas that wait to be merged
	incomingBytes = 64 << 20 // and their bytes
	seenLimit     = 4096     // hashes of recent deltas
)

// delta is a received message for State.Merge.
type delta struct {
	from string
	body []byte
}

// outbox holds what is to be spread.
type outbox struct {
	queue *memberlist.TransmitLimitedQueue
	bulk  chan []byte
}

// newOutbox has each host send a piece of news 4, 8, 12, 16 times for up to 1, 10, 100, 1,000
// hosts. Chance sends none to e^-n of the hosts, if each sends it n times; they hear of it when they
// compare. memberlist rounds the other way: 99 hosts would send as often as ten.
func newOutbox(hosts func() int) outbox {
	rounded := func() int {
		n := 1
		for all := hosts(); n < all; n *= 10 {
		}
		return n
	}
	return outbox{
		queue: &memberlist.TransmitLimitedQueue{NumNodes: rounded, RetransmitMult: 4},
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
// up to MaxBroadcast bytes travel best. While no peer is there to hear them the last
// ones are kept for the first that comes.
func (g *Gossip) Broadcast(b []byte) {
	if g.keepEarly(b) {
		return
	}
	g.eagerly(g.relay(kindDelta, b))
}

// eagerly sends what relay has queued to a few peers now, not at the next tick; a burst
// can wait for that.
func (g *Gossip) eagerly(sealed []byte) {
	if sealed == nil || g.out.queue.NumQueued() >= eagerBelow {
		return
	}
	peers := g.roster.pick(eagerPeers)
	if sealed = inVersion(g.roster.spoken.writes(), sealed); sealed == nil {
		return
	}
	for _, n := range peers {
		if err := g.ml.SendBestEffort(n, sealed); err != nil {
			g.log.Debug("send at once", "host", n.Name, "err", err)
		}
	}
}

// keepEarly keeps a message if nobody could hear it.
func (g *Gossip) keepEarly(b []byte) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ClusterID() != "" && g.roster.alive.Load() > 0 {
		return false
	}
	g.early = append(g.early, bytes.Clone(b))
	g.early = g.early[max(0, len(g.early)-earlyLimit):]
	return true
}

// hasCompany wakes earlyLoop if a peer is there, and something was kept for it.
func (g *Gossip) hasCompany() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.early) > 0 && g.roster.alive.Load() > 0 {
		poke(g.company)
	}
}

// earlyLoop broadcasts what was kept for the first peer: what a host says of itself as it
// starts would else be known to the others only when they compare, up to a second later.
func (g *Gossip) earlyLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.company:
		}
		g.mu.Lock()
		early := g.early
		g.early = nil
		g.mu.Unlock()
		for _, b := range early {
			g.Broadcast(b)
		}
	}
}

// relay queues a message for gossip, which is sent in the version that is written then. It returns
// what was queued, nil if nothing was or if it is a large one.
func (g *Gossip) relay(k kind, b []byte) []byte {
	if g.ClusterID() == "" || g.roster.alive.Load() == 0 || len(b) == 0 {
		return nil
	}
	if len(b) > MaxBody {
		g.stats.add(RefusedSize, 1)
		g.log.Error("broadcast is too large: it will spread by anti-entropy only", "bytes", len(b), "limit", MaxBody)
		return nil
	}
	g.seen.add(b)
	sealed := g.seal(k, b)
	if len(b) > MaxBroadcast {
		select {
		case g.out.bulk <- sealed:
		default:
			g.stats.add(LostQueueFull, 1)
		}
		return nil
	}
	g.out.queue.QueueBroadcast(message(sealed))
	g.pace.hurry()
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
			peers := g.roster.pick(bulkPeers)
			b = inVersion(g.roster.spoken.writes(), b)
			for _, n := range peers {
				if err := g.ml.SendReliable(n, b); err != nil {
					g.log.Debug("send delta", "host", n.Name, "bytes", len(b), "err", err)
				}
			}
		}
	}
}
