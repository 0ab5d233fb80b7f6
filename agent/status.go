package agent

import (
	"context"
	"runtime"
	"runtime/metrics"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/agent/task"
	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/diagnose/watch"
	"github.com/grapevine-net/grapevine/driver/problems"
	"github.com/grapevine-net/grapevine/membership"
	"github.com/grapevine-net/grapevine/observe/ipfix"
	"github.com/grapevine-net/grapevine/overlay/plane"
	"github.com/grapevine-net/grapevine/policy/edit"
	"github.com/grapevine-net/grapevine/realm"
)

// statusPatience is how long status waits for the switch and for Docker, together.
const statusPatience = 4 * time.Second

// status answers GET /v1/status. It waits neither for the disk nor for anything that does:
// what hangs is what it is to tell.
func (a *Agent) status(ctx context.Context) (api.Status, error) {
	hung := plane.Hangs(ctx, a.plane.Switch)
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	snap := a.replica.Snapshot()
	nodes := a.hellos.Paths(a.member.Nodes(snap))
	s := api.Status{
		Version: a.version, Node: string(a.self()), Name: a.cfg.Name, Cluster: a.gossip.ClusterID(), VTEP: a.underlay.Addr, Since: time.Now().Add(-time.Since(a.started)),
		Driver: a.installed.DriverName(ctx), OVS: a.plane.Kind(), Datapath: string(a.plane.Datapath()), FastPath: a.plane.FastPath(), Encryption: a.plane.Encryption(), MTU: a.underlay.MTU, VXLANPort: a.cfg.VXLANPort, Encap: a.cfg.Encapsulation().Mark(),
		Refused: a.member.RefusedCounts(),
		Aside:   membership.SetAside(a.cfg.State), Names: a.naming.stats(), Leases: a.alloc.Held(), Process: process(),
	}
	s.Hosts, s.Tried = view.Alive(nodes)
	s.Kernel = a.plane.KernelCounters()
	s.Networks = len(view.Networks(snap))
	s.Shared = view.Shared(snap)
	s.Endpoints.Part = a.member.Attached()
	s.Endpoints.All = len(view.Endpoints(snap))
	foreign, _ := a.plane.Overlay().Foreign(ctx) // an error of a switch that is down, the problems tell by themselves
	s.Foreign = foreign
	unlinked, notes := problems.Unlinked(ctx, a.driver, a.plane.OwnGone)
	s.Problems, s.Notes = a.problems(ctx, task.Look{Snapshot: snap, Nodes: nodes, Gone: unlinked}), slices.Concat(notes, edit.Notes(snap), realm.Notes(snap), a.naming.desk(a.alloc).Notes())
	a.edge.Tell(&s)
	s.Notes = slices.Concat(a.desks.mirrors.Notes(), s.Notes, ipfix.Notes(a.cfg.IPFIX, a.cfg.Traffic))
	s.Problems = causeFirst(hung(), s.Problems)
	return s, nil
}

// causeFirst puts a switch that hangs before all else, and leaves out what comes of it: that nothing arrives through the tunnel
// is no firewall's doing then.
func causeFirst(hung, list []api.Problem) []api.Problem {
	if len(hung) == 0 {
		return list
	}
	return append(hung, slices.DeleteFunc(list, func(p api.Problem) bool {
		return p.Code == api.EncapLost || p.Code == api.EncapNarrow || p.Code == api.EncapLossy
	})...)
}

func process() api.Process {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	return api.Process{Goroutines: runtime.NumGoroutine(), Heap: heap[0].Value.Uint64()}
}

// differences finds what is to be the same on all hosts, or another on each, and is not.
func (a *Agent) differences(ctx context.Context, nodes []api.Node) []api.Problem {
	rename := func() string { return a.installed.SetCommand(ctx, "GRAPEVINE_NAME=NAME") }
	return append(watch.Differences(nodes, a.cfg.Encapsulation(), a.cfg.VXLANPort), membership.Namesakes(nodes, rename)...)
}
