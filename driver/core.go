package driver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/replica"
)

// core is what a Driver knows, and what can be answered from that alone.
type core struct {
	cfg     Config
	replica Replica
	alloc   *ipam.Allocator
	overlay Overlay
	links   Links
	ports   Ports
	names   Resolver
	docker  *docker.Client
	wake    chan struct{} // capacity 1: something for the watcher to look at

	inspector *inspector

	joined    chan struct{}            // capacity 1: an endpoint has joined its container
	unlimited atomic.Pointer[[]string] // for Unlimited, which is not to wait

	// The watcher's own.
	name  string // of this managed plugin, "" until Docker has told
	again bool   // something was put off: look again soon

	mu    sync.Mutex // covers local, ours, told, unstored, what follows it, and the records that go with them
	local *local
	ours  ours
	told  map[string][]link.Via // routes in replies to Join, by endpoint, until the watcher has seen them
	// unstored are networks, by Docker's ID, that Docker has yet to list: it may fail to store them,
	// and then removes them. true: the cluster had such a network before.
	unstored map[string]bool
	// removed are networks, by Docker's ID, whose end Docker has called for and which it lists.
	removed      map[string]bool
	userRemoved  map[string]time.Time // when a user removed a network here, by name: see justRemoved
	deleteLost   time.Time            // view.deleteLost
	dockerBegan  time.Time            // when Docker was last started
	removeFailed time.Time            // view.removeFailed
}

// keeping does f, which fails if the network (by Docker's ID) is not in the cluster. After a
// failure it announces the network and tries again.
func (d *core) keeping(ctx context.Context, network string, f func() error) error {
	const tries = 3
	for try := 1; ; try++ {
		err := f()
		if err == nil || try == tries || ctx.Err() != nil {
			return err
		}
		if err := d.noteUse(network, true); err != nil {
			return err
		}
	}
}

// partWith ends the part that the containers of a network have in another one, with which
// it was taken for one: they are not to be found there, nor to send there, any more.
func (d *core) partWith(ctx context.Context, id string) (err error) {
	endpoints := d.endpointsOf(id)
	for _, e := range endpoints {
		err = errors.Join(err, d.overlay.Detach(ctx, e))
	}
	if len(endpoints) == 0 {
		return err
	}
	_, wrote := d.replica.Update(func(tx *replica.Tx) error {
		for _, e := range endpoints {
			tx.Delete(cluster.Endpoint{ID: e}.Key())
		}
		return nil
	})
	return errors.Join(err, wrote)
}

// inDocker reports whether Docker has an endpoint that no container of its list is on: of
// one that takes its time to start.
func (d *core) inDocker(ctx context.Context, id string) (bool, error) {
	e, ours := d.localEndpoint(id)
	if !ours {
		return false, nil
	}
	list, err := d.docker.Attached(ctx, e.Network)
	if errors.Is(err, docker.ErrNotFound) {
		return false, nil
	}
	return slices.ContainsFunc(list, func(c docker.Container) bool { return c.Networks[0].EndpointID == id }), err
}

// noteUse records that the network has containers here, and announces it again
// if the cluster has deleted it meanwhile: with its subnets if it has endpoints, or is about
// to get one (begins), or else if it is not outdated.
func (d *core) noteUse(id string, begins bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, ok := d.local.networks[id]
	if !ok || n.Conflict != "" {
		return nil
	}
	subnets := n.subnets(d.cfg.Self)
	_, err := d.replica.Update(func(tx *replica.Tx) error {
		if !begins && !d.local.used(id) && followed(tx.Snapshot(), n) {
			subnets = nil
		}
		if err := announce(tx, d.cfg.Self, n, subnets, false); err != nil {
			return err
		}
		use(tx, d.cfg.Self, n.Name)
		return nil
	})
	if err != nil {
		return fmt.Errorf("note the use of network %s: %w", n.Name, err)
	}
	return nil
}

// othersCreate reports whether anything but own is being made on this host: its name
// nobody can tell before Docker lists it. If it is the one that the agent is about to
// make, there may be two of that name afterwards (Docker before 25), and containers
// cannot be put on either. d.mu is held.
func (d *core) othersCreate(own *creation) bool {
	since := d.cfg.Now().Add(-creationTime)
	for _, n := range d.local.networks {
		if !n.Learnt && n.Created.After(since) {
			return true
		}
	}
	for p, times := range d.alloc.Asked(since) {
		if own != nil && d.ours.creating[p] == own {
			times--
		}
		if _, made := d.local.withPrefix(p); !made && times > 0 {
			return true
		}
	}
	return false
}

