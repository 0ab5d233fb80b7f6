package gossip

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Foreign is a host of another cluster that has met this one.
type Foreign struct { //nolint:errname // a host that has come, more than an error
	ID, Name string     // Name is empty until it is known
	Addr     netip.Addr // invalid: not known
	Cluster  string
	// Hosts is how many hosts of its cluster it has named, 0: not known.
	Hosts int
}

// Error says why the host is refused.
func (f Foreign) Error() string {
	return fmt.Sprintf(refusedMark+"host %s%s belongs to cluster %s", f.ID, place(f.Addr), f.Cluster)
}

// foreign begins the keys of problems with hosts of other clusters.
const foreign = "cluster "

// refuseForeign refuses a host of another cluster than ours. What earlier meetings have told of
// it is kept.
func (g *Gossip) refuseForeign(f Foreign, at netip.AddrPort, ours string) error {
	key := foreign + f.ID
	return g.refuseAt(RefusedCluster, key, at, func(at netip.AddrPort) error { // holds g.mu
		f.Addr = at.Addr().Unmap()
		g.judge.strangers.known(f.Addr)
		var was Foreign
		if errors.As(g.problems[key].err, &was) && was.Cluster == f.Cluster {
			f.Name = cmp.Or(f.Name, was.Name)
			f.Hosts = cmp.Or(f.Hosts, was.Hosts)
		}
		return fmt.Errorf("%w, this one to cluster %s", f, ours)
	})
}

// Foreigners lists the hosts of other clusters that this one has met of late, by address.
func (g *Gossip) Foreigners() (list []Foreign) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, p := range g.problems {
		if p.fading(time.Now()) {
			delete(g.problems, key)
		}
		if p.fading(time.Now()) || p.over() {
			continue
		}
		var f Foreign
		if strings.HasPrefix(key, foreign) && errors.As(p.err, &f) {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b Foreign) int { return a.Addr.Compare(b.Addr) })
	return list
}
