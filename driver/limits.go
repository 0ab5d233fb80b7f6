package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/pulse"
	"github.com/grapevine-net/grapevine/replica"
)

// readLimits takes an endpoint's own limits from the options of CreateEndpoint.
func (e *localEndpoint) readLimits(options map[string]any) error {
	for _, key := range cluster.LimitOptions() {
		value, given := options[key]
		if !given {
			continue
		}
		text, _ := value.(string)
		if err := e.Set(key, text); err != nil {
			return fmt.Errorf("driver-opt %s: %w", key, err)
		}
	}
	return nil
}

// has reports whether Docker has a network of that ID on this host.
func (c *core) has(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, there := c.local.networks[id]
	return there
}

// canLimit returns an error if this host cannot hold the limits of a container.
func (c *core) canLimit(l cluster.Limits) error {
	if !l.Lags() {
		return nil
	}
	return c.links.CanLag()
}

// SetLimits changes an endpoint's own limits on this host, until its container starts again: change is given what they are. What
// is 0 then its network's options say.
func (d *Driver) SetLimits(endpoint string, change func(*cluster.Limits)) error {
	if d == nil {
		return errors.New("this host has no containers")
	}
	c := d.core
	c.mu.Lock()
	defer c.mu.Unlock()
	before, there := c.local.endpoints[endpoint]
	if !there {
		return errors.New("it has gone meanwhile")
	}
	e := before
	change(&e.Limits)
	if e.Limits != before.Limits {
		if err := c.canLimit(e.Limits); err != nil {
			return err
		}
	}
	if err := c.local.setEndpoint(e); err != nil {
		return err
	}
	_, err := c.replica.Update(func(tx *replica.Tx) error {
		rec, live := cluster.Get[cluster.Endpoint](tx.Snapshot(), endpoint)
		if !live || rec.Host != c.cfg.Self {
			return errors.New("it has gone meanwhile")
		}
		rec.Limits = e.Limits
		return tx.Put(rec)
	})
	if err != nil {
		return errors.Join(err, c.local.setEndpoint(before))
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
	sent := sendings{}
	retry, looked := limitRetry, time.Now()
	for ctx.Err() == nil {
		changed := d.core.replica.Watch()
		look := time.Since(looked) >= limitLook-pulse.Long/2 // a moment that is near may come before
		if look {
			looked = time.Now()
		}
		failed := d.limit(d.core.replica.Snapshot(), set, look)
		over := d.overLimits(sent, set, look)
		switch {
		case len(failed) == 0:
			retry = limitRetry
			d.core.unlimited.Store(&over)
		case retry >= limitSaid:
			said := append(slices.Sorted(maps.Values(failed)), over...)
			d.core.unlimited.Store(&said)
		default:
			retry *= 2
		}
		wait := retry
		if len(failed) == 0 {
			wait = limitLook
		}
		select {
		case <-ctx.Done():
		case <-pulse.After(wait):
		case <-d.core.joined:
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
	d.core.mu.Lock()
	for id, e := range d.core.local.endpoints {
		if e.Joined && e.Sandbox != "" {
			sandboxes[id] = e.Sandbox
		}
	}
	d.core.mu.Unlock()
	maps.DeleteFunc(set, func(id string, _ link.Limits) bool { return sandboxes[id] == "" })
	for id, sandbox := range sandboxes {
		e, _ := cluster.Get[cluster.Endpoint](snap, id)
		want := linkLimits(snap.Limits(e))
		if set[id] == want && (!look || want == link.Limits{}) {
			continue
		}
		host, _ := ifnames(id)
		if err := d.core.links.Limit(host, sandbox, want); errors.Is(err, link.ErrNotFound) {
			delete(set, id) // nothing passes; who deleted it is said elsewhere
			continue
		} else if err != nil {
			delete(set, id)
			failed[id] = fmt.Sprintf("%s on network %s: %v", d.publisher.whose(id), e.Network, err)
			continue
		}
		set[id] = want
	}
	return failed
}

// linkLimits are limits as an interface has them.
func linkLimits(l cluster.Limits) link.Limits {
	return link.Limits{Egress: uint64(l.Egress), Ingress: uint64(l.Ingress), Lag: link.Lag{Delay: l.Delay.Duration(), Jitter: l.Jitter.Duration(), Loss: l.Loss.Share()}}
}

// sendings are what containers with an egress limit had sent at the last look, and whether that was too much, by
// endpoint.
type sendings map[string]sending

type sending struct {
	bytes, rate uint64
	at          time.Time
	over        string // for people; empty: no more than it may
}

// overLimits returns, for people, the containers that have sent more than they may since the last look: a
// process in a container can pass by the queue at its interface (packet(7), PACKET_QDISC_BYPASS), or take it away again
// and again. With look it asks the kernel, and otherwise says what it said.
func (d *mirror) overLimits(sent sendings, set map[string]link.Limits, look bool) (over []string) {
	if look {
		maps.DeleteFunc(sent, func(id string, _ sending) bool { return set[id].Egress == 0 })
		for id, l := range set {
			host, _ := ifnames(id)
			bytes, err := d.core.links.Received(host)
			if l.Egress == 0 || err != nil {
				continue
			}
			now, last := sending{bytes: bytes, rate: l.Egress, at: time.Now()}, sent[id]
			if last.rate == now.rate && bytes >= last.bytes {
				now.over = d.over(id, bytes-last.bytes, now.at.Sub(last.at), l.Egress)
			}
			sent[id] = now
		}
	}
	for _, s := range sent {
		if s.over != "" {
			over = append(over, s.over)
		}
	}
	slices.Sort(over)
	return over
}

// over says that a container has sent so many bytes in that time, if its limit is clearly less.
func (d *mirror) over(id string, bytes uint64, in time.Duration, limit uint64) string {
	const clearly, queued = 1.2, 1 << 17 // what the bucket lets through at once is less
	if float64(bytes) <= clearly*float64(limit)/8*in.Seconds()+queued {
		return ""
	}
	e, _ := cluster.Get[cluster.Endpoint](d.core.replica.Snapshot(), id)
	return fmt.Sprintf("%s on network %s sends %.0f Mbit/s and may send %v: a process in it passes the queue by, or takes it away; without NET_RAW and NET_ADMIN none can (--cap-drop)",
		d.publisher.whose(id), e.Network, float64(bytes)*8/1e6/in.Seconds(), float64(limit)/1e6)
}

// Unlimited is Driver.Unlimited.
func (d *core) Unlimited() []string {
	if list := d.unlimited.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}
