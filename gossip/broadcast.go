package gossip

import (
	"bytes"
	"context"
	"sync"

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

// spreader sends what is new to others.
type spreader struct {
	*core
	presence *presence
	roster   *roster
	post     *post
	pace     *pace
	out      outbox
	seen     *recent       // deltas
	company  chan struct{} // room for one: the first peer is there

	mu    sync.Mutex
	early [][]byte // broadcasts that wait for the first peer
}

func newSpreader(c *core, own *presence, r *roster, p *post) *spreader {
	return &spreader{
		core: c, presence: own, roster: r, post: p, pace: &pace{short: c.cfg.Timing.Gossip, probe: c.cfg.Timing.Probe}, seen: newRecent(seenLimit),
		out: newOutbox(func() int { return int(r.alive.Load()) + 1 }), company: make(chan struct{}, 1),
	}
}

// broadcast is Gossip.Broadcast.
func (s *spreader) broadcast(b []byte) {
	if s.keepEarly(b) {
		return
	}
	s.eagerly(s.relay(kindDelta, b))
}

// eagerly sends what relay has queued to a few peers now, not at the next tick; a burst
// can wait for that.
func (s *spreader) eagerly(sealed []byte) {
	if sealed == nil || s.out.queue.NumQueued() >= eagerBelow {
		return
	}
	peers := s.roster.pick(eagerPeers)
	if sealed = inVersion(s.post.writes(), sealed); sealed == nil {
		return
	}
	for _, n := range peers {
		if err := s.post.packet(n, sealed); err != nil {
			s.log.Debug("send at once", "host", n.Name, "err", err)
		}
	}
}

// keepEarly keeps a message if nobody could hear it.
func (s *spreader) keepEarly(b []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.presence.clusterID() != "" && s.roster.alive.Load() > 0 {
		return false
	}
	s.early = append(s.early, bytes.Clone(b))
	s.early = s.early[max(0, len(s.early)-earlyLimit):]
	return true
}

// hasCompany wakes earlyLoop if a peer is there, and something was kept for it.
func (s *spreader) hasCompany() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.early) > 0 && s.roster.alive.Load() > 0 {
		poke(s.company)
	}
}

// earlyLoop broadcasts what was kept for the first peer: what a host says of itself as it
// starts would else be known to the others only when they compare, up to a second later.
func (s *spreader) earlyLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.company:
		}
		s.mu.Lock()
		early := s.early
		s.early = nil
		s.mu.Unlock()
		for _, b := range early {
			s.broadcast(b)
		}
	}
}

// relay queues a message for gossip, which is sent in the version that is written then. It returns
// what was queued, nil if nothing was or if it is a large one.
func (s *spreader) relay(k kind, b []byte) []byte {
	if s.presence.clusterID() == "" || s.roster.alive.Load() == 0 || len(b) == 0 {
		return nil
	}
	if len(b) > MaxBody {
		s.stats.add(RefusedSize, 1)
		s.log.Error("broadcast is too large: it will spread by anti-entropy only", "bytes", len(b), "limit", MaxBody)
		return nil
	}
	s.seen.add(b)
	sealed := s.post.seal(k, b)
	if len(b) > MaxBroadcast {
		select {
		case s.out.bulk <- sealed:
		default:
			s.stats.add(LostQueueFull, 1)
		}
		return nil
	}
	s.out.queue.QueueBroadcast(message(sealed))
	s.pace.hurry()
	if over := s.out.queue.NumQueued() - outboxLimit; over > 0 {
		s.out.queue.Prune(outboxLimit)
		s.stats.add(LostQueueFull, uint64(over))
	}
	return sealed
}

// bulkLoop sends large deltas to a few peers, reliably.
func (s *spreader) bulkLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-s.out.bulk:
			peers := s.roster.pick(bulkPeers)
			b = inVersion(s.post.writes(), b)
			for _, n := range peers {
				if err := s.post.ml.SendReliable(n, b); err != nil {
					s.log.Debug("send delta", "host", n.Name, "bytes", len(b), "err", err)
				}
			}
		}
	}
}

// waiting is what memberlist sends next of what is new, to all.
func (s *spreader) waiting(overhead, limit int) (msgs [][]byte) {
	version := s.roster.spoken.spreads()
	for _, m := range s.out.queue.GetBroadcasts(overhead, limit) {
		if m = inVersion(version, m); m != nil {
			msgs = append(msgs, m)
		}
	}
	if len(msgs) == 0 {
		s.pace.rest()
	}
	return msgs
}
