package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/diagnose/doctor"
	"github.com/grapevine-net/grapevine/diagnose/watch"
	"github.com/grapevine-net/grapevine/driver/problems"
	"github.com/grapevine-net/grapevine/leisure"
	"github.com/grapevine-net/grapevine/membership"
	services "github.com/grapevine-net/grapevine/service/edit"
	"github.com/grapevine-net/grapevine/trim"
)

// Task is one thing that an agent does, or looks after.
type Task struct {
	Name string
	Run  func(context.Context) error // nil: there is nothing to do but to look
	// Problems says what is wrong with it, and what to do; nil: nothing ever is.
	Problems func(context.Context, look) []api.Problem
	// Doctor is the subject under which doctor lists the same problems. "": it finds out by itself.
	Doctor string
	Fine   string // what doctor says where there are none
}

// look is what problems are looked for in: the same for all tasks.
type look struct {
	snap  *cluster.Snapshot
	nodes []api.Node
	gone  problems.Gone
}

// dockers are tasks that are for Docker, or for containers that run here.
var dockers = []string{"plugin", "engine", "docker", "forwarding"}

// tasks are all that an agent does, in the order in which status tells their problems: the most
// serious first.
func (a *Agent) tasks() []Task {
	member := a.member.Tasks()
	list := []Task{
		{Name: "membership", Run: member["membership"], Doctor: "agent",
			Problems: func(_ context.Context, l look) []api.Problem { return a.member.Problems(l.snap) },
			Fine:     fmt.Sprintf("%s runs version %s, up %s", a.cfg.Name, a.version, time.Since(a.started).Round(time.Second))},
		{Name: "disk", Run: member["disk"], Doctor: "agent",
			Problems: func(context.Context, look) []api.Problem { return a.member.Disk.Problems() }},
		{Name: "keys", Run: member["keys"], Doctor: "key",
			Problems: func(ctx context.Context, l look) []api.Problem {
				// Nobody joins a host without Docker; one that knows of others has their key.
				alone := a.cfg.Edge()
				for n := range cluster.All[cluster.Node](l.snap) {
					alone = alone && n.ID == a.self()
				}
				return membership.Strangers(a.gossip, alone, a.cfg.Port, func() string { return a.installed.SetCommand(ctx, "GRAPEVINE_KEY=KEY") })
			},
			Fine: "nobody with another gossip key has called of late"},
		{Name: "gossip", Run: member["gossip"], Doctor: "agent",
			Problems: func(context.Context, look) []api.Problem { return a.member.Refused() }},
		{Name: "replica", Run: member["replica"], Doctor: "hosts",
			Problems: func(_ context.Context, l look) []api.Problem { return a.member.Forgetter.Suspicions(l.snap) }},
		{Name: "broadcast", Run: member["broadcast"]},
		{Name: "restored", Run: member["restored"]},
		{Name: "memory", Run: func(ctx context.Context) error { return trim.Run(ctx, gcPercent()) }},
		{Name: "processors", Run: leisure.Run},
		{Name: "moved", Run: member["moved"]},
		{Name: "forgotten", Run: member["forgotten"]},
		{Name: "reap", Run: member["reap"]},
		{Name: "ipam", Run: member["ipam"]},
		{Name: "autoforget", Run: member["autoforget"],
			Problems: func(_ context.Context, l look) []api.Problem { return a.silence.Problems(l.nodes) }},
		{Name: "contacts", Run: a.contacts.Run,
			Problems: func(_ context.Context, l look) []api.Problem { return a.contacts.Problems(l.nodes) }},
		{Name: "name", Run: a.watchName, Doctor: "hosts",
			Problems: func(ctx context.Context, l look) []api.Problem { return a.differences(ctx, l.nodes) }},
		{Name: "reach", Run: a.reached.Run, Doctor: "addresses",
			Problems: func(_ context.Context, l look) []api.Problem { return a.reached.Problems(l.snap) }},
		{Name: "underlay", Run: a.moves.Run, Doctor: "underlay",
			Problems: func(_ context.Context, l look) []api.Problem { return a.plane.WrongSources(l.nodes) }},
		{Name: "switch", Run: a.plane.Run, Doctor: "switch",
			Problems: func(ctx context.Context, l look) []api.Problem {
				return slices.Concat(a.plane.Problems(ctx, l.gone.Endpoints), l.gone.Problems, a.plane.AbsentSources(l.snap))
			}},
		{Name: "encryption", Doctor: "encryption",
			Run: a.ike.Run,
			Problems: func(_ context.Context, l look) []api.Problem {
				return slices.Concat(a.ike.Problems(l.snap), a.plane.EncryptionProblems(l.snap))
			}, Fine: encrypted(a.plane.Encryption())},
		{Name: "clients", Run: a.clients.run, Doctor: "clients",
			Problems: func(_ context.Context, l look) []api.Problem { return a.clients.problems(l) }, Fine: a.clients.State()},
		{Name: "rival", Run: a.plane.WatchRival},
		{Name: "forwarding", Doctor: "underlay",
			Problems: func(_ context.Context, l look) []api.Problem {
				return slices.Concat(watch.InVRF(a.underlay.Interface), watch.ForwardingOff(a.underlay.Interface), watch.IPv6Off(a.underlay.Interface, a.self(), l.snap), watch.IPv6Narrow(a.wire().MTU, l.snap))
			}},
		{Name: "firewall", Run: a.firewall.Run,
			Problems: func(_ context.Context, l look) []api.Problem { return a.firewall.Problems(l.nodes) }},
		{Name: "paths", Run: a.hellos.Run,
			Problems: func(_ context.Context, l look) []api.Problem { return a.hellos.Problems(l.nodes) }},
		{Name: "encrypted paths", Doctor: "encryption",
			Problems: func(_ context.Context, l look) []api.Problem { return a.hellos.Inside.Problems(l.nodes) }},
		{Name: "plugin", Run: a.servePlugin,
			Problems: func(context.Context, look) []api.Problem { return a.sockets.Problems() }},
		{Name: "metrics", Run: a.metricsPort.Run, Doctor: "metrics",
			Problems: func(context.Context, look) []api.Problem { return a.metricsPort.Problems() }},
		{Name: "capture", Run: a.captures.Run},
		{Name: "mirrors", Run: a.mirrors.Run},
		{Name: "traffic", Run: a.traffic.Run},
		{Name: "ipfix", Run: a.flows.Run},
		{Name: "policy log", Run: a.audit.Run},
		{Name: "engine", Run: a.engine.Run,
			Problems: func(context.Context, look) []api.Problem { return a.engine.Problems() }},
		{Name: "docker", Run: a.driver.Watch, Doctor: "ports",
			Problems: func(ctx context.Context, l look) []api.Problem { return a.driverProblems(ctx, l.snap) }},
		{Name: "policy", Run: policing{a}.tell, Doctor: "policies",
			Problems: func(_ context.Context, l look) []api.Problem {
				return policing{a}.desk().Problems(l.snap)
			}},
		{Name: "former addresses", Run: a.former.Run, Doctor: "policies",
			Problems: func(_ context.Context, l look) []api.Problem { return a.former.Problems(l.snap) }},
		{Name: "realms", Doctor: "networks",
			Problems: func(_ context.Context, l look) []api.Problem { return realms(a).Problems(l.snap) }},
		{Name: "names", Run: a.naming.resolver.Run},
		{Name: "haste", Run: a.naming.haste.Run},
		{Name: "services", Run: a.naming.services.Run, Doctor: "services",
			Problems: func(_ context.Context, l look) []api.Problem {
				return slices.Concat(services.Failing(l.snap, a.naming.services.Failed()), a.naming.desk(a.alloc).Problems(l.snap))
			}},
		{Name: "multicast", Run: a.groups.Run, Doctor: "multicast",
			Problems: func(_ context.Context, l look) []api.Problem { return a.groups.Problems(l.snap) }},
		{Name: "expose", Run: a.exposes.Run, Doctor: "services",
			Problems: func(_ context.Context, l look) []api.Problem { return a.exposes.Problems(l.snap) }},
		{Name: "egress", Doctor: "egress",
			Problems: func(_ context.Context, l look) []api.Problem { return leaving{a}.desk().Problems(l.snap) }},
		{Name: "bgp", Run: a.announcer.Run, Doctor: "bgp",
			Problems: func(context.Context, look) []api.Problem { return a.announcer.Problems() }},
		{Name: "systemd", Run: func(ctx context.Context) error {
			a.plane.Guard().Wait(ctx)
			a.ready()
			return nil
		}},
	}
	if a.edge == nil {
		return list
	}
	list = slices.DeleteFunc(list, func(t Task) bool { return slices.Contains(dockers, t.Name) })
	return append(list, Task{Name: "edge", Run: a.edge.Run, Doctor: "edge", Problems: func(context.Context, look) []api.Problem { return a.edge.Problems() }, Fine: a.edge.Fine()})
}