// noteRemoveFailed notes that a network may be listed by Docker no more, or only here.
func (d *core) noteRemoveFailed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.removeFailed = d.cfg.Now()
}

func (d *core) endpointsOf(network string) (ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, e := range d.local.endpoints {
		if e.Network == network {
			ids = append(ids, id)
		}
	}
	return ids
}

func (d *core) localEndpoint(id string) (localEndpoint, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.local.endpoints[id]
	return e, ok
}

// network returns a Docker network that can be used.
func (d *core) network(id string) (localNetwork, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, ok := d.local.networks[id]
	switch {
	case !ok:
		return n, fmt.Errorf("network %.12s %w; see `grapevine status`, and try again", id, errUnknownNetwork)
	case n.Conflict != "":
		return n, errors.New(n.Conflict)
	}
	return n, nil
}

func (d *core) endpoint(networkID, id string) (localEndpoint, localNetwork, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.local.endpoints[id]
	n, known := d.local.networks[e.Network]
	switch {
	case !ok || !known || e.Network != networkID:
		return e, n, fmt.Errorf("endpoint %.12s of network %.12s is not known to this agent; restart the container", id, networkID)
	case n.Conflict != "":
		return e, n, errors.New(n.Conflict)
	}
	return e, n, nil
}

// driverName returns the name by which this host's Docker knows the driver.
func (d *core) driverName(ctx context.Context) (string, error) {
	switch {
	case d.cfg.DriverName != "":
		return d.cfg.DriverName, nil
	case d.cfg.PluginID == "":
		return strings.TrimSuffix(filepath.Base(d.cfg.Socket), ".sock"), nil
	case d.name == "":
		p, err := d.docker.Plugin(ctx, d.cfg.PluginID)
		if err != nil {
			return "", err
		}
		d.name = p.Name
	}
	return d.name, nil
}

// mayBegin refuses the first container on a network that was made anew elsewhere without the
// subnets that this host's has: that one is about to be replaced.
func (d *core) mayBegin(n localNetwork) error {
	snap := d.replica.Snapshot()
	_, used := cluster.Get[cluster.Use](snap, cluster.Use{Network: n.Name, Host: d.cfg.Self}.Key().ID)
	if used || !n.Learnt || !followed(snap, n) {
		return nil
	}
	d.poke()
	return fmt.Errorf("network %s was made anew on another host, and this host's, which has the subnet %s, is just being replaced; try again", n.Name, prefixList(n.Prefixes))
}

// justRemoved reports whether that is so of a network, by name; then the watcher looks again soon.
func (d *core) justRemoved(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, removed := d.userRemoved[name]
	if removed && d.cfg.Now().Sub(at) < comeBack {
		d.again = true
		return true
	}
	delete(d.userRemoved, name)
	return false
}

func (d *core) retireOld(list []cluster.Subnet) error {
	if len(list) == 0 {
		return nil
	}
	_, err := d.replica.Update(func(tx *replica.Tx) error {
		for _, s := range list {
			n, live := cluster.Get[cluster.Network](tx.Snapshot(), s.Network)
			if !live || !slices.Contains(n.Old, s.Prefix) || inhabited(tx.Snapshot(), n.Name, s.Prefix) {
				continue
			}
			n.Old = without(n.Old, []netip.Prefix{s.Prefix})
			_ = tx.Put(n) // Update reports it
			if is, live := cluster.Get[cluster.Subnet](tx.Snapshot(), s.Prefix.String()); live && is.Network == n.Name {
				tx.Delete(is.Key())
			}
		}
		return nil
	})
	return err
}

// poke makes the watcher look soon. It never blocks.
func (d *core) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// ours are the changes that the watcher is just making in Docker, so that the
// calls that come of them are not taken for the user's.
type ours struct {
	creating map[netip.Prefix]*creation // by each of its subnets
	removing map[string]bool            // by Docker's ID
}

// creation is a network of the cluster on its way into this host's Docker.
type creation struct {
	docker.Network
	// alone says that it is made only as long as no client comes to Docker's API.
	alone bool
	// off says that it is not made now, since it has left the cluster meanwhile, or since
	// another one is being made on this host, which may be the same, or for alone.
	off bool
}
