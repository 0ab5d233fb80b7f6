package gossip

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	dialAtOnce     = 2                      // lost peers dialled in one round
	alongside      = 3                      // streams to one of them, while there is no other peer
	alongsideAfter = 300 * time.Millisecond // between the openings of two
	rejoinFirst    = 500 * time.Millisecond // backoff of a peer that does not answer
	rejoinLimit    = 3 * time.Second        // its limit, for each eight peers that answer
	foreignLimit   = time.Minute            // the limit for a host of another cluster
	saveEvery      = time.Second
)

// target is a host to dial: a lost peer, or an entry of Config.Join.
type target struct {
	id    string // "": not known
	name  string // as configured; "": addr
	addr  netip.AddrPort
	retry *backoff // nil: the roster has it; else guarded by dialer.mu
}

// dialer looks for hosts that are lost, or not met yet.
type dialer struct {
	*core
	presence *presence
	roster   *roster
	refusals *refusals
	post     *post
	now      chan struct{} // room for one: dial now
	mu       sync.Mutex    // guards the targets of Config.Join
}

// loop dials lost peers for ever: that is what heals a healed partition.
// Each host dials few at a time; whichever of a side gets through brings all.
func (d *dialer) loop(ctx context.Context) {
	seeds := d.seeds()
	t := time.NewTimer(0)
	defer t.Stop()
	done := make(chan struct{}, 1)
	round := func() bool {
		return d.work.spawn(func(ctx context.Context) {
			d.round(seeds)
			done <- struct{}{}
		})
	}
	for busy, again := false, false; ; {
		select {
		case <-ctx.Done():
			return
		case <-done:
			busy = false
			if !again {
				continue
			}
		case <-d.now: // our standing has changed: all deserve a try at once
			d.mu.Lock()
			for _, s := range seeds {
				s.retry.reset()
			}
			d.mu.Unlock()
			again = true
		case <-t.C:
			t.Reset(d.cfg.anew(d.cfg.Timing.Rejoin))
		}
		if !busy {
			busy, again = round(), false
		}
	}
}

// seeds are the targets of Config.Join.
func (d *dialer) seeds() []*target {
	var list []*target
	for _, name := range d.cfg.Join {
		if name = strings.TrimSpace(name); name != "" {
			list = append(list, &target{name: name, retry: &backoff{}})
		}
	}
	return list
}

// round dials a few of those that are due and waits for them.
func (d *dialer) round(seeds []*target) {
	d.roster.noteLeft()
	due := d.due(seeds, time.Now())
	limit := dialAtOnce
	if d.roster.alive.Load() == 0 {
		limit = 8 // alone: there is nothing better to do
	}
	results := make(chan struct{}, limit)
	running := 0
	for _, t := range due[:min(len(due), limit)] {
		if d.work.spawn(func(ctx context.Context) {
			d.dial(ctx, t)
			results <- struct{}{}
		}) {
			running++
		}
	}
	for range running {
		<-results
	}
}

// due lists the targets to dial now, in random order.
func (d *dialer) due(seeds []*target, now time.Time) []*target {
	if d.presence.leaves() {
		return nil
	}
	list, met := d.roster.lost(now)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range seeds {
		if s.retry.due(now) && !met[s.addr] {
			list = append(list, s)
		}
	}
	shuffle(list)
	return list
}

// dial tries one target and notes the result.
func (d *dialer) dial(ctx context.Context, t *target) {
	err := d.resolve(ctx, t)
	if err == nil {
		err = d.joinAt(t.addr)
	}
	limit := rejoinLimit * time.Duration(1+d.roster.alive.Load()/8)
	if err != nil && strings.Contains(err.Error(), refusedMark) {
		limit = foreignLimit
	}
	d.dialled(t, limit)
	if err != nil {
		d.log.Debug("join", "host", t.id, "name", t.name, "addr", t.addr, "err", err)
		if strings.Contains(err.Error(), noKey) {
			d.stats.add(RefusedKey, 1)
			if d.refusals.strangers.heard(t.addr.Addr(), time.Now()) {
				d.log.Warn("the host there has another gossip key", "addr", t.addr, "reason", RefusedKey)
			}
		}
		return
	}
	d.refusals.strangers.known(t.addr.Addr())
}

// dialled notes that a target was dialled. After a success it is no longer lost.
func (d *dialer) dialled(t *target, limit time.Duration) {
	if t.retry == nil {
		d.roster.dialled(t.id, time.Now(), limit)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t.retry.failed(time.Now(), rejoinFirst, limit)
}

// joinAt exchanges the membership with a host. While this one is alone nothing else brings
// it further, and where packets are lost the opening of a stream may take seconds: then it
// does not wait for one to fail before it opens the next. The first to end counts.
func (d *dialer) joinAt(addr netip.AddrPort) error {
	results := make(chan error, alongside)
	for n := 0; ; {
		if n == 0 || n < alongside && d.roster.alive.Load() == 0 {
			n++
			if !d.work.spawn(func(context.Context) {
				results <- d.post.exchange(addr)
			}) {
				return context.Canceled
			}
		}
		select {
		case err := <-results:
			return err
		case <-time.After(alongsideAfter):
		}
	}
}

// resolve finds the address of a configured host, each time anew: it may move.
func (d *dialer) resolve(ctx context.Context, t *target) error {
	if t.name == "" {
		return nil
	}
	host, port := t.name, d.cfg.Bind.Port()
	if h, p, err := net.SplitHostPort(t.name); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return fmt.Errorf("join %s: port %q: want a number up to 65535", t.name, p)
		}
		host, port = h, uint16(n)
	}
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		d.setAddr(t, netip.AddrPortFrom(a.Unmap(), port))
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return fmt.Errorf("join %s: %w", t.name, err)
	}
	d.setAddr(t, netip.AddrPortFrom(found[rand.IntN(len(found))].Unmap(), port))
	return nil
}

func (d *dialer) setAddr(t *target, a netip.AddrPort) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.addr = a
}
