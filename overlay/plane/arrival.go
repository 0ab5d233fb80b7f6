package plane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/bypass"
	"github.com/grapevine-net/grapevine/pulse"
)

// MethodTaken asks a host how much has come without headers from who asks: eight bytes, big-endian. It is an error where that is not known.
const MethodTaken = "bare.taken"

const (
	arrivalFew   = 5 // packets, of which one would have arrived
	arrivalEvery = 4 * time.Second
	arrivalAgain = time.Hour // a host that got none is sent none for as long, and four times as long each time that it was in vain; and an agent that begins tries
	arrivalMost  = 4         // times that it grows so, to ten days
	arrivalLimit = 3 * time.Second
)

// arrival is what is known of whether a neighbour gets what goes without headers to it: a network that lets only a host's own address
// pass drops them, and nobody says so.
type arrival struct {
	name        string // of the host
	mac         bypass.MAC
	sent, taken uint64        // when the neighbour answered last
	asked       bool          // it has answered
	anew        bool          // what is sent is counted from the next look on
	missed      bool          // it had got none of some, as after an outage: what is sent from then on tells
	noted       uint64        // what had been sent a moment ago, so that it has arrived if it does: it may be asked about that
	due         bool          // it is to be
	shown       time.Duration // when it had got some
	rests       time.Duration // until when it is not asked, since it has not answered
	lost        time.Duration // when it had got none; 0: it gets them
	tries       int           // in vain, one after the other
}

// look takes what has been sent until now, and says whether the neighbour is to be asked about what had been sent at the look before.
func (a *arrival) look(sent uint64, now time.Duration) (ask bool) {
	switch {
	case a.lost != 0 && now-a.lost >= a.pause():
		*a = arrival{name: a.name, mac: a.mac, tries: a.tries}
	case a.lost != 0 || now < a.rests:
		return false
	case a.due:
		return true
	}
	if a.anew || sent < a.sent { // less: the counters are others
		a.anew, a.sent = false, sent
	}
	a.noted = sent
	a.due = !a.asked || sent-a.sent >= arrivalFew && (a.shown == 0 || now-a.shown >= arrivalEvery)
	return false
}

// pause is for how long nothing is sent to who got none.
func (a *arrival) pause() time.Duration { return arrivalAgain << (2 * min(a.tries-1, arrivalMost)) }

// hear takes the neighbour's answer, and reports whether all has been lost that was sent since the one before, and that before it.
func (a *arrival) hear(taken uint64, now time.Duration) (lost bool) {
	if !a.due { // of another way, which was asked about
		return false
	}
	switch {
	case a.asked && taken != a.taken:
		a.shown, a.missed, a.tries = now, false, 0
	case a.asked && a.noted-a.sent >= arrivalFew && a.missed:
		a.lost, lost = now, true
		a.tries++
	case a.asked && a.noted-a.sent >= arrivalFew:
		a.missed, a.anew = true, true
	}
	a.asked, a.sent, a.taken, a.due = true, a.noted, taken, false
	return lost
}

// fail takes it that the neighbour has not answered: maybe nothing passes now.
func (a *arrival) fail(now time.Duration) {
	a.due, a.anew, a.missed, a.rests = false, true, false, now+arrivalEvery
}

// arrivals are those of all neighbours.
type arrivals struct {
	mu sync.Mutex
	of map[cluster.NodeID]*arrival
}

// keep takes what neighbours there are that are sent something without headers, or would be.
func (l *arrivals) keep(peers []barePeer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := map[cluster.NodeID]*arrival{}
	for _, p := range peers {
		mac := bypass.MAC(p.MAC)
		a := l.of[p.Host]
		if a == nil || a.mac != mac {
			a = &arrival{mac: mac}
		}
		a.name, next[p.Host] = p.name, a
	}
	l.of = next
}

// lost reports whether a neighbour gets none.
func (l *arrivals) lost(host cluster.NodeID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of[host]
	return a != nil && a.lost != 0
}

// asks returns who is to be asked now.
func (l *arrivals) asks(sent func(bypass.MAC) (uint64, bool), now time.Duration) (hosts []cluster.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for host, a := range l.of {
		if n, known := sent(a.mac); known && a.look(n, now) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// answer takes an answer, and returns the name of a host of which it became known that it gets none.
func (l *arrivals) answer(host cluster.NodeID, taken uint64, now time.Duration) (name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.of[host]; a != nil && a.hear(taken, now) {
		return a.name
	}
	return ""
}

// failed takes it that a host has not answered.
func (l *arrivals) failed(host cluster.NodeID, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.of[host]; a != nil {
		a.fail(now)
	}
}

// watchArrivals asks neighbours whether what goes without headers arrives, and has it go with headers where it does not, until ctx ends.
func (b *bare) watchArrivals(ctx context.Context) {
	if !b.p.cfg.Settings.Bare {
		return
	}
	began := time.Now()
	now := func() time.Duration { return time.Since(began) + 1 } // 0 is never
	sent := func(mac bypass.MAC) (uint64, bool) {
		n, _, known, err := b.path().Between(mac)
		return n, known && err == nil
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-pulse.After(time.Second):
		}
		var calls sync.WaitGroup // one that does not answer is not waited for by others
		for _, host := range b.arrivals.asks(sent, now()) {
			calls.Go(func() {
				taken, err := b.askTaken(ctx, host)
				if err != nil { // an older agent, or one that is away: it is asked again
					b.arrivals.failed(host, now())
					return
				}
				if name := b.arrivals.answer(host, taken, now()); name != "" {
					b.p.log.Warn("nothing that goes without headers arrives: it goes with headers", "host", name)
					b.kick()
				}
			})
		}
		calls.Wait()
	}
}

func (b *bare) askTaken(ctx context.Context, host cluster.NodeID) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, arrivalLimit)
	defer cancel()
	answer, err := b.p.cfg.Call(ctx, string(host), MethodTaken, nil)
	if err != nil {
		return 0, err
	}
	if len(answer) != 8 {
		return 0, fmt.Errorf("%d bytes are no count", len(answer))
	}
	return binary.BigEndian.Uint64(answer), nil
}

// Neighbours answers the questions of others that send to this host without headers.
type Neighbours struct{ Plane *Plane }

// Taken answers MethodTaken.
func (n Neighbours) Taken(_ context.Context, from string, _ []byte) ([]byte, error) {
	p := n.Plane
	own, there := cluster.Get[cluster.Bare](p.cfg.Source.Snapshot(), from)
	if !there || !p.cfg.Settings.Bare {
		return nil, errors.New("no packets without headers are taken from there")
	}
	_, taken, known, err := p.bare.path().Between(bypass.MAC(own.MAC))
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, errors.New("packets without headers from there are not counted")
	}
	return binary.BigEndian.AppendUint64(nil, taken), nil
}

// withHeaders names the neighbours that get nothing without headers, for people.
func withHeaders(lost []string) string {
	if len(lost) == 0 {
		return ""
	}
	return "; with headers to " + strings.Join(lost, ", ") + ", where nothing without them arrives (a switch or cloud that lets only a host's own address pass does so)"
}
