package agent

import (
	"context"
	"maps"
	"runtime"
	"runtime/metrics"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/diagnose/watch"
	"github.com/grapevine-net/grapevine/driver/problems"
	"github.com/grapevine-net/grapevine/gossip"
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
	hung := switchHangs(ctx, a.plane)
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	snap := a.replica.Snapshot()
	nodes := a.hellos.Paths(a.member.Nodes(snap))
	s := api.Status{
		Version: a.version, Node: string(a.self()), Name: a.cfg.Name, Cluster: a.gossip.ClusterID(), VTEP: a.underlay.Addr, Since: time.Now().Add(-time.Since(a.started)),
		Driver: a.installed.DriverName(ctx), OVS: a.plane.Kind(), Datapath: string(a.plane.Datapath()), FastPath: a.plane.FastPath(), Encryption: a.plane.Encryption(), MTU: a.underlay.MTU, VXLANPort: a.cfg.VXLANPort, Encap: a.cfg.Encapsulation().Mark(),
		Refused: a.refused(),
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
	s.Problems, s.Notes = a.problems(ctx, look{snap, nodes, unlinked}), slices.Concat(notes, edit.Notes(snap), realm.Notes(snap), a.naming.desk(a.alloc).Notes())
	a.edge.Tell(&s)
	s.Notes = slices.Concat(a.mirrors.Notes(), s.Notes, ipfix.Notes(a.cfg.IPFIX, a.cfg.Traffic))
	if p, hung := hung(); hung {
		s.Problems = append(s.Problems, p)
	}
	return s, nil
}

// switchHangs begins to ask the switch for a sign of life, and returns what waits for the answer.
func switchHangs(ctx context.Context, of *plane.Plane) func() (p api.Problem, hung bool) {
	var p api.Problem
	var hung bool
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		p, hung = of.Hung(ctx)
	}()
	return func() (api.Problem, bool) { <-asked; return p, hung }
}

func process() api.Process {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	return api.Process{Goroutines: runtime.NumGoroutine(), Heap: heap[0].Value.Uint64()}
}

// refused counts what gossip refused, but for what is part of every start, and
// the records that were.
func (a *Agent) refused() map[string]uint64 {
	stats := a.gossip.Stats()
	delete(stats, gossip.RefusedNoCluster)
	if stats == nil {
		stats = map[string]uint64{}
	}
	maps.Copy(stats, a.replica.Refused())
	return stats
}

// differences finds what is to be the same on all hosts, or another on each, and is not.
func (a *Agent) differences(ctx context.Context, nodes []api.Node) []api.Problem {
	list := watch.Differences(nodes, a.cfg.Encapsulation(), a.cfg.VXLANPort)
	if namesakes := membership.Namesakes(nodes, ""); len(namesakes) > 0 {
		list = append(list, membership.Namesakes(nodes, a.installed.SetCommand(ctx, "GRAPEVINE_NAME=NAME"))...)
	}
	return list
}

// encrypted is what doctor says where what goes to other hosts is encrypted; "": it is not.
func encrypted(how string) string {
	if how != "" {
		return "what containers send to those of other hosts: " + how
	}
	return ""
}
