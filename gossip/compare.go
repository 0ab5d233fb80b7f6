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

// comparer finds out who knows something else than this host, and has it fetched.
type comparer struct {
	*core
	state   State
	roster  *roster
	post    *post
	meeter  *meeter
	fetcher *fetcher
	hints   chan hint
	spread  chan int // room for one: compare now, with as many peers
}

// sum is a hash of our digest.
func (c *comparer) sum() []byte {
	h := sha256.Sum256(c.state.Digest())
	return h[:16]
}

func (c *comparer) summary() summary { return summary{c.sum(), c.roster.members.Load(), c.addr} }

// heard takes a peer's summary. In a push/pull both sides get the other's, and
// their members have just been merged.
func (c *comparer) heard(from string, b []byte, pushPull bool) {
	s, err := decodeSummary(b)
	switch {
	case err != nil:
		c.stats.add(RefusedGarbage, 1)
	case pushPull:
		c.hint(hint{from: from, sum: s.state})
	default:
		c.hint(hint{from: from, sum: s.state, mutual: true, after: grace})
		if s.members != c.roster.members.Load() {
			c.meeter.offer(s)
		}
	}
}

func (c *comparer) hint(h hint) {
	select {
	case c.hints <- h:
	default: // the next comparison comes in a second
	}
}

// ask has compareLoop ask some peers at once.
func (c *comparer) ask(peers int) {
	select {
	case c.spread <- peers:
	default: // it is about to
	}
}

// compareLoop sends a summary to a random peer about once a second, and to a few
// more when asked: a packet of a hundred bytes, answered only if they differ.
func (c *comparer) compareLoop(ctx context.Context) {
	t := time.NewTimer(c.cfg.anew(c.cfg.Timing.Digest))
	defer t.Stop()
	for {
		peers := 1
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			t.Reset(c.cfg.anew(c.cfg.Timing.Digest))
		case peers = <-c.spread:
		}
		nodes := c.roster.pick(peers)
		if len(nodes) == 0 {
			continue
		}
		sum := c.post.seal(kindSum, c.summary().encode())
		for _, n := range nodes {
			if err := c.post.packet(n, sum); err != nil {
				c.log.Debug("compare digests", "host", n.Name, "err", err)
			}
		}
	}
}

// fetchLoop starts a fetch for each hint that holds.
func (c *comparer) fetchLoop(ctx context.Context) {
	slots := make(chan struct{}, fetchers)
	for {
		var h hint
		select {
		case <-ctx.Done():
			return
		case h = <-c.hints:
		}
		if h.sum != nil && bytes.Equal(h.sum, c.sum()) {
			c.roster.fetched(h.from, func(p *peer) { p.sync.reset() })
			c.state.Agreed()
			continue
		}
		if !c.roster.claimFetch(h.from) {
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			c.roster.fetched(h.from, nil)
			continue
		}
		ok := c.work.spawn(func(ctx context.Context) {
			defer func() { <-slots }()
			c.fetchOn(ctx, h)
		})
		if !ok {
			return
		}
	}
}

// fetchOn fetches from the peer of a hint, unless the difference has gone.
func (c *comparer) fetchOn(ctx context.Context, h hint) {
	if h.after > 0 {
		over := !sleep(ctx, h.after)
		agreed := bytes.Equal(h.sum, c.sum())
		if agreed {
			c.state.Agreed()
		}
		if over || agreed {
			c.roster.fetched(h.from, nil)
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	fresh, err := c.fetcher.fetch(ctx, h.from, h.mutual)
	if err != nil {
		c.log.Debug("fetch", "host", h.from, "err", err)
	}
	c.roster.fetched(h.from, func(p *peer) {
		p.pulling = false
		// Digests that differ and yet nothing new: one of us refuses what the other
		// says, or is not done yet. Ask less and less often.
		if err == nil && fresh {
			p.sync.reset()
		} else {
			p.sync.failed(time.Now(), c.cfg.Timing.Digest/2, 30*c.cfg.Timing.Digest)
		}
	})
	if fresh {
		c.ask(spreadPeers)
	}
}
