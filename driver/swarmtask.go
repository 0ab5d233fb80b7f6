package driver

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/host/docker"
)

// Barred is a network that tasks of Swarm's wait for, and that Docker (25 and later) does not make while there is another one of its name: that
// of the cluster, which cannot give way, since containers are on it that somebody has put there.
type Barred struct {
	Network    string
	Tasks      []string // that wait
	Containers []string // that are in the way
	since      time.Time
}

// barredAfter is how long a task has waited before it is said: older engines make a second network of the name, and the task starts.
const barredAfter = 3 * time.Second

// barring is what is in the way of Swarm's network of that name.
func (v view) barring(n docker.Network) Barred {
	b := Barred{Network: n.Name, since: v.now}
	for _, c := range v.containers {
		for _, at := range c.Networks {
			switch {
			case at.NetworkID == n.ID:
				b.Containers = append(b.Containers, c.Name)
			case v.waits(c, n.Name):
				b.Tasks = append(b.Tasks, c.Name)
			}
		}
	}
	for _, names := range []*[]string{&b.Containers, &b.Tasks} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	return b
}

// bars are what is barred, for who asks at any time.
type bars struct{ list atomic.Pointer[[]Barred] }

// note keeps what is barred at a look, and since when.
func (b *bars) note(list []Barred) {
	if before := b.list.Load(); before != nil {
		for i, one := range list {
			if j := slices.IndexFunc(*before, func(o Barred) bool { return o.Network == one.Network }); j >= 0 {
				list[i].since = (*before)[j].since
			}
		}
	}
	b.list.Store(&list)
}

// lasting are those that have been so for a while.
func (b *bars) lasting(now time.Time) (list []Barred) {
	if all := b.list.Load(); all != nil {
		for _, one := range *all {
			if now.Sub(one.since) >= barredAfter {
				list = append(list, one)
			}
		}
	}
	return list
}
