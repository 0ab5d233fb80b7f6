// Package follow goes on looking what this host reaches by itself, tells the other hosts, and says who of the
// cluster therefore cannot take what (package reach decides).
package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/reach"
)

// Config is what a Follower works with. What is a function may be called later than New.
type Config struct {
	Self     cluster.NodeID
	CIDR4    netip.Prefix
	Underlay string // the interface
	Started  time.Time
	Snapshot func() *cluster.Snapshot
	Watch    func() <-chan struct{}
	CIDRs    func() []netip.Prefix
	Engine   func(context.Context) (docker.Settings, error)
	// Proven waits until this host may write records, or reports that it never may.
	Proven   func(context.Context) bool
	Describe func() error // writes this host's Node record again
	Look     func()       // has the driver look what it can make now
	Log      *slog.Logger
}

// Follower is what this host reaches by itself, as the rooms of the agent ask for it.
type Follower struct {
	*reach.Watcher // nil: it is not looked at
	cfg            Config
	log            *slog.Logger
	// answered: Docker has said what it has.
	answered atomic.Bool
	// This host has had a route to the outside since the agent began.
	hadOutside4, hadOutside6 atomic.Bool

	mu     sync.Mutex // what Docker has said
	nets   []reach.Thing
	pools  []reach.Thing
	labels []string // see Labels; nil: it has not said them yet
}

// New follows nothing yet.
func New(cfg Config) *Follower { return &Follower{cfg: cfg, log: cfg.Log} }

// Open reads what this host has.
func (r *Follower) Open() (err error) {
	r.Watcher, err = reach.Open(gateway.Port, gateway.Tables(), r.log.With("room", "reach"))
	return err
}

// Close lets go of what Open took; Run has returned, or was never called.
func (r *Follower) Close() {
	if r != nil && r.Watcher != nil {
		r.Watcher.Close()
	}
}

// model is what is known of a snapshot.
func (r *Follower) model(snap *cluster.Snapshot) reach.Model {
	return reach.Model{Self: r.cfg.Self, Here: r.things(), Snap: snap, CIDRs: r.cfg.CIDRs()}
}

// things are what this host has; nil while that is not looked at.
func (r *Follower) things() []reach.Thing {
	if r.Watcher == nil {
		return nil
	}
	return r.Things()
}

// Own are this host's own addresses; nil while that is not looked at.
func (r *Follower) Own() []netip.Addr {
	if r == nil || r.Watcher == nil {
		return nil
	}
	return r.Watcher.Own()
}

// Now is what is known now, for the allocator.
func (r *Follower) Now() reach.Model { return r.model(r.cfg.Snapshot()) }

// Judge implements overlay.Reach.
func (r *Follower) Judge(snap *cluster.Snapshot) (barred map[netip.Prefix]bool, clear []netip.Prefix) {
	m := r.model(snap)
	barred = map[netip.Prefix]bool{}
	for p := range m.Barred(snap.Subnets(), false) {
		barred[p] = true
	}
	for p := range r.barredHosts(snap) {
		barred[p] = true
	}
	return barred, m.Clear(r.cfg.CIDR4)
}

// Ours are the addresses that lead to containers from here, and nowhere else: the subnets and the hosts' ranges that this
// host can take; and those of the cluster's ranges that have nothing of this host's in them, nor the address of a host that
// is known. Behind a router there may be more: a host that is to join, or who administers this one.
func (r *Follower) Ours(snap *cluster.Snapshot) (containers, ranges []netip.Prefix) {
	barred, _ := r.Judge(snap)
	for _, p := range slices.Concat(snap.Subnets(), pipeline.HostRanges) {
		if !barred[p] {
			containers = append(containers, p)
		}
	}
	m := r.model(snap)
	return containers, m.Clear(m.CIDRs...)
}

// Barred says why this host cannot take subnets, for the driver.
func (r *Follower) Barred(subnets []netip.Prefix) map[netip.Prefix]error {
	return r.Now().Barred(subnets, false)
}

// SetNetworks takes what Docker has now beside the cluster's networks.
func (r *Follower) SetNetworks(others, rivals []docker.Network) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nets = slices.Concat(networkThings(reach.Docker, others), networkThings(reach.Rival, rivals))
	r.SetDocker(slices.Concat(r.nets, r.pools))
	r.answered.Store(true)
}

func networkThings(kind reach.Kind, list []docker.Network) (out []reach.Thing) {
	for _, n := range list {
		for _, p := range n.Pools {
			if prefix, err := netip.ParsePrefix(p.Subnet); err == nil {
				out = append(out, reach.Thing{Prefix: prefix, Kind: kind, Name: n.Name})
			}
		}
	}
	return out
}

func (r *Follower) setPools(list []netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pools = nil
	for _, p := range list {
		r.pools = append(r.pools, reach.Thing{Prefix: p, Kind: reach.Pool})
	}
	r.SetDocker(slices.Concat(r.nets, r.pools))
}

const (
	// engineEvery is how often Docker is asked for its address pools and labels, which change only as it
	// is started anew, or told to read its settings again.
	engineEvery = time.Minute
	// dockerPatience is how long an agent that begins waits for Docker before it tells the
	// others what this host reaches: until then it is what it was.
	dockerPatience = 20 * time.Second
	// recordPause is the least time between two Node records: Docker's networks may come and go
	// all the time.
	recordPause = time.Second
)

// Run follows what this host reaches until ctx ends: by the kernel's words, and Docker's, and
// tells the other hosts.
func (r *Follower) Run(ctx context.Context) error {
	go r.askEngine(ctx)
	go r.tell(ctx)
	return r.Watcher.Run(ctx)
}

