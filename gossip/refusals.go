package gossip

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxProblems bounds how many different refusals are remembered.
const maxProblems = 256

// place is an address behind a name, for people; "" if it is not known.
func place[A netip.Addr | netip.AddrPort](addr A) string {
	if addr == *new(A) {
		return ""
	}
	return fmt.Sprintf(" (%v)", addr)
}

// problem is why something was refused, and when last.
type problem struct {
	err    error
	last   time.Time
	at     netip.AddrPort // of a host that is refused as a whole; looked at again (again.go)
	looked time.Time      // when last
	gone   int            // how often it was not found there, in a row
}

// over reports whether it is no problem any more: for as long as somebody sends again what a host said
// that has gone, it is remembered that it has.
func (p problem) over() bool { return p.gone >= goneAfter }

// fading reports whether nothing more was heard for so long that it is forgotten.
func (p problem) fading(now time.Time) bool { return now.Sub(p.last) > problemMemory }

// problemMemory is longer than the pause between two tries to reach a host
// (foreignLimit).
const problemMemory = 3 * time.Minute

// refusals are what was refused of late, and why.
type refusals struct {
	*core
	strangers *strangers

	mu       sync.Mutex
	problems map[string]problem
}

func newRefusals(c *core, s *strangers) *refusals {
	return &refusals{core: c, strangers: s, problems: map[string]problem{}}
}

// refuse counts a refusal, and logs and remembers it if it is the first with
// this key. It returns err.
func (r *refusals) refuse(reason, key string, err error) error {
	return r.refuseAt(reason, key, netip.AddrPort{}, func(netip.AddrPort) error { return err })
}

// refuseAt is refuse of a host that is at an address, if that is known: it may have been once
// before.
func (r *refusals) refuseAt(reason, key string, at netip.AddrPort, say func(at netip.AddrPort) error) error {
	r.stats.add(reason, 1)
	r.mu.Lock()
	was, seen := r.problems[key]
	if !at.IsValid() {
		at = was.at
	}
	err := say(at)
	if seen || len(r.problems) < maxProblems {
		was.err, was.last, was.at = err, time.Now(), at
		r.problems[key] = was
	}
	r.mu.Unlock()
	if !seen {
		r.log.Warn(strings.TrimPrefix(err.Error(), refusedMark), "reason", reason)
	}
	return err
}

// refuseForeign refuses a host of another cluster than ours. What earlier meetings have told of
// it is kept.
func (r *refusals) refuseForeign(f Foreign, at netip.AddrPort, ours string) error {
	key := foreign + f.ID
	return r.refuseAt(RefusedCluster, key, at, func(at netip.AddrPort) error { // holds mu
		f.Addr = at.Addr().Unmap()
		r.strangers.known(f.Addr)
		var was Foreign
		if errors.As(r.problems[key].err, &was) && was.Cluster == f.Cluster {
			f.Name = cmp.Or(f.Name, was.Name)
			f.Hosts = cmp.Or(f.Hosts, was.Hosts)
		}
		return fmt.Errorf("%w, this one to cluster %s", f, ours)
	})
}

// settle forgets problems that are none any more, by their keys.
func (r *refusals) settle(keys ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		delete(r.problems, key)
	}
}

// standing are the problems that there are now, by key.
func (r *refusals) standing() map[string]problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := map[string]problem{}
	for key, p := range r.problems {
		if p.fading(time.Now()) {
			delete(r.problems, key)
		} else if !p.over() {
			list[key] = p
		}
	}
	return list
}

// Problems is Gossip.Problems.
func (r *refusals) Problems() []string {
	return r.texts(func(key string) bool { return !strings.HasPrefix(key, suspect) && !strings.HasPrefix(key, foreign) })
}

// suspects is Gossip.Suspects.
func (r *refusals) suspects() []string {
	return r.texts(func(key string) bool { return strings.HasPrefix(key, suspect) })
}

// suspect begins the keys of problems with what a host says, not with the host.
const suspect = "merge "

func (r *refusals) texts(which func(key string) bool) (list []string) {
	for key, p := range r.standing() {
		if which(key) {
			list = append(list, strings.TrimPrefix(p.err.Error(), refusedMark))
		}
	}
	slices.Sort(list)
	return list
}

// foreigners is Gossip.Foreigners.
func (r *refusals) foreigners() (list []Foreign) {
	for key, p := range r.standing() {
		var f Foreign
		if strings.HasPrefix(key, foreign) && errors.As(p.err, &f) {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b Foreign) int { return a.Addr.Compare(b.Addr) })
	return list
}

// toLookAt are the problems that are hosts at an address and were not looked at for a while, some
// of them. That something is heard of one is no reason not to: anybody may have recorded it.
func (r *refusals) toLookAt(now time.Time) map[string]netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[string]netip.AddrPort{}
	for key, p := range r.problems {
		if len(found) < lookAtOnce && p.at.IsValid() && now.Sub(p.looked) >= lookAgain && !p.fading(now) {
			found[key] = p.at
			p.looked = now
			r.problems[key] = p
		}
	}
	return found
}

// looked notes what became of a look at a host: it was refused again, or is no problem any more, or was not found.
func (r *refusals) looked(key string, err error) {
	refused := err != nil && strings.Contains(err.Error(), refusedMark)
	r.mu.Lock()
	defer r.mu.Unlock()
	p, there := r.problems[key]
	switch {
	case !there:
		return
	case err == nil:
		p.gone = goneAfter
	case refused:
		p.gone = 0
	case p.gone < goneAfter:
		p.gone++
	}
	r.problems[key] = p
}
