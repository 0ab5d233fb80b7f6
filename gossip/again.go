package gossip

import (
	"context"
	"net/netip"
	"strings"
	"time"
)

// A host that is refused is dialled once a minute at most, and may not dial us at all. Lest
// people look for one that has gone, or is right by now, those that were refused are looked at
// again and again while they are a problem.
const (
	lookAgain  = 4 * time.Second
	goneAfter  = 2 // looks that do not find it
	lookAtOnce = 4 // of them in a round
)

// againLoop looks at hosts that are refused.
func (g *Gossip) againLoop(ctx context.Context) {
	t := time.NewTicker(lookAgain)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for key, at := range g.toLookAt(time.Now()) {
			g.lookAgain(key, at)
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// toLookAt are the problems that are hosts at an address and were not looked at for a while, some
// of them. That something is heard of one is no reason not to: anybody may have recorded it.
func (g *Gossip) toLookAt(now time.Time) map[string]netip.AddrPort {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := map[string]netip.AddrPort{}
	if g.leaving {
		return found
	}
	for key, p := range g.problems {
		if len(found) < lookAtOnce && p.at.IsValid() && now.Sub(p.looked) >= lookAgain && !p.fading(now) {
			found[key] = p.at
			p.looked = now
			g.problems[key] = p
		}
	}
	return found
}

// lookAgain joins at the address: it is refused again, which is noted, or is no problem any more.
func (g *Gossip) lookAgain(key string, at netip.AddrPort) {
	err := g.joinAt(at)
	refused := err != nil && strings.Contains(err.Error(), refusedMark)
	g.mu.Lock()
	defer g.mu.Unlock()
	p, there := g.problems[key]
	switch {
	case !there:
		return
	case err == nil:
		p.gone = goneAfter
	case refused:
		p.gone = 0
	case p.gone < goneAfter:
		p.gone++
	}
	g.problems[key] = p
}

// noKey is memberlist's word for another encryption key, of which there is only the text.
const noKey = "no installed keys could decrypt"
