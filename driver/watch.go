package driver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/link"
)

// mirror keeps Docker's networks and the cluster's the same: it looks, and has the applier act.
type mirror struct {
	core      *core
	publisher *publisher
	labels    *labels
	networks  *networks
	endpoints *endpoints
	applier   *applier

	// The pointers are for people, who are not to wait for Docker, the disk or iptables.
	missing   map[string]time.Time        // view.missing of the last look
	orphaned  map[string]time.Time        // view.orphaned of the last look
	routed    map[string][]link.Via       // see followSubnets, by sandbox
	dockers   map[string][]link.Via       // those that Docker was told to set, by sandbox
	orphans   atomic.Pointer[[]Orphan]    // for Orphans; the watcher's
	unstarted atomic.Pointer[[]Unstarted] // for Unstarted; that of restartFailed
	outdated  atomic.Pointer[[]Outdated]  // for Outdated; the watcher's
	borrowers atomic.Pointer[[]Borrower]  // for Borrowers; the watcher's
	untold    atomic.Pointer[[]Untold]    // for Untold; the watcher's

	untellable atomic.Pointer[[]string]   // for Untellable, by Docker's ID; the watcher's
	namesakes  atomic.Pointer[[]Namesake] // for Namesakes; the watcher's
	bars       bars                       // for Barred
	refused    atomic.Pointer[[]Refused]  // for Refused; the watcher's
}

// The watcher's pace.
const (
	// eventSettle gathers the events of one action.
	eventSettle = 20 * time.Millisecond
	// minRetry is the first pause between looks while something is still open, which
	// grows to maxOpen (a network without its name, somebody at Docker's API) or maxRetry
	// (a failure).
	minRetry = 50 * time.Millisecond
	maxOpen  = time.Second
	maxRetry = 10 * time.Second
	// clusterPause is the least time between looks for the cluster's sake.
	clusterPause = 300 * time.Millisecond
	// networkPause is that if networks have changed: somebody is about to use one, or has just
	// made room for another one.
	networkPause = 50 * time.Millisecond
	// comingLook is the first pause between looks while something of ours is not in Docker's
	// lists and younger than comingFor: Docker tells that a container was connected, and
	// then writes it to the disk, and then lists it. As long again it takes at most to be
	// seen then: pauses double, up to maxOpen, from what Docker told last.
	comingLook = 50 * time.Millisecond
	comingFor  = 5 * time.Second
	// unlistedAfter is how long something is not in Docker's lists before its networks are asked.
	unlistedAfter = 2 * time.Second
	// idleLook is the longest time without a look.
	idleLook = 30 * time.Second
)

// Watch is Driver.Watch.
func (d *mirror) Watch(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { d.endpoints.restore(ctx); return nil })
	g.Go(func() error { d.events(ctx); return nil })
	g.Go(func() error { d.core.inspector.run(ctx); return nil })
	g.Go(func() error { d.restartFailed(ctx); return nil })
	g.Go(func() error { d.publisher.keepPorts(ctx); return nil })
	g.Go(func() error { d.followMTU(ctx); return nil })
	g.Go(func() error { d.followLimits(ctx); return nil })
	g.Go(func() error { d.loop(ctx); return nil })
	return g.Wait()
}

// events pokes at every event of Docker, over broken connections.
func (d *mirror) events(ctx context.Context) {
	for ctx.Err() == nil {
		err := d.core.docker.Watch(ctx, func() {
			answers := d.labels.hears.Swap(true)
			d.core.poke()
			if !answers {
				d.labels.askRoot(ctx)
			}
		})
		d.labels.hears.Store(false)
		if err != nil {
			d.core.cfg.Log.Debug("docker's events", "err", err)
		}
		sleep(ctx, time.Second)
	}
}

