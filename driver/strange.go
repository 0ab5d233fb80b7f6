package driver

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// strangeAfter is how long a network may be in Docker's list and not be ours, or the other
// way round: Docker lists it until a little after it has called us to remove it.
const strangeAfter = 10 * time.Second

// strange returns the networks of our driver in Docker that this agent knows nothing of,
// each with since when, given what was before: they were made under another identity of
// this host, whose state is gone.
func (v view) strange(before map[string]time.Time) map[string]time.Time {
	now := map[string]time.Time{}
	for _, n := range v.networks {
		if _, known := v.local[n.ID]; known || v.driver == "" || n.Driver != v.driver {
			continue
		}
		what := n.Name
		for _, c := range v.containers {
			for _, at := range c.Networks {
				if at.NetworkID == n.ID {
					what += " " + c.Name
				}
			}
		}
		now[what] = v.now
		if since, was := before[what]; was {
			now[what] = since
		}
	}
	return now
}

// Strange is a network that is in Docker, but not this agent's.
type Strange struct {
	Network    string
	Containers []string // that are on it
}

// Strangers returns the networks of this driver in Docker that this host knows nothing of
// since it joined the cluster as a new one.
func (d *Driver) Strangers() (list []Strange) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(d.strange)) {
		if words := strings.Fields(what); d.cfg.Now().Sub(d.strange[what]) > strangeAfter {
			list = append(list, Strange{words[0], words[1:]})
		}
	}
	return list
}
