package driver

import (
	"context"
	"maps"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
)

// Containers' MTU is that of the narrowest underlay of the cluster. It changes with the
// hosts: when one comes whose underlay is narrower, running containers get less at once,
// for what they send it would vanish on the way.

const (
	mtuPause = 300 * time.Millisecond // between looks: others' records change all the time
	mtuRetry = 5 * time.Second        // after a failure
)

// followMTU keeps the MTU of running containers' interfaces what it is to be until ctx
// ends. It needs neither Docker nor the switch.
func (d *mirror) followMTU(ctx context.Context) {
	set := map[string]int{} // by endpoint
	for ctx.Err() == nil {
		changed := d.core.replica.Watch()
		retry := time.Hour
		if !d.fitMTUs(d.core.replica.Snapshot(), set) {
			retry = mtuRetry
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		case <-changed:
			sleep(ctx, mtuPause)
		}
	}
}

// fitMTUs sets the MTUs that are not as in set, which it keeps, and reports whether all
// could be set.
func (d *mirror) fitMTUs(snap *cluster.Snapshot, set map[string]int) (all bool) {
	all = true
	type pair struct{ id, network, sandbox string }
	var joined []pair
	d.core.mu.Lock()
	for id, e := range d.core.local.endpoints {
		if e.Joined && e.Sandbox != "" {
			joined = append(joined, pair{id, d.core.local.networks[e.Network].Name, e.Sandbox})
		}
	}
	d.core.mu.Unlock()
	known := map[string]int{}
	for _, e := range joined {
		want := snap.NetworkMTU(e.network, d.core.cfg.MTU)
		if set[e.id] == want {
			known[e.id] = want
			continue
		}
		host, _ := ifnames(e.id)
		if err := d.core.links.SetMTU(host, e.sandbox, want); err != nil {
			// It may be just coming or going.
			d.core.cfg.Log.Debug("set the MTU of a container", "endpoint", e.id, "err", err)
			all = false
			continue
		}
		known[e.id] = want
	}
	clear(set)
	maps.Copy(set, known)
	return all
}
