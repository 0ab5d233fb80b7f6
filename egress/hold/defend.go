package hold

import (
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/egress"
)

// A machine that says once that it has an address which this host holds has the LAN's packets until the holder's next word. So that
// is said soon (RFC 5227, 2.4): a second later, by when this host would have heard that another gateway holds it by now, and later
// each time while the other one says it again. Two that both hold it, and hear nothing of each other, soon say no more than they would anyway.
const (
	defence = time.Second
	outdone = 2 * reannounce // without another's word, and the next one is answered as the first
)

// defender hears who else says that it has an egress's addresses while this host holds them.
type defender struct {
	guards  map[netip.Addr]guard
	claimed atomic.Bool // somebody said so since the last round
	due     time.Time   // when that is answered; zero: nothing is to be
	last    time.Time   // it was answered last
	pause   time.Duration
}

// guard is what hears of one address, on an interface as it was then.
type guard struct {
	nic  string
	mac  string
	end  func()
	over <-chan struct{}
}

func (g guard) ended() bool {
	select {
	case <-g.over:
		return true
	default:
		return false
	}
}

// guard hears of these addresses and of no others, from now on.
func (k *Keeper) guard(name string, d *defender, l spots) {
	for a, g := range d.guards {
		if !slices.ContainsFunc(l, func(s spot) bool { return s.addr == a && s.NIC == g.nic && s.MAC.String() == g.mac }) || g.ended() {
			g.end()
			delete(d.guards, a)
		}
	}
	for _, s := range l {
		if _, is := d.guards[s.addr]; is || s.routed() {
			continue
		}
		end, over, err := k.cfg.LAN.Guard(s.NIC, s.addr, func(who net.HardwareAddr) {
			k.log.Debug("another machine says that it has the address of an egress that this host holds", "egress", name, "address", s.addr, "mac", who)
			d.claimed.Store(true)
			k.claims.Add(1)
		})
		if err != nil { // tried again with the next round
			k.log.Debug("hear who else has the address of an egress", "egress", name, "error", err)
			continue
		}
		if d.guards == nil {
			d.guards = map[netip.Addr]guard{}
		}
		d.guards[s.addr] = guard{s.NIC, s.MAC.String(), end, over}
	}
}

// defend reports whether the LAN is to be told now, since another one has told it something else, and if not yet, when.
func (k *Keeper) defend(c egress.Case, d *defender, now time.Time) (tell bool, next time.Duration) {
	if d.claimed.Swap(false) && d.due.IsZero() {
		d.pause = min(2*d.pause, reannounce)
		if d.pause == 0 || now.Sub(d.last) > outdone {
			d.pause = defence
		}
		d.due = now.Add(d.pause)
	}
	switch {
	case d.due.IsZero():
		return false, idle
	case now.Before(d.due):
		return false, d.due.Sub(now)
	case now.Sub(d.due) < patience && k.deaf(c): // another one may have taken it while this host stood still
		return false, tick
	}
	return true, 0
}

// deaf reports whether there are other gateways, and none has answered since this host was last stalled.
func (k *Keeper) deaf(c egress.Case) (is bool) {
	for _, g := range c.Gateways {
		if g.ID != c.Self && g.Alive {
			if heard, _ := k.cfg.Hear(g.ID); heard {
				return false
			}
			is = true
		}
	}
	return is
}

// told notes that the LAN is told: by now it knows better.
func (d *defender) told(now time.Time) {
	if !d.due.IsZero() {
		d.due, d.last = time.Time{}, now
	}
}
