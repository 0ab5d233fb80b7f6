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
func (d *dialer) againLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(d.cfg.again(lookAgain)):
		}
		if d.presence.leaves() {
			continue
		}
		for key, at := range d.refusals.toLookAt(time.Now()) {
			d.refusals.looked(key, d.joinAt(at))
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// noKey is memberlist's word for another encryption key, of which there is only the text.
const noKey = "no installed keys could decrypt"
