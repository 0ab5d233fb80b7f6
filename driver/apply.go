package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/policy/plain"
	"github.com/grapevine-net/grapevine/replica"
)

// applier changes what Docker has.
type applier struct {
	core      *core
	networks  *networks
	endpoints *endpoints
	remade    map[string]string // view.remade
	looking   sync.Mutex        // held during a look; covers withdrawn
	withdrawn bool              // the host is leaving: the watcher rests
	// Since when changes in Docker are wanted, by ID or name, at the last look and at this one.
	waited, waiting map[string]time.Time
	answers         time.Duration      // how long Docker took to list what it has
	refused         map[string]Refused // what Docker has refused to make at the last look, by name
}

// apply does what a plan says, and goes on after failures. Adopting and learning come first
// and alone, as all else may look different then: more says to decide anew.
func (d *applier) apply(ctx context.Context, p plan) (more bool, err error) {
	if d.networks.adoptAll(ctx, p.adopt) {
		return true, nil
	}
	var errs []error
	for _, n := range p.learn {
		learnt, err := d.networks.learn(ctx, n)
		more, errs = more || learnt && err == nil, append(errs, err)
	}
	if more { // what failed fails again, and is said then
		return true, nil
	}
	for _, id := range p.lostEPs {
		if has, err := d.core.inDocker(ctx, id); has || err != nil {
			errs = append(errs, err)
			continue
		}
		d.core.cfg.Log.Info("collecting an endpoint that docker has forgotten", "endpoint", id)
		errs = append(errs, d.endpoints.collectEndpoint(ctx, id))
	}
	for _, id := range p.lost {
		d.core.cfg.Log.Info("collecting a network that docker has forgotten", "network", id, "removed without us", p.unseen[id])
		errs = append(errs, d.endpoints.removeNetwork(ctx, id, p.unseen[id]))
	}
	for _, id := range p.uses {
		errs = append(errs, d.core.noteUse(id, false))
	}
	for _, id := range p.unused {
		errs = append(errs, d.noteUnused(id))
	}
	errs = append(errs, d.noteNames(p.names), d.noteLabelled(p.labelled), d.keepEncrypted(p.encrypted), d.retireAll(p.retire), d.core.retireOld(p.old))
	for _, n := range p.remove {
		errs = append(errs, d.removeInDocker(ctx, n))
	}
	for _, n := range p.vanish {
		if d.defers(n.ID, vanishWait) && d.busy(d.core.docker.APIClients) {
			continue
		}
		errs = append(errs, d.removeInDocker(ctx, n))
		if p.remade[n.ID] != "" {
			d.remade[n.Name] = p.remade[n.ID]
		}
	}
	refused := map[string]Refused{}
	defer func() { d.refused = refused }()
	for _, n := range p.create {
		if r, was := d.refused[n.Name]; was {
			refused[n.Name] = r
		}
		if d.core.justRemoved(n.Name) {
			continue
		}
		alone := d.defers(n.Name, d.createWait())
		if alone && d.busy(d.core.docker.NewAPIClients) {
			continue
		}
		err := d.createInDocker(ctx, n, alone)
		delete(refused, n.Name)
		if err != nil {
			errs = append(errs, fmt.Errorf("make network %s of the cluster here: %w", n.Name, err))
			refused[n.Name] = d.refusal(n.Name, err)
		}
	}
	return false, errors.Join(errs...)
}

// learn gives a local network the name that Docker has for it, if it can be now.
func (d *networks) learn(ctx context.Context, dn docker.Network) (learnt bool, err error) {
	if d.nameless(dn.ID) {
		return false, nil
	}
	conflict, err := d.learnName(dn)
	if err != nil || !conflict {
		return true, err
	}
	return true, d.core.partWith(ctx, dn.ID)
}

// nameless reports whether a local network has its subnet from another host's network
// whose own name is not known yet: whether both are one is to be seen.
func (d *networks) nameless(id string) bool {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	n := d.core.local.networks[id]
	begun := d.begunAs(n)
	return strings.HasPrefix(begun, provisional) && begun != provisional+id
}