// loop looks when poked, when the cluster has changed, while something is open,
// and now and then.
func (d *mirror) loop(ctx context.Context) {
	var said string // the last failure, which is logged once
	retry, coming := time.Duration(0), comingLook
	for ctx.Err() == nil {
		changed, seen := d.core.replica.Watch(), d.core.replica.Snapshot()
		open, err := d.look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && err.Error() != said:
			said = err.Error()
			d.core.cfg.Log.Warn("docker and the cluster differ", "err", err)
		case err == nil:
			said = ""
		}
		wait := idleLook
		if len(d.missing)+len(d.orphaned) > 0 {
			wait = untilNamed(d.orphaned, d.core.cfg.Now(), d.core.cfg.Grace/4) // to see soon that it stays so
		}
		switch {
		case err != nil:
			retry = min(max(2*retry, minRetry), maxRetry)
			wait = retry
		case open:
			retry = min(max(2*retry, minRetry), maxOpen)
			wait = retry
		default:
			retry = 0
		}
		for _, since := range d.missing {
			if d.core.cfg.Now().Sub(since) < comingFor {
				wait = min(wait, coming)
			}
		}
		coming = min(2*coming, maxOpen)
		if told := d.pause(ctx, changed, seen, wait); told {
			coming = comingLook
		}
	}
}

// pause waits for a reason to look. told says that it was something that happened here.
func (d *mirror) pause(ctx context.Context, changed <-chan struct{}, seen *cluster.Snapshot, wait time.Duration) (told bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-d.core.wake:
		if !d.unnamed() { // a network that has its name now may be there twice, and its user waits
			sleep(ctx, eventSettle)
		}
		return true
	case <-changed:
		return d.rest(ctx, seen)
	}
	return false
}

// rest is the pause after a change of the cluster, since seen: others' endpoints come and go all the
// time. told is as of pause.
func (d *mirror) rest(ctx context.Context, seen *cluster.Snapshot) (told bool) {
	end := time.NewTimer(clusterPause)
	defer end.Stop()
	for {
		changed := d.core.replica.Watch()
		if networksChanged(d.core.replica.Snapshot(), seen) {
			changed = nil
			end.Reset(networkPause)
		}
		select {
		case <-ctx.Done():
			return false
		case <-end.C:
			return false
		case <-d.core.wake:
			return true
		case <-changed:
		}
	}
}

// networksChanged reports whether a network, or a subnet of one, has changed since an earlier
// snapshot.
func networksChanged(snap, before *cluster.Snapshot) bool {
	keys, known := snap.Since(before)
	return known && slices.ContainsFunc(keys, func(k cluster.Key) bool {
		return k.Kind == cluster.KindNetwork || k.Kind == cluster.KindSubnet
	})
}

// look lists what Docker has, decides and acts. open says that something is to
// be looked at again soon.
func (d *mirror) look(ctx context.Context) (open bool, err error) {
	d.applier.looking.Lock()
	defer d.applier.looking.Unlock()
	if d.applier.withdrawn {
		return false, nil
	}
	d.networks.takeUpKnown(ctx) // it needs nothing of Docker, which may not answer yet
	d.core.again = false
	d.applier.waited, d.applier.waiting = d.applier.waiting, map[string]time.Time{}
	v, err := d.see(ctx)
	if err != nil {
		return false, err
	}
	for range 3 {
		if err := errors.Join(d.applier.refreshNotes(v.snap), d.refreshMade(v), d.applier.noteStores(v)); err != nil {
			return false, err
		}
		p := decide(v)
		d.outdated.Store(&p.outdated)
		d.untold.Store(&p.untold)
		d.untellable.Store(&p.untellable)
		d.namesakes.Store(&p.namesakes)
		d.bars.note(p.barred)
		d.labels.unlabelled.Store(&p.unlabelled)
		more, err := d.applier.apply(ctx, p)
		refused := d.applier.lasting()
		d.refused.Store(&refused)
		if err != nil { // which may be so for good; what runs needs its routes, and others the addresses of what has gone
			d.followSubnets(d.core.replica.Snapshot())
			return false, errors.Join(err, d.collect(v))
		}
		if !more {
			break
		}
		d.seeSelf(&v)
		d.seeReach(&v) // a network that has its name now may be another one's rival
	}
	d.followSubnets(d.core.replica.Snapshot())
	return d.core.again || d.unnamed(), d.collect(v)
}