// problems lists what is wrong with all tasks.
func (a *Agent) problems(ctx context.Context, l look) []api.Problem {
	if a.member.Leaver.Left() {
		return []api.Problem{{Code: api.HostLeft, What: "this host has left the cluster", Do: membership.BackByJoin}}
	}
	list := []api.Problem{}
	for _, t := range a.tasks() {
		if t.Problems != nil {
			list = append(list, t.Problems(ctx, l)...)
		}
	}
	return list
}

// checks are what doctor says of the tasks.
func (a *Agent) checks(ctx context.Context, l look) (list []api.Check) {
	for _, t := range a.tasks() {
		if t.Doctor != "" {
			list = append(list, doctor.Problems(t.Doctor, t.Fine, t.Problems(ctx, l))...)
		}
	}
	return list
}

// work runs the tasks until one fails or ctx ends.
func (a *Agent) work(ctx context.Context) error {
	tasks, ctx := errgroup.WithContext(ctx)
	for _, t := range a.tasks() {
		if t.Run == nil {
			continue
		}
		tasks.Go(func() error {
			// One that says only that it was told to end has not failed: a host that leaves would not come to rest.
			if err := t.Run(ctx); err != nil && (ctx.Err() == nil || !errors.Is(err, context.Canceled)) {
				return fmt.Errorf("%s: %w", t.Name, err)
			}
			return nil
		})
	}
	return tasks.Wait()
}

// servePlugin answers Docker, which asks its managed plugins before it starts containers.
func (a *Agent) servePlugin(ctx context.Context) error {
	calls := a.sockets.Calls.Lend()
	a.plane.Guard().Wait(ctx)
	a.member.Quarantine.WaitMoved(ctx)
	a.member.Rejoiner.WaitRejoined(ctx)
	return a.plugin.Serve(ctx, calls)
}