// Reaches is what this host's record is to say that it reaches.
func (r *Follower) Reaches(snap *cluster.Snapshot) []cluster.Reach {
	was, described := cluster.Get[cluster.Node](snap, string(r.cfg.Self))
	if described && r.Watcher != nil && !r.answered.Load() && time.Since(r.cfg.Started) < dockerPatience {
		return was.Reaches
	}
	return reach.Record(r.things(), snap.Subnets(), r.cfg.CIDRs())
}

// Labels are what this host's record is to say of its Docker engine's labels.
func (r *Follower) Labels(snap *cluster.Snapshot) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.labels == nil {
		was, _ := cluster.Get[cluster.Node](snap, string(r.cfg.Self))
		return was.Labels
	}
	return r.labels
}

// setLabels reports whether they are others than before.
func (r *Follower) setLabels(all []string) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := append([]string{}, cluster.EngineLabels(all)...) // not nil
	changed = r.labels == nil || !slices.Equal(list, r.labels)
	r.labels = list
	return changed
}

func (r *Follower) askEngine(ctx context.Context) {
	for ctx.Err() == nil {
		if s, err := r.cfg.Engine(ctx); err == nil {
			r.setPools(s.Pools)
			if r.setLabels(s.Labels) && r.cfg.Proven(ctx) {
				if err := r.cfg.Describe(); err != nil && !errors.Is(err, cluster.ErrForgotten) && ctx.Err() == nil {
					r.log.Warn("tell the other hosts the labels of this one's Docker", "err", err)
				}
			}
		} else {
			r.log.Debug("ask docker for its settings", "err", err)
		}
		sleep(ctx, engineEvery)
	}
}

// tell keeps the part of this host's Node record, and has the driver look what it can
// make now.
func (r *Follower) tell(ctx context.Context) {
	if !r.cfg.Proven(ctx) {
		return
	}
	var said []reach.Finding
	var seen *cluster.Snapshot
	var here <-chan struct{} // as it was when seen was looked at
	for ctx.Err() == nil {
		reached, changed := r.Watch(), r.cfg.Watch()
		snap := r.cfg.Snapshot()
		if here == reached && !concerns(seen, snap) && time.Since(r.cfg.Started) > 2*dockerPatience {
			seen = snap
			r.wait(ctx, reached, changed)
			continue
		}
		seen, here = snap, reached
		if err := r.cfg.Describe(); err != nil && !errors.Is(err, cluster.ErrForgotten) && ctx.Err() == nil {
			r.log.Warn("tell the other hosts what this one reaches", "err", err)
		}
		found := r.findings(snap)
		r.logFindings(said, found)
		if !slices.Equal(said, found) {
			r.cfg.Look()
		}
		said = found
		r.wait(ctx, reached, changed)
	}
}

// wait waits until something has changed, and then a little longer.
func (r *Follower) wait(ctx context.Context, reached, changed <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-reached:
	case <-changed:
	}
	sleep(ctx, recordPause)
}

// concerns reports whether hosts or subnets are others than they were, as endpoints are
// all the time.
func concerns(before, now *cluster.Snapshot) bool {
	keys, known := now.Since(before)
	return !known || slices.ContainsFunc(keys, func(k cluster.Key) bool {
		return k.Kind == cluster.KindNode || k.Kind == cluster.KindSubnet
	})
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// findings are the subnets that hosts cannot take.
func (r *Follower) findings(snap *cluster.Snapshot) []reach.Finding {
	return r.model(snap).Findings()
}

func (r *Follower) logFindings(before, now []reach.Finding) {
	for _, f := range now {
		if !slices.Contains(before, f) {
			r.log.Warn(f.What(), "do", f.Do())
		}
	}
	for _, f := range before {
		if !slices.Contains(now, f) {
			r.log.Info("no more so: " + f.What())
		}
	}
}

// maxFindings is how many problems of a kind status lists by themselves.
const maxFindings = 10

// Problems are the subnets that hosts cannot take, the ranges of hosts' own addresses, and routing rules
// that come before grapevine's.
func (r *Follower) Problems(snap *cluster.Snapshot) []api.Problem {
	return slices.Concat(r.findingProblems(snap), r.hostRangeProblems(snap), r.routesTaken(snap), r.secureTaken(snap))
}

// findingProblems are the subnets that hosts cannot take, and why.
func (r *Follower) findingProblems(snap *cluster.Snapshot) (list []api.Problem) {
	model := r.model(snap)
	found, full := model.Findings(), model.Full()
	for _, f := range full[:min(len(full), maxFindings)] {
		list = append(list, api.Problem{Code: api.SubnetBarred, What: f.What(), Do: f.Do()})
	}
	said := len(list)
	for _, f := range found[:min(len(found), maxFindings)] {
		list = append(list, api.Problem{Code: api.SubnetBarred, What: f.What(), Do: f.Do()})
	}
	if more := len(found) - (len(list) - said); more > 0 {
		list = append(list, api.Problem{Code: api.SubnetBarred, What: fmt.Sprintf("and %d more cannot be taken by a host", more), Do: "see `grapevine networks`"})
	}
	return list
}

// Note says of networks which hosts cannot take their subnets.
func (r *Follower) Note(networks []api.Network, snap *cluster.Snapshot) []api.Network {
	at := map[string]int{}
	for i, n := range networks {
		at[n.Name] = i
	}
	for _, f := range r.findings(snap) {
		if i, ok := at[f.Network]; ok {
			networks[i].Notes = append(networks[i].Notes, f.Note())
		}
	}
	return networks
}
