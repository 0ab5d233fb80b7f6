package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/reach"
)

// reached is what this host reaches by itself (package reach), as the rooms of the
// agent ask for it.
type reached struct {
	*reach.Watcher
	a *Agent
	// answered: Docker has said what it has.
	answered atomic.Bool

	mu    sync.Mutex // what Docker has said
	nets  []reach.Thing
	pools []reach.Thing
}

func (a *Agent) openReach() (err error) {
	w, err := reach.Open(gateway.Port, gateway.Table, a.log.With("room", "reach"))
	if err != nil {
		return err
	}
	a.reached = &reached{Watcher: w, a: a}
	return nil
}

// reachModel is what is known of a snapshot.
func (a *Agent) reachModel(snap *cluster.Snapshot) reach.Model {
	return reach.Model{Self: a.self(), Here: a.things(), Snap: snap, CIDRs: a.member.CIDRs()}
}

// things are what this host has; nil while that is not looked at.
func (a *Agent) things() []reach.Thing {
	if a.reached == nil {
		return nil
	}
	return a.reached.Things()
}

// reachNow is what is known now, for the allocator.
func (a *Agent) reachNow() ipam.Reach { return a.reachModel(a.replica.Snapshot()) }

// Judge implements overlay.Reach.
func (r *reached) Judge(snap *cluster.Snapshot) (barred map[netip.Prefix]bool, clear []netip.Prefix) {
	m := r.a.reachModel(snap)
	barred = map[netip.Prefix]bool{}
	for p := range m.Barred(snap.Subnets(), false) {
		barred[p] = true
	}
	for p := range r.a.barredHosts(snap) {
		barred[p] = true
	}
	return barred, m.Clear(r.a.cfg.CIDR4)
}

// barred says why this host cannot take subnets, for the driver.
func (a *Agent) barred(subnets []netip.Prefix) map[netip.Prefix]error {
	return a.reachNow().Barred(subnets, false)
}

// setNetworks takes what Docker has now beside the cluster's networks.
func (r *reached) setNetworks(others, rivals []docker.Network) {
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

func (r *reached) setPools(list []netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pools = nil
	for _, p := range list {
		r.pools = append(r.pools, reach.Thing{Prefix: p, Kind: reach.Pool})
	}
	r.SetDocker(slices.Concat(r.nets, r.pools))
}

const (
	// poolsEvery is how often Docker is asked for its address pools, which change only as it
	// is started anew.
	poolsEvery = time.Minute
	// dockerPatience is how long an agent that begins waits for Docker before it tells the
	// others what this host reaches: until then it is what it was.
	dockerPatience = 20 * time.Second
	// recordPause is the least time between two Node records: Docker's networks may come and go
	// all the time.
	recordPause = time.Second
)

// followReach follows what this host reaches until ctx ends: by the kernel's words, and Docker's, and
// tells the other hosts.
func (a *Agent) followReach(ctx context.Context) error {
	go a.askPools(ctx)
	go a.tellReach(ctx)
	return a.reached.Run(ctx)
}

// reaches is what this host's record is to say that it reaches.
func (a *Agent) reaches(snap *cluster.Snapshot) []cluster.Reach {
	was, described := cluster.Get[cluster.Node](snap, string(a.self()))
	if described && a.reached != nil && !a.reached.answered.Load() && time.Since(a.started) < dockerPatience {
		return was.Reaches
	}
	return reach.Record(a.things(), snap.Subnets(), a.member.CIDRs())
}

func (a *Agent) askPools(ctx context.Context) {
	for ctx.Err() == nil {
		if list, err := a.docker.Pools(ctx); err == nil {
			a.reached.setPools(list)
		} else {
			a.log.Debug("ask for docker's address pools", "err", err)
		}
		wait(ctx, poolsEvery)
	}
}

// tellReach keeps the part of this host's Node record, and has the driver look what it can
// make now.
func (a *Agent) tellReach(ctx context.Context) {
	if !a.member.WaitProven(ctx) {
		return
	}
	var said []reach.Finding
	var seen *cluster.Snapshot
	var here <-chan struct{} // as it was when seen was looked at
	for ctx.Err() == nil {
		reached, changed := a.reached.Watch(), a.replica.Watch()
		snap := a.replica.Snapshot()
		if here == reached && !concernsReach(seen, snap) && time.Since(a.started) > 2*dockerPatience {
			seen = snap
			a.waitReach(ctx, reached, changed)
			continue
		}
		seen, here = snap, reached
		if err := a.member.DescribeAgain(); err != nil && !errors.Is(err, cluster.ErrForgotten) && ctx.Err() == nil {
			a.log.Warn("tell the other hosts what this one reaches", "err", err)
		}
		found := a.findings(snap)
		a.logFindings(said, found)
		if !slices.Equal(said, found) {
			a.driver.Look()
		}
		said = found
		a.waitReach(ctx, reached, changed)
	}
}

// waitReach waits until something has changed, and then a little longer.
func (a *Agent) waitReach(ctx context.Context, reached, changed <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-reached:
	case <-changed:
	}
	wait(ctx, recordPause)
}

// concernsReach reports whether hosts or subnets are others than they were, as endpoints are
// all the time.
func concernsReach(before, now *cluster.Snapshot) bool {
	keys, known := now.Since(before)
	return !known || slices.ContainsFunc(keys, func(k cluster.Key) bool {
		return k.Kind == cluster.KindNode || k.Kind == cluster.KindSubnet
	})
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// findings are the subnets that hosts cannot take.
func (a *Agent) findings(snap *cluster.Snapshot) []reach.Finding {
	return a.reachModel(snap).Findings()
}

func (a *Agent) logFindings(before, now []reach.Finding) {
	for _, f := range now {
		if !slices.Contains(before, f) {
			a.log.Warn(f.What(), "do", f.Do())
		}
	}
	for _, f := range before {
		if !slices.Contains(now, f) {
			a.log.Info("no more so: " + f.What())
		}
	}
}

// maxFindings is how many problems of a kind status lists by themselves.
const maxFindings = 10

// reachProblems are the subnets that hosts cannot take, and why.
func (a *Agent) reachProblems(snap *cluster.Snapshot) (list []api.Problem) {
	model := a.reachModel(snap)
	found, full := model.Findings(), model.Full()
	for _, f := range full[:min(len(full), maxFindings)] {
		list = append(list, api.Problem{Code: api.SubnetBarred, What: f.What(), Do: f.Do()})
	}
	said := len(list)
	for _, f := range found[:min(len(found), maxFindings)] {
		list = append(list, api.Problem{Code: api.SubnetBarred, What: f.What(), Do: f.Do()})
	}
	if more := len(found) - (len(list) - said); more > 0 {
		list = append(list, api.Problem{Code: api.SubnetBarred, What: fmt.Sprintf("and %d more subnets cannot be taken by a host", more), Do: "see `grapevine networks`"})
	}
	return list
}

// networks answers GET /v1/networks.
func (a *Agent) networks(networks []api.Network, snap *cluster.Snapshot) []api.Network {
	at := map[string]int{}
	for i, n := range networks {
		at[n.Name] = i
	}
	for _, f := range a.findings(snap) {
		if i, ok := at[f.Network]; ok {
			networks[i].Notes = append(networks[i].Notes, f.Note())
		}
	}
	return networks
}