// begunAs returns the name under which the cluster has a local network that is not
// learnt: if it began as another host's without a name, the name that one has now. d.mu
// is held.
func (d *networks) begunAs(n localNetwork) string {
	if n.Name == provisional+n.ID || !strings.HasPrefix(n.Name, provisional) {
		return n.Name
	}
	if s, live := cluster.Get[cluster.Subnet](d.core.replica.Snapshot(), n.Prefixes[0].String()); live {
		return s.Network
	}
	return "a network that another host has just given up"
}

func (d *networks) learnName(dn docker.Network) (conflict bool, err error) {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	n, ok := d.core.local.networks[dn.ID]
	if !ok || n.Learnt {
		return false, nil
	}
	old, name := n.Name, nameOf(dn)
	begun := d.begunAs(n)
	var left []string
	if dn.Labels, left = cluster.FitLabels(dn.Labels); len(left) > 0 {
		d.core.cfg.Log.Warn("labels are too long, or too many, for the other hosts: the network has them here alone", "network", dn.Name, "labels", left)
	}
	n.Name, n.Learnt, n.Labels = name, true, dn.Labels
	if begun != name && begun != provisional+dn.ID {
		n.Name = provisional + n.ID // it has no other's name, nor a part in that one's life
		n.Conflict = fmt.Sprintf("network %s has the subnet %s of network %s, which is another one; remove it and create it with a subnet of its own, or with none given", dn.Name, prefixList(n.Prefixes), begun)
		d.core.cfg.Log.Error("network cannot be used", "why", n.Conflict)
		return true, d.core.local.setNetwork(n)
	}
	n.Subnets = slices.Clone(n.Subnets)
	_, err = d.core.replica.Update(func(tx *replica.Tx) error {
		if old != n.Name {
			rename(tx, d.core.cfg.Self, old, n.Name, dn.Labels, n.Automatic)
		} else {
			rec, _ := cluster.Get[cluster.Network](tx.Snapshot(), n.Name)
			relabel(tx, n.Name, dn.Labels, rec.Made == making(dn.ID))
		}
		n.asListed(tx, dn)
		if rec, live := cluster.Get[cluster.Network](tx.Snapshot(), n.Name); live {
			n.VNID, n.Made = rec.VNID, rec.Made
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("name network %s: %w", name, err)
	}
	d.core.cfg.Log.Info("network has its name", "network", n.Name, "vnid", n.VNID, "subnets", n.Prefixes)
	return false, d.core.local.setNetwork(n)
}

func (d *applier) noteUnused(id string) error {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	n, ok := d.core.local.networks[id]
	if !ok || d.core.local.usedName(n.Name) {
		return nil
	}
	_, err := d.core.replica.Update(func(tx *replica.Tx) error {
		tx.Delete(cluster.Use{Network: n.Name, Host: d.core.cfg.Self}.Key())
		return nil
	})
	return err
}

func (d *applier) noteNames(names []cluster.Endpoint) error {
	if len(names) == 0 {
		return nil
	}
	_, err := d.core.replica.Update(func(tx *replica.Tx) error {
		for _, e := range names {
			rec, live := cluster.Get[cluster.Endpoint](tx.Snapshot(), e.ID)
			if !live || rec.Host != d.core.cfg.Self {
				continue
			}
			rec.Container, rec.Name, rec.Aliases, rec.More, rec.LinkLocal, rec.Outdated = e.Container, e.Name, e.Aliases, e.More, e.LinkLocal, e.Outdated
			rec.Labels, rec.Labelled, rec.Awaited, rec.Unready, rec.Sick, rec.Paused = e.Labels, e.Labelled, e.Awaited, e.Unready, e.Sick, e.Paused
			noteExposing(tx, &rec)
			_ = tx.Put(rec) // Update reports it
			if plain.Asks(rec.Labels) {
				markLabelled(tx, rec.Network)
			}
		}
		return nil
	})
	return err
}

func (d *applier) retireAll(names []string) error {
	if len(names) == 0 {
		return nil
	}
	_, err := d.core.replica.Update(func(tx *replica.Tx) error {
		for _, name := range names {
			if n, live := cluster.Get[cluster.Network](tx.Snapshot(), name); live && n.Removed && idle(tx.Snapshot(), name) {
				retire(tx, name)
			}
		}
		return nil
	})
	return err
}

// createInDocker makes a network of the cluster in this host's Docker; if alone, only as
// long as nobody else comes to Docker's API. Docker calls RequestPool and CreateNetwork of
// this agent meanwhile: no lock is held.
func (d *applier) createInDocker(ctx context.Context, n docker.Network, alone bool) error {
	prefixes := prefixesOfPools(n.Pools)
	c := &creation{Network: n, alone: alone}
	d.core.mu.Lock()
	if c.off = d.core.othersCreate(nil); !c.off {
		for _, p := range prefixes {
			d.core.ours.creating[p] = c
		}
	}
	d.core.mu.Unlock()
	var id string
	var err error
	if !c.off {
		n.Options = maps.Clone(n.Options)
		if n.Options == nil {
			n.Options = map[string]string{}
		}
		n.Options[optReplica] = "true"
		id, err = d.core.docker.CreateNetwork(ctx, n)
	}
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	delete(d.core.unstored, id) // if there is an ID, Docker has stored it
	for _, p := range prefixes {
		delete(d.core.ours.creating, p)
	}
	switch {
	case c.off:
		d.core.again = true
	case errors.Is(err, docker.ErrConflict):
	case err != nil:
		return err
	default:
		d.core.cfg.Log.Info("network of the cluster is here too", "network", n.Name)
	}
	return nil
}

// creationTime is how long Docker takes at most from the first call for a network to
// listing it. It decides only how long this host's user goes first.
const creationTime = 5 * time.Second

func prefixesOfPools(pools []docker.IPAM) (out []netip.Prefix) {
	for _, p := range pools {
		if prefix, err := netip.ParsePrefix(p.Subnet); err == nil {
			out = append(out, prefix)
		}
	}
	return out
}

// removeInDocker removes a network that the cluster has deleted. If a container
// has come onto it meanwhile, Docker refuses, and the network is announced again.
func (d *applier) removeInDocker(ctx context.Context, n docker.Network) error {
	d.core.mu.Lock()
	if d.core.local.used(n.ID) {
		d.core.mu.Unlock()
		return nil
	}
	d.core.ours.removing[n.ID] = true
	// Should this agent end before Docker has called, the next one shall not take it for a user's doing.
	if err := d.networks.noteStore(n.ID, ""); err != nil {
		d.core.cfg.Log.Debug("a removal is not noted", "network", n.Name, "err", err) // on a full disk: it goes on
	}
	d.core.mu.Unlock()
	defer func() {
		d.core.mu.Lock()
		defer d.core.mu.Unlock()
		delete(d.core.ours.removing, n.ID)
	}()
	if err := d.core.docker.RemoveNetwork(ctx, n.ID); err != nil && !errors.Is(err, docker.ErrConflict) {
		d.core.noteRemoveFailed()
		return fmt.Errorf("remove network %s from docker: %w", n.Name, err)
	}
	d.core.cfg.Log.Info("removed network from docker", "network", n.Name)
	return nil
}

// refreshNotes notes what local networks are announced again with, if the cluster
// deletes them while this host is cut off or begins to use them.
func (d *applier) refreshNotes(snap *cluster.Snapshot) error {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	var errs []error
	for _, id := range sortedKeys(d.core.local.networks) {
		n := d.core.local.networks[id]
		rec, live := cluster.Get[cluster.Network](snap, n.Name)
		if live && (rec.VNID != n.VNID || rec.MTU != n.MTU || rec.Attachable != n.Attachable || !maps.Equal(rec.Labels, n.Labels)) {
			n.VNID, n.MTU, n.Attachable, n.Labels = rec.VNID, rec.MTU, rec.Attachable, rec.Labels
			errs = append(errs, d.core.local.setNetwork(n))
		}
	}
	return errors.Join(errs...)
}

// noteStores notes that Docker lists networks.
func (d *applier) noteStores(v view) error {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	var errs []error
	for _, dn := range v.networks {
		errs = append(errs, d.networks.noteStore(dn.ID, v.store()))
	}
	return errors.Join(errs...)
}

// noteStore notes which of Docker's stores lists a network. d.mu is held.
func (d *networks) noteStore(id, store string) error {
	n, ours := d.core.local.networks[id]
	if !ours || n.Store == store {
		return nil
	}
	n.Store = store
	return d.core.local.setNetwork(n)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
