package gossip

import (
	"bytes"
	"context"
	"crypto/sha256"
	"time"
)

const (
	hintLimit    = 64
	spreadPeers  = 2                      // asked at once after a fetch that brought something
	newsPeers    = 8                      // asked at once after news that fits no packet: nobody else sends it to some of them
	grace        = 250 * time.Millisecond // for a broadcast on its way to make digests equal
	fetchers     = 3                      // fetches at once, from different peers
	fetchTimeout = 2 * time.Minute
)

// hint says that a peer's digest may differ from ours.
type hint struct {
	from   string
	sum    []byte        // of its digest; nil: it certainly differs
	mutual bool          // let the peer fetch from us too: it does not know
	after  time.Duration // wait this long and compare again
}

// sum is a hash of our digest.
func (g *Gossip) sum() []byte {
	h := sha256.Sum256(g.state.Digest())
	return h[:16]
}

func (g *Gossip) summary() summary { return summary{g.sum(), g.roster.members.Load(), g.addr} }

// heardSum takes a peer's summary. In a push/pull both sides get the other's, and
// their members have just been merged.
func (g *Gossip) heardSum(from string, b []byte, pushPull bool) {
	s, err := decodeSummary(b)
	switch {
	case err != nil:
		g.stats.add(RefusedGarbage, 1)
	case pushPull:
		g.hint(hint{from: from, sum: s.state})
	default:
		g.hint(hint{from: from, sum: s.state, mutual: true, after: grace})
		if s.members != g.roster.members.Load() {
			select {
			case g.meet <- s:
			default: // one at a time
			}
		}
	}
}

func (g *Gossip) hint(h hint) {
	select {
	case g.hints <- h:
	default: // the next comparison comes in a second
	}
}

// compareWith has compareLoop ask some peers at once.
func (g *Gossip) compareWith(peers int) {
	select {
	case g.spread <- peers:
	default: // it is about to
	}
}

// compareLoop sends a summary to a random peer about once a second, and to a few
// more when asked: a packet of a hundred bytes, answered only if they differ.
func (g *Gossip) compareLoop(ctx context.Context) {
	t := time.NewTimer(jitter(g.cfg.Timing.Digest))
	defer t.Stop()
	for {
		peers := 1
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			t.Reset(jitter(g.cfg.Timing.Digest))
		case peers = <-g.spread:
		}
		nodes := g.roster.pick(peers)
		if len(nodes) == 0 {
			continue
		}
		sum := g.seal(kindSum, g.summary().encode())
		for _, n := range nodes {
			if err := g.ml.SendBestEffort(n, sum); err != nil {
				g.log.Debug("compare digests", "host", n.Name, "err", err)
			}
		}
	}
}

// fetchLoop starts a fetch for each hint that holds.
func (g *Gossip) fetchLoop(ctx context.Context) {
	slots := make(chan struct{}, fetchers)
	for {
		var h hint
		select {
		case <-ctx.Done():
			return
		case h = <-g.hints:
		}
		if h.sum != nil && bytes.Equal(h.sum, g.sum()) {
			g.roster.fetched(h.from, func(p *peer) { p.sync.reset() })
			g.state.Agreed()
			continue
		}
		if !g.roster.claimFetch(h.from) {
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			g.roster.fetched(h.from, nil)
			continue
		}
		ok := g.work.spawn(func(ctx context.Context) {
			defer func() { <-slots }()
			g.fetchOn(ctx, h)
		})
		if !ok {
			return
		}
	}
}

// fetchOn fetches from the peer of a hint, unless the difference has gone.
func (g *Gossip) fetchOn(ctx context.Context, h hint) {
	if h.after > 0 {
		over := !sleep(ctx, h.after)
		agreed := bytes.Equal(h.sum, g.sum())
		if agreed {
			g.state.Agreed()
		}
		if over || agreed {
			g.roster.fetched(h.from, nil)
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	fresh, err := g.fetch(ctx, h.from, h.mutual)
	if err != nil {
		g.log.Debug("fetch", "host", h.from, "err", err)
	}
	g.roster.fetched(h.from, func(p *peer) {
		p.pulling = false
		// Digests that differ and yet nothing new: one of us refuses what the other
		// says, or is not done yet. Ask less and less often.
		if err == nil && fresh {
			p.sync.reset()
		} else {
			p.sync.failed(time.Now(), g.cfg.Timing.Digest/2, 30*g.cfg.Timing.Digest)
		}
	})
	if fresh {
		g.compareWith(spreadPeers)
	}
}
