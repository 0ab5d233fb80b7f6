package hold

import (
	"net/netip"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/host/lan"
)

// Times of links that come and go.
const (
	remember = time.Minute      // is how long a loss of a link is remembered
	longest  = 30 * time.Second // is how long a link has to be there at most, before it counts as there
)

// flaps remember, by interface, how often links were lost lately: a link that comes and goes every few moments is worse than none,
// which another gateway would make good.
type flaps map[string]*flap

type flap struct {
	linked bool
	since  time.Time   // it is linked, or is not
	lost   []time.Time // the last times
}

// see notes whether an interface has a link now.
func (f flaps) see(nic string, linked bool, now time.Time) {
	l := f[nic]
	if l == nil {
		f[nic] = &flap{linked: linked, since: now}
		return
	}
	if l.linked == linked {
		return
	}
	l.linked, l.since = linked, now
	if !linked {
		l.lost = append(l.recent(now), now)
	}
}

// recent are the losses that are remembered.
func (l *flap) recent(now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(l.lost), func(t time.Time) bool { return now.Sub(t) > remember })
}

// wait is how long a link that is there has to stay before it counts as there: after one loss it does at once, after the second in
// a short time when it has been there for a second, and after each further one for twice as long.
func (f flaps) wait(nic string, now time.Time) time.Duration {
	l := f[nic]
	if l == nil || !l.linked {
		return 0
	}
	need := time.Duration(0)
	for range max(len(l.recent(now))-1, 0) {
		need = min(max(time.Second, 2*need), longest)
	}
	return max(need-now.Sub(l.since), 0)
}

// steady is a view in which a link that comes and goes is none.
type steady struct {
	View
	flaps flaps
	now   time.Time
}

func (s steady) Find(a netip.Addr) lan.Place {
	p := s.View.Find(a)
	p.Cut = p.Cut || s.flaps.wait(p.NIC, s.now) > 0
	return p
}
