package bypass

import (
	"sync"
	"time"
)

// damper says how long it has to be calm before rules are read anew. Where they change again and again, as with containers that
// come and go with published ports, packets stay with the VXLAN device, rather than go one way and the other, and nothing is read.
type damper struct {
	mu     sync.Mutex
	calm   time.Duration // what was found; leastCalm holds below that
	cost   time.Duration // of reading
	last   time.Time     // when something changed; zero: nothing has
	relied bool          // rules were read since
}

const (
	leastCalm = 300 * time.Millisecond
	mostCalm  = 3 * time.Second
	seldom    = 1500 * time.Millisecond // between two changes: there is no need to wait longer then
	dear      = 20                      // as many times what it takes to read them rules are left alone
	// seldomRead is as many times what it takes for which they are not read again without a change: 1% of a processor.
	seldomRead = 100
)

// heard notes a change. Those that follow before rules are read again belong to it.
func (d *damper) heard(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.relied {
		if now.Sub(d.last) < seldom {
			d.calm = min(2*max(d.calm, leastCalm), mostCalm)
		} else {
			d.calm = leastCalm
		}
	}
	d.last, d.relied = now, false
}

// read notes that rules were, and how long that took.
func (d *damper) read(cost time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cost, d.relied = cost, true
}

// needs is how long it has to be calm.
func (d *damper) needs() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(d.calm, leastCalm, dear*d.cost)
}

// lasts is for how long what was read is good, whatever is heard.
func (d *damper) lasts() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(stale, seldomRead*d.cost)
}

// rest is for how long it has still to be calm.
func (d *damper) rest(now time.Time) time.Duration {
	needs := d.needs()
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(0, needs-now.Sub(d.last))
}