// see makes a view. Docker's part comes first: what it lists, the records have.
// What the driver has is noted before that: what came later may not be listed.
func (d *mirror) see(ctx context.Context) (v view, err error) {
	now := d.core.cfg.Now()
	d.core.docker.NewAPIClients() // to have seen who is there when it matters
	asked := time.Now()
	if v.networks, err = d.core.docker.Networks(ctx); err != nil {
		return v, err
	}
	if d.core.cfg.Listed != nil {
		d.core.cfg.Listed(v.networks)
	}
	if v.containers, err = d.core.docker.Containers(ctx); err != nil {
		return v, err
	}
	d.applier.answers = time.Since(asked)
	d.seeSelf(&v)
	v.self, v.now, v.grace, v.replicate = d.core.cfg.Self, now, d.core.cfg.Grace, d.core.cfg.Replicate
	bare := func(id string) bool {
		host, _ := ifnames(id)
		_, ours := v.endpoints[id]
		return ours && !d.core.links.Exists(host)
	}
	d.missing = v.stillMissing(d.missing, bare)
	v.missing, v.unplugged = maps.Clone(d.missing), map[string]bool{}
	for id := range v.missing {
		v.unplugged[id] = v.endpoints[id].Joined && bare(id)
	}
	if err := d.networks.dropCarried(v); err != nil {
		return v, err
	}
	if err := d.seeUnlisted(ctx, &v); err != nil {
		return v, err
	}
	v.inspected = d.core.inspector.ask(v.containers, v.endpoints)
	if v.driver, err = d.core.driverName(ctx); err != nil {
		return v, err
	}
	v.remade = maps.Clone(d.applier.remade)
	d.seeReach(&v)
	v.renewed, v.settled = d.core.cfg.Renewed, d.core.cfg.Settled == nil || d.core.cfg.Settled()
	d.orphaned = v.orphans(d.orphaned)
	v.orphaned = d.orphaned
	d.noteOrphans(v)
	borrowers := v.borrowers()
	d.borrowers.Store(&borrowers)
	return v, nil
}

// seeUnlisted finds endpoints that Docker has and its list of containers does not tell: if Docker
// cannot write a container's state, to a full disk, it lists what was until it can.
func (d *mirror) seeUnlisted(ctx context.Context, v *view) error {
	asked := map[string]bool{}
	for id, e := range v.endpoints {
		since, missing := v.missing[id]
		if !missing || v.now.Sub(since) < unlistedAfter || asked[e.Network] {
			continue
		}
		asked[e.Network] = true
		list, err := d.core.docker.Attached(ctx, e.Network)
		if err != nil && !errors.Is(err, docker.ErrNotFound) {
			return err
		}
		v.attach(list)
	}
	return nil
}

// seeSelf fills in what this agent has.
func (d *mirror) seeSelf(v *view) {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	for _, n := range v.networks {
		delete(d.core.unstored, n.ID)
	}
	v.local, v.endpoints = maps.Clone(d.core.local.networks), maps.Clone(d.core.local.endpoints)
	v.earlier = d.core.local.earlier
	v.deleteLost, v.removeFailed, v.dockerBegan = d.core.deleteLost, d.core.removeFailed, d.core.dockerBegan
	maps.DeleteFunc(d.core.removed, func(id string, _ bool) bool {
		return !slices.ContainsFunc(v.networks, func(n docker.Network) bool { return n.ID == id })
	})
	v.removed = maps.Clone(d.core.removed)
	v.snap = d.core.replica.Snapshot()
}

// unnamed reports whether a network still waits for its name.
func (d *mirror) unnamed() bool {
	never := d.Untellable()
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	for id, n := range d.core.local.networks {
		if !n.Learnt && !slices.Contains(never, id) {
			return true
		}
	}
	return false
}

// collect frees leases and pools that nothing stands behind. It comes after the
// endpoints that Docker has forgotten were removed, so those left are Docker's.
func (d *mirror) collect(v view) error {
	d.core.mu.Lock()
	alive := maps.Clone(d.core.local.endpoints)
	d.core.mu.Unlock()
	freed, err := d.core.alloc.Collect(v.now.Add(-v.grace), borrowed(v.borrowers()), func(id string) bool {
		_, ok := alive[id]
		return ok || isClient(d.core.replica.Snapshot(), id)
	})
	if len(freed) > 0 {
		d.core.cfg.Log.Info("freed addresses that nothing in docker has", "addresses", freed)
	}
	return err
}

// isClient reports whether an endpoint is no container, of which Docker could know: a client has its addresses for as
// long as it has a record.
func isClient(snap *cluster.Snapshot, id string) bool {
	e, there := cluster.Get[cluster.Endpoint](snap, id)
	return there && e.IsClient()
}

func sleep(ctx context.Context, t time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(t):
	}
}
