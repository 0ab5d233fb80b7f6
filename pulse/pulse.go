// Package pulse has the rooms of a process wake up together. What is looked at again and again, as most of what the
// kernel tells no news of is, costs little; that a processor wakes for it costs ten times that. So whoever
// waits for a look waits until one of the process' moments, at which others look, too.
//
// The moments of two processes have nothing to do with each other: all hosts of a cluster do not say something at once.
package pulse

import (
	"math/rand/v2"
	"time"
)

// Every is how far the moments are apart: as often as a host that hurries says that it is there (gossip.Timing.Beat). Who waits for
// Long or more waits for one that is so far from the others of its kind.
const (
	Every = 200 * time.Millisecond
	Long  = time.Second
)

// began is one of the moments.
var began = time.Now().Add(-rand.N(Long))

// Wait is how long it takes from now until the moment that is nearest to now+d: so what waits for it again and again
// does so every d, if that is a multiple of Every, or of Long from there on. Who cannot wait for as long as a moment waits for d.
func Wait(d time.Duration) time.Duration { return wait(time.Since(began), d) }

// After is time.After(Wait(d)).
func After(d time.Duration) <-chan time.Time { return time.After(Wait(d)) }

func wait(since, d time.Duration) time.Duration {
	if d < Every {
		return d
	}
	apart := Every
	if d >= Long {
		apart = Long
	}
	end := since + d
	if over := ((end % apart) + apart) % apart; over < apart/2 {
		end -= over
	} else {
		end += apart - over
	}
	return end - since
}
