package inside

import (
	"time"

	"github.com/grapevine-net/grapevine/service"
)

// owed is what the kernel is to forget in a sandbox. To look for it the kernel goes through all connections of the host, so
// that it is done at once for the first change, and of what follows soon for several together.
type owed struct {
	fronts map[service.Front]*service.Back // as they are now; nil: it is gone
	not    time.Time                       // before that nothing is due
}

// Of a processor no more than a share goes into it, as far as it is done in time: the client of a replica that is gone hears
// of that by it.
const (
	share   = 20
	soonest = 100 * time.Millisecond
	latest  = 1500 * time.Millisecond
)

// rest is nothing owed, after the kernel has gone through connections for all sandboxes for as long as this.
func rest(took time.Duration) owed {
	return owed{not: time.Now().Add(min(max(share*took, soonest), latest))}
}

func (o owed) due(now time.Time) bool { return len(o.fronts) > 0 && !now.Before(o.not) }

// add notes a change, if something is led elsewhere by it, or is owed already.
func (o *owed) add(from, to service.Table) {
	loses := loses(from, to)
	if o.fronts == nil {
		o.fronts = map[service.Front]*service.Back{}
	}
	for f := range from {
		if _, is := o.fronts[f]; loses || is {
			o.fronts[f] = nil
		}
	}
	for f, b := range to {
		if _, is := o.fronts[f]; loses || is {
			o.fronts[f] = &b
		}
	}
}

// all are the fronts, and what those lead to that are there.
func (o owed) all() (about func(service.Front) bool, to service.Table) {
	to = service.Table{}
	for f, b := range o.fronts {
		if b != nil {
			to[f] = *b
		}
	}
	fronts := o.fronts
	return func(f service.Front) bool { _, is := fronts[f]; return is }, to
}
