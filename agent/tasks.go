package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/agent/task"
	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/diagnose/watch"
	"github.com/grapevine-net/grapevine/leisure"
	"github.com/grapevine-net/grapevine/membership"
	"github.com/grapevine-net/grapevine/overlay/plane"
	services "github.com/grapevine-net/grapevine/service/edit"
	"github.com/grapevine-net/grapevine/trim"
)

// dockers are tasks that are for Docker, or for containers that run here.
var dockers = []string{"plugin", "engine", "docker", "forwarding"}

// tasks are all that an agent does, in the order in which status tells their problems: the most
// serious first.
func (a *Agent) tasks() task.List {
	member := a.member.Tasks()
	list := task.List{
		{Name: "membership", Run: member["membership"], Doctor: "agent",
			Problems: func(_ context.Context, l task.Look) []api.Problem { return a.member.Problems(l.Snapshot) },
			Fine:     fmt.Sprintf("%s runs version %s, up %s", a.cfg.Name, a.version, time.Since(a.started).Round(time.Second))},
		{Name: "disk", Run: member["disk"], Doctor: "agent",
			Problems: func(context.Context, task.Look) []api.Problem { return a.member.Disk.Problems() }},
		{Name: "keys", Run: member["keys"], Doctor: "key",
			Problems: func(ctx context.Context, l task.Look) []api.Problem {
				return a.member.Strangers(l.Snapshot, func() string { return a.installed.SetCommand(ctx, "GRAPEVINE_KEY=KEY") })
			},
			Fine: "nobody with another gossip key has called of late"},
		{Name: "gossip", Run: member["gossip"], Doctor: "agent",
			Problems: func(context.Context, task.Look) []api.Problem { return a.member.Refused() }},
		{Name: "replica", Run: member["replica"], Doctor: "hosts",
			Problems: func(_ context.Context, l task.Look) []api.Problem { return a.member.Forgetter.Suspicions(l.Snapshot) }},
		{Name: "broadcast", Run: member["broadcast"]},
		{Name: "restored", Run: member["restored"]},
		{Name: "memory", Run: func(ctx context.Context) error { return trim.Run(ctx, gcPercent()) }},
		{Name: "processors", Run: leisure.Run},
		{Name: "moved", Run: member["moved"]},
		{Name: "forgotten", Run: member["forgotten"]},
		{Name: "reap", Run: member["reap"]},
		{Name: "ipam", Run: member["ipam"]},
		{Name: "autoforget", Run: member["autoforget"],
			Problems: func(_ context.Context, l task.Look) []api.Problem { return a.silence.Problems(l.Nodes) }},
		{Name: "contacts", Run: a.contacts.Run,
			Problems: func(_ context.Context, l task.Look) []api.Problem { return a.contacts.Problems(l.Nodes) }},
		{Name: "name", Run: a.watchName, Doctor: "hosts",
			Problems: func(ctx context.Context, l task.Look) []api.Problem { return a.differences(ctx, l.Nodes) }},
		{Name: "reach", Run: a.reached.Run, Doctor: "addresses",
			Problems: func(_ context.Context, l task.Look) []api.Problem { return a.reached.Problems(l.Snapshot) }},
		{Name: "underlay", Run: a.moves.Run, Doctor: "underlay",
			Problems: func(_ context.Context, l task.Look) []api.Problem { return a.plane.WrongSources(l.Nodes) }},
		{Name: "switch", Run: a.plane.Run, Doctor: "switch",
			Problems: func(ctx context.Context, l task.Look) []api.Problem {
				return slices.Concat(a.plane.Problems(ctx, l.Gone.Endpoints), l.Gone.Problems, a.plane.AbsentSources(l.Snapshot))
			}},
		{Name: "encryption", Doctor: "encryption",
			Run: a.ike.Run,
			Problems: func(_ context.Context, l task.Look) []api.Problem {
				return slices.Concat(a.ike.Problems(l.Snapshot), a.plane.EncryptionProblems(l.Snapshot))
			}, Fine: plane.Encrypted(a.plane.Encryption())},
		{Name: "clients", Run: func(ctx context.Context) error { return a.clients.Run(ctx, a.mayServe) }, Doctor: "clients",
			Problems: func(_ context.Context, l task.Look) []api.Problem { return a.clients.Problems(l.Snapshot) }, Fine: a.clients.State()},
		{Name: "rival", Run: a.plane.WatchRival},
		{Name: "forwarding", Doctor: "underlay",
			Problems: func(_ context.Context, l task.Look) []api.Problem {
				return slices.Concat(watch.InVRF(a.underlay.Interface), watch.ForwardingOff(a.underlay.Interface), watch.IPv6Off(a.underlay.Interface, a.self(), l.Snapshot), watch.IPv6Narrow(a.wire().MTU, l.Snapshot))
			}},
		{Name: "firewall", Run: a.firewall.Run,
			Problems: func(_ context.Context, l task.Look) []api.Problem { return a.firewall.Problems(l.Nodes) }},
		{Name: "paths", Run: a.hellos.Run,
			Problems: func(_ context.Context, l task.Look) []api.Problem { return a.hellos.Problems(l.Nodes) }},
		{Name: "encrypted paths", Doctor: "encryption",
			Problems: func(_ context.Context, l task.Look) []api.Problem { return a.hellos.Inside.Problems(l.Nodes) }},
		{Name: "plugin", Run: a.servePlugin,
			Problems: func(context.Context, task.Look) []api.Problem { return a.sockets.Problems() }},
		{Name: "metrics", Run: a.desks.metricsPort.Run, Doctor: "metrics",
			Problems: func(context.Context, task.Look) []api.Problem { return a.desks.metricsPort.Problems() }},
		{Name: "capture", Run: a.desks.captures.Run},
		{Name: "mirrors", Run: a.desks.mirrors.Run},
		{Name: "traffic", Run: a.desks.traffic.Run},
		{Name: "ipfix", Run: a.desks.flows.Run},
		{Name: "policy log", Run: a.desks.audit.Run},
		{Name: "engine", Run: a.engine.Run,
			Problems: func(context.Context, task.Look) []api.Problem { return a.engine.Problems() }},
		{Name: "docker", Run: a.driver.Watch, Doctor: "ports",
			Problems: func(ctx context.Context, l task.Look) []api.Problem { return a.driverProblems(ctx, l.Snapshot) }},
		{Name: "policy", Doctor: "policies",
			Run: func(ctx context.Context) error {
				plane.TellEnforced(ctx, a.plane.Overlay(), a.member.Joiner.DescribeAgain)
				return nil
			},
			Problems: func(_ context.Context, l task.Look) []api.Problem {
				return a.desks.policies().Problems(l.Snapshot)
			}},
		{Name: "former addresses", Run: a.former.Run, Doctor: "policies",
			Problems: func(_ context.Context, l task.Look) []api.Problem { return a.former.Problems(l.Snapshot) }},
		{Name: "realms", Doctor: "networks",
			Problems: func(_ context.Context, l task.Look) []api.Problem { return a.desks.realms().Problems(l.Snapshot) }},
		{Name: "names", Run: a.naming.resolver.Run},
		{Name: "haste", Run: a.naming.haste.Run},
		{Name: "services", Run: a.naming.services.Run, Doctor: "services",
			Problems: func(_ context.Context, l task.Look) []api.Problem {
				return slices.Concat(services.Failing(l.Snapshot, a.naming.services.Failed()), a.naming.desk(a.alloc).Problems(l.Snapshot))
			}},
		{Name: "multicast", Run: a.groups.Run, Doctor: "multicast",
			Problems: func(_ context.Context, l task.Look) []api.Problem { return a.groups.Problems(l.Snapshot) }},
		{Name: "expose", Run: a.exposes.Run, Doctor: "services",
			Problems: func(_ context.Context, l task.Look) []api.Problem { return a.exposes.Problems(l.Snapshot) }},
		{Name: "egress", Doctor: "egress",
			Problems: func(_ context.Context, l task.Look) []api.Problem { return a.desks.egresses().Problems(l.Snapshot) }},
		{Name: "bgp", Run: a.announcer.Run, Doctor: "bgp",
			Problems: func(context.Context, task.Look) []api.Problem { return a.announcer.Problems() }},
		{Name: "systemd", Run: func(ctx context.Context) error {
			a.plane.Guard().Wait(ctx)
			ready(a.log)
			return nil
		}},
	}
	if a.edge == nil {
		return list
	}
	return append(list.Without(dockers...), task.Task{Name: "edge", Run: a.edge.Run, Doctor: "edge", Problems: func(context.Context, task.Look) []api.Problem { return a.edge.Problems() }, Fine: a.edge.Fine()})
}

// problems lists what is wrong with all tasks.
func (a *Agent) problems(ctx context.Context, l task.Look) []api.Problem {
	if a.member.Leaver.Left() {
		return []api.Problem{{Code: api.HostLeft, What: "this host has left the cluster", Do: membership.BackByJoin}}
	}
	return a.tasks().Problems(ctx, l)
}

// servePlugin answers Docker, which asks its managed plugins before it starts containers.
func (a *Agent) servePlugin(ctx context.Context) error {
	calls := a.sockets.Calls.Lend()
	a.mayServe(ctx)
	return a.plugin.Serve(ctx, calls)
}
