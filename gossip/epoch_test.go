package gossip

import (
	"math/rand/v2"
	"testing"
)

// TestNoRequestIsFreshTwice: however often the epoch changes, and whatever is sent again.
func TestNoRequestIsFreshTwice(t *testing.T) {
	type sent struct {
		epoch uint64
		call  servedCall
	}
	e, rnd := newEpochs(), rand.New(rand.NewPCG(1, 2))
	var all []sent
	changes := 0
	for id := range uint64(5 * servedLimit) {
		before := e.current()
		s := sent{before, servedCall{nodeID{byte(rnd.IntN(9))}, id}}
		all = append(all, s)
		if e.admit(s.epoch, s.call) != standingFresh {
			t.Fatalf("request %d, which is new, is refused", id)
		}
		if old := all[rnd.IntN(len(all))]; e.admit(old.epoch, old.call) == standingFresh {
			t.Fatalf("%v has run, and is fresh again", old.call)
		}
		if e.current() != before {
			changes++
		}
	}
	if changes != 5 || len(e.served) >= servedLimit {
		t.Errorf("%d epochs, %d requests in memory: want 5, below %d", changes, len(e.served), servedLimit)
	}
}
