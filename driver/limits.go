package driver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
)

// readLimits takes an endpoint's own limits from the options of CreateEndpoint.
func (e *localEndpoint) readLimits(options map[string]any) error {
	for key, to := range map[string]*cluster.Rate{cluster.OptEgress: &e.Egress, cluster.OptIngress: &e.Ingress} {
		value, given := options[key]
		if !given {
			continue
		}
		text, _ := value.(string)
		r, err := cluster.ParseRate(text)
		if err != nil {
			return fmt.Errorf("driver-opt %s: %w", key, err)
		}
		*to = r
	}
	return nil
}

// How soon what could not be limited is tried again: its interface may be just on its way into the
// container. Each try takes twice as long, and after limitSaid it is said.
const (
	limitRetry = 20 * time.Millisecond
	limitSaid  = time.Second
	// limitLook is how long a limit may be gone that somebody takes away: a container that may
	// administer its network can, inside.
	limitLook = 5 * time.Second
)

// followLimits keeps running containers' interfaces to their limits until ctx ends. It needs
// neither Docker nor the switch.
func (d *mirror) followLimits(ctx context.Context) {
	set := map[string]link.Limits{} // by endpoint
	retry, looked := limitRetry, time.Now()
	for ctx.Err() == nil {
		changed := d.replica.Watch()
		look := time.Since(looked) >= limitLook
		if look {
			looked = time.Now()
		}
		failed := d.limit(d.replica.Snapshot(), set, look)
		switch {
		case len(failed) == 0:
			retry = limitRetry
			d.unlimited.Store(nil)
		case retry >= limitSaid:
			said := slices.Sorted(maps.Values(failed))
			d.unlimited.Store(&said)
		default:
			retry *= 2
		}
		wait := retry
		if len(failed) == 0 {
			wait = limitLook
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-d.joined:
			retry = limitRetry
		case <-changed:
			sleep(ctx, limitRetry)
		}
	}
}

// limit sets what is not as in set, which it keeps, or, with look, may not be as it was set. It
// returns what could not be set, for people, by endpoint.
func (d *mirror) limit(snap *cluster.Snapshot, set map[string]link.Limits, look bool) map[string]string {
	failed, sandboxes := map[string]string{}, map[string]string{}
	d.mu.Lock()
	for id, e := range d.local.endpoints {
		if e.Joined && e.Sandbox != "" {
			sandboxes[id] = e.Sandbox
		}
	}
	d.mu.Unlock()
	maps.DeleteFunc(set, func(id string, _ link.Limits) bool { return sandboxes[id] == "" })
	for id, sandbox := range sandboxes {
		e, _ := cluster.Get[cluster.Endpoint](snap, id)
		egress, ingress := snap.Limits(e)
		want := link.Limits{Egress: uint64(egress), Ingress: uint64(ingress)}
		if set[id] == want && (!look || want == link.Limits{}) {
			continue
		}
		host, _ := ifnames(id)
		if err := d.links.Limit(host, sandbox, want); err != nil {
			delete(set, id)
			failed[id] = fmt.Sprintf("%s on network %s: %v", d.whose(id), e.Network, err)
			continue
		}
		set[id] = want
	}
	return failed
}

// Unlimited names, for people, the containers that are not kept to their limits, and why. It waits
// for nothing.
func (d *core) Unlimited() []string {
	if list := d.unlimited.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}
