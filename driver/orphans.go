package driver

import (
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/host/docker"
)

// orphanedAfter is how long something may be in Docker's lists and not be ours, or the other
// way round, before something is done about it: Docker lists it until a little after it has called
// us to remove it. Named it is earlier, since that changes nothing.
const (
	orphanedAfter = 10 * time.Second
	namedAfter    = 5 * time.Second
)

// Orphan is a network of this driver with what Docker has there that this agent does not
// know: it was made under another identity of this host, whose state is gone.
type Orphan struct {
	Network    string
	Containers []string // that have addresses from then; of a network that is not Known, all
	Known      bool     // the network itself is this host's
	Why        string   // it is not, if that was tried
}

// orphans returns since when Docker has what this agent does not know, given what was
// before: networks, and endpoints on its networks, by their IDs.
func (v view) orphans(before map[string]time.Time) map[string]time.Time {
	now := map[string]time.Time{}
	note := func(id string) {
		if now[id] = v.now; !before[id].IsZero() {
			now[id] = before[id]
		}
	}
	ours := map[string]bool{}
	for _, n := range v.networks {
		_, known := v.local[n.ID]
		ours[n.ID] = known || v.unknown(n)
		if v.unknown(n) {
			note(n.ID)
		}
	}
	for _, c := range v.containers {
		for _, at := range c.Networks {
			if ended(c) {
				continue // of one that has ended Docker may list what it had, as while its disk is full
			}
			if _, known := v.endpoints[at.EndpointID]; ours[at.NetworkID] && !known && at.EndpointID != "" {
				note(at.EndpointID)
			}
		}
	}
	return now
}

// ended reports whether a container has no processes, and so uses no address.
func ended(c docker.Container) bool {
	return slices.Contains([]string{"created", "exited", "dead", "removing"}, c.State)
}

// unknown says of a network of Docker's that it is our driver's and not this agent's. A swarm's is made on a host
// when its first task comes: without a container it is only listed.
func (v view) unknown(n docker.Network) bool {
	_, known := v.local[n.ID]
	return !known && v.driver != "" && n.Driver == v.driver && (!n.Swarm || v.inhabited(n.ID))
}

// inhabited reports whether a container of this host is on a network.
func (v view) inhabited(network string) bool {
	return slices.ContainsFunc(v.containers, func(c docker.Container) bool {
		return slices.ContainsFunc(c.Networks, func(at docker.Attachment) bool { return at.NetworkID == network })
	})
}

// overdue reports whether something is orphaned for longer than Docker may take.
func (v view) overdue(id string) bool { return v.orphanedFor(id, orphanedAfter) }

// orphanedFor reports whether something is orphaned for so long.
func (v view) orphanedFor(id string, d time.Duration) bool {
	since, orphaned := v.orphaned[id]
	return orphaned && v.now.Sub(since) >= d
}

// untilNamed is how long it is from now until one of them is to be named, at most d.
func untilNamed(orphaned map[string]time.Time, now time.Time, d time.Duration) time.Duration {
	for _, since := range orphaned {
		if rest := namedAfter - now.Sub(since); rest > 0 {
			d = min(d, rest)
		}
	}
	return d
}

// listOrphans are the orphans that are to be named.
func (v view) listOrphans(refused map[string]refusal) (list []Orphan) {
	for _, n := range v.networks {
		_, known := v.local[n.ID]
		s := Orphan{Network: n.Name, Known: known}
		if r, ok := refused[n.ID]; ok {
			s.Why = r.err.Error()
		}
		for _, c := range v.containers {
			for _, at := range c.Networks {
				if at.NetworkID == n.ID && (!known || v.orphanedFor(at.EndpointID, namedAfter)) {
					s.Containers = append(s.Containers, c.Name)
				}
			}
		}
		if v.orphanedFor(n.ID, namedAfter) || known && len(s.Containers) > 0 {
			slices.Sort(s.Containers)
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b Orphan) int { return strings.Compare(a.Network, b.Network) })
	return list
}

// noteOrphans keeps what is orphaned for Orphans, and logs what is new of it.
func (d *mirror) noteOrphans(v view) {
	list, before := v.listOrphans(d.networks.refused), d.Orphans()
	for _, s := range list {
		if !slices.ContainsFunc(before, func(old Orphan) bool {
			return s.Network == old.Network && s.Known == old.Known && slices.Equal(s.Containers, old.Containers)
		}) {
			d.core.cfg.Log.Warn("docker has something from before this host joined the cluster as a new one", "network", s.Network, "containers", s.Containers)
		}
	}
	d.orphans.Store(&list)
}

// Orphans is Driver.Orphans.
func (d *mirror) Orphans() []Orphan {
	if list := d.orphans.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}
