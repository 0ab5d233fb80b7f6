package gossip

import (
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/hashicorp/memberlist"
)

const (
	// idleRounds times as long as with news is the time between memberlist's rounds of gossip without.
	idleRounds = 50
	// newsRounds are the short rounds after the last news: enough for what memberlist itself spreads of it,
	// each piece 16 times in the largest clusters and to 16 hosts a round.
	newsRounds = 25
	// alignAgain probes long memberlist's probes stay where they are: each time they are set the next one is later.
	alignAgain = 10
)

// pace is how often memberlist gossips: in short rounds while there is news, in long ones else. A round
// without news sends nothing, but to wake fifty times a second was most of what an agent at rest cost. memberlist
// has no setting for it that can change while it runs, so its ticker is set; its methods may be called concurrently.
type pace struct {
	short time.Duration
	probe time.Duration // between memberlist's probes

	mu     sync.Mutex
	ticker *time.Ticker                     // nil: memberlist's is not known, and it stays with short rounds
	own    *memberlist.TransmitLimitedQueue // of what memberlist spreads itself
	probes *time.Ticker                     // memberlist's
	news   time.Time                        // the last
	long   bool
	step   bool      // the long rounds come with the beats
	probed bool      // so do the probes
	set    time.Time // when the probes were set last
}

// find finds memberlist's ticker of gossip, which is its second one, behind that of its probes, and its queue. Where a later
// memberlist has none there, that is said by false, which fails the tests.
func (p *pace) find(ml *memberlist.Memberlist) bool {
	f := reflect.ValueOf(ml).Elem().FieldByName("tickers")
	if !f.IsValid() || f.Type() != reflect.TypeFor[[]*time.Ticker]() || f.Len() != 2 {
		return false
	}
	queue := reflect.ValueOf(ml).Elem().FieldByName("broadcasts")
	if !queue.IsValid() || queue.Type() != reflect.TypeFor[*memberlist.TransmitLimitedQueue]() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own = *(**memberlist.TransmitLimitedQueue)(unsafe.Pointer(queue.UnsafeAddr()))
	tickers := *(*[]*time.Ticker)(unsafe.Pointer(f.UnsafeAddr()))
	p.probes, p.ticker = tickers[0], tickers[1]
	p.news = time.Now() // what a host says of itself as it starts
	return true
}

// hurry is called when there is news.
func (p *pace) hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hurryLocked()
}

func (p *pace) hurryLocked() {
	p.news = time.Now()
	if p.long {
		p.ticker.Reset(p.short)
		p.long = false
	}
}

// beat is called when this host has beaten. memberlist tells nobody that it has something of its own to spread, as a
// suspicion: so a beat looks whether it has, and hurries. If the host keeps to a pulse, memberlist's probes and its long
// rounds come just behind beats from then on, since the processor is awake then. They are as far apart as beats, or a
// multiple of that. moment: this beat is at a moment of the pulse; anew: the next beat is not as far from this one as
// later ones are from each other.
func (p *pace) beat(moment, anew bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own != nil && p.own.NumQueued() > 0 {
		p.hurryLocked()
	}
	if anew {
		if time.Since(p.set) > alignAgain*p.probe { // a host that turns all the time would never probe
			p.probed, p.step = false, false
		}
		return
	}
	if !moment { // somebody had to be told of something
		return
	}
	if p.probes != nil && !p.probed {
		p.probes.Reset(p.probe)
		p.probed, p.set = true, time.Now()
	}
	if p.long && !p.step {
		p.ticker.Reset(idleRounds * p.short)
		p.step = true
	}
}

// rest is called when nothing is left to be sent.
func (p *pace) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ticker != nil && !p.long && time.Since(p.news) > newsRounds*p.short {
		p.ticker.Reset(idleRounds * p.short)
		p.long, p.step = true, false
	}
}
