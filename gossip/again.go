package gossip

import (
	"context"
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
		if g.presence.leaves() {
			continue
		}
		for key, at := range g.refusals.toLookAt(time.Now()) {
			g.refusals.looked(key, g.joinAt(at))
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// noKey is memberlist's word for another encryption key, of which there is only the text.
const noKey = "no installed keys could decrypt"
