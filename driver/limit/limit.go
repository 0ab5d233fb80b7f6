// Package limit is what people do about what containers may send and get: they change it, while the containers run.
package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// Desk is where people change what this host's containers may send and get.
type Desk struct {
	Self    cluster.NodeID
	Name    string // of this host
	Replica Replica
	// Set changes the limits of an endpoint of this host.
	Set func(endpoint string, change func(*cluster.Limits)) error
	// CanLag returns an error if this host's kernel cannot delay or lose packets.
	CanLag func() error
}

// Replica is the agent's copy of the cluster's state; *replica.Replica is one.
type Replica interface {
	Snapshot() *cluster.Snapshot
	Update(func(*replica.Tx) error) (rev uint64, err error)
}

// Limit is the verb of that name.
func (d Desk) Limit(_ context.Context, r api.LimitRequest) (api.Done, error) {
	if r.Container == "" && r.Network != "" {
		return d.network(r)
	}
	refuse := func(err error) (api.Done, error) {
		return api.Done{}, api.Errorf(http.StatusBadRequest, "limit %.80s: %v", r.Container, err)
	}
	change, err := changed(r)
	if err != nil {
		return refuse(err)
	}
	snap := d.Replica.Snapshot()
	list, err := d.endpoints(snap, r)
	if err != nil {
		return refuse(err)
	}
	if err := limitAll(list, change, d.Set); err != nil {
		return api.Done{}, err
	}
	var lines []string
	for _, e := range list {
		snap := d.Replica.Snapshot()
		now, _ := cluster.Get[cluster.Endpoint](snap, e.ID)
		lines = append(lines, fmt.Sprintf("%s on network %s %s", e.Name, e.Network, limitWords(snap.Limits(now))))
	}
	return api.Done{Text: strings.Join(lines, "\n")}, nil
}

// limitAll changes the limits of a container's endpoints, all of them or, as far as what is changed can be changed back, none.
func limitAll(list []cluster.Endpoint, change func(*cluster.Limits), set func(string, func(*cluster.Limits)) error) error {
	var undo []func() error
	var done []string
	for _, e := range list {
		var before cluster.Limits
		err := set(e.ID, func(l *cluster.Limits) { before = *l; change(l) })
		if err == nil {
			undo = append(undo, func() error { return set(e.ID, func(l *cluster.Limits) { *l = before }) })
			done = append(done, e.Network)
			continue
		}
		for i := len(undo) - 1; i >= 0; i-- {
			if undo[i]() == nil {
				done = slices.Delete(done, i, i+1)
			}
		}
		what := "nothing is changed"
		if len(done) > 0 {
			what = "what is changed stays so on network " + strings.Join(done, ", ")
		}
		return fmt.Errorf("limit %s on network %s: %s: %w", e.Name, e.Network, what, err)
	}
	return nil
}

// limitWords are limits, for people.
func limitWords(l cluster.Limits) string {
	most := func(r cluster.Rate) string {
		if r == 0 {
			return "as much as it can"
		}
		return "at most " + r.String()
	}
	text := fmt.Sprintf("sends %s, and gets %s", most(l.Egress), most(l.Ingress))
	if l.Delay != 0 || l.Jitter != 0 {
		text += fmt.Sprintf("; what it sends is %s later", cmp.Or(l.Delay.String(), "0s"))
		if l.Jitter != 0 {
			text += fmt.Sprintf(", more or less by %s", l.Jitter)
		}
	}
	if l.Loss != 0 {
		text += fmt.Sprintf("; of what it sends %s is lost", l.Loss)
	}
	return text
}

// options are what a request says, by the options of a network that say so.
func options(r api.LimitRequest) map[string]string {
	asked := map[string]string{cluster.OptEgress: r.Egress, cluster.OptIngress: r.Ingress, cluster.OptDelay: r.Delay, cluster.OptJitter: r.Jitter, cluster.OptLoss: r.Loss}
	maps.DeleteFunc(asked, func(_, text string) bool { return text == "" })
	return asked
}

// changed is what a request does to a container's own limits.
func changed(r api.LimitRequest) (func(*cluster.Limits), error) {
	asked := options(r)
	if len(asked) == 0 {
		return nil, errors.New("to what? add --egress 10mbit, --ingress 10mbit, --delay 50ms, --jitter 5ms, --loss 1%, or none in place of a value")
	}
	var errs []error
	for _, option := range cluster.LimitOptions() {
		if text := asked[option]; text != "" && text != cluster.NoLimit {
			errs = append(errs, new(cluster.Limits).Set(option, text))
		}
	}
	return func(l *cluster.Limits) {
		for option, text := range asked {
			if text == cluster.NoLimit {
				l.Clear(option)
			} else {
				_ = l.Set(option, text) // it was read above
			}
		}
	}, errors.Join(errs...)
}

// endpoints are those that a request is about, all of this host.
func (d Desk) endpoints(snap *cluster.Snapshot, r api.LimitRequest) (list []cluster.Endpoint, err error) {
	all, err := view.EndpointsOf(snap, r.Container)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		switch {
		case e.Container != all[0].Container:
			return nil, fmt.Errorf("several containers are called so, %.12s and %.12s: name one by its ID (`grapevine ps` lists them)", all[0].Container, e.Container)
		case e.Host != d.Self:
			return nil, fmt.Errorf("it is on host %s: run it there, or with -H ssh://root@%s", snap.HostName(e.Host), snap.HostName(e.Host))
		case len(e.Client) > 0:
			return nil, errors.New("it is a client, of which nothing is limited")
		case r.Network == "" || e.Network == r.Network:
			list = append(list, e)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("it is not on network %.80s: see `grapevine show %.80s`", r.Network, r.Container)
	}
	return list, nil
}
