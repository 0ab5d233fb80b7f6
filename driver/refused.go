package driver

import (
	"slices"
	"strings"
	"time"
)

// Refused is a network of the cluster that this host's Docker does not make, for a while now: Why is what it said. An
// engine before 28.0 makes none without IPv4.
type Refused struct {
	Network, Why string
	since        time.Time
}

// refusedAfter is how long Docker refuses before a person is told. What fails for a moment, as while another host's news of a
// network are on their way, is tried again at once, and more slowly later.
const refusedAfter = 3 * time.Second

// refusal is that Docker has refused just now to make a network, since the first time of those in a row.
func (d *applier) refusal(network string, err error) Refused {
	r := Refused{Network: network, Why: err.Error(), since: d.core.cfg.Now()}
	if before, known := d.refused[network]; known {
		r.since = before.since
	}
	return r
}

// lasting are the refusals that people are told of.
func (d *applier) lasting() (list []Refused) {
	for _, r := range d.refused {
		if d.core.cfg.Now().Sub(r.since) >= refusedAfter {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b Refused) int { return strings.Compare(a.Network, b.Network) })
	return list
}

// Refused is Driver.Refused.
func (d *mirror) Refused() []Refused {
	if list := d.refused.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}
