package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// statusPatience is how long status waits for the switch and for Docker, together.
const statusPatience = 4 * time.Second

// status answers GET /v1/status. It waits neither for the disk nor for anything that does:
// what hangs is what it is to tell.
func (a *Agent) status(ctx context.Context) (api.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	snap := a.replica.Snapshot()
	nodes := a.nodes(snap)
	s := api.Status{
		Version: a.version, Node: a.id.Node, Name: a.cfg.Name, Cluster: a.gossip.ClusterID(), VTEP: a.underlay.Addr, Since: time.Now().Add(-time.Since(a.started)),
		Driver: a.driverName(ctx), OVS: a.vswitch.kind(), Datapath: string(a.vswitch.datapath()), FastPath: a.vswitch.fast.status(), MTU: a.underlay.MTU, VXLANPort: a.cfg.VXLANPort,
		Hosts: api.Count{All: len(nodes)}, Refused: a.refused(),
		Aside: setAside(a.cfg.State), Names: a.resolver(), Leases: a.alloc.Held(), Process: process(),
	}
	for _, n := range nodes {
		if n.Alive {
			s.Hosts.Part++
		}
	}
	s.Kernel = a.vswitch.kernelCounters()
	s.Networks = len(view.Networks(snap))
	s.Shared = view.Shared(snap)
	s.Endpoints.Part = a.attached()
	s.Endpoints.All = len(view.Endpoints(snap))
	foreign, err := a.vswitch.overlay.Foreign(ctx) // an error of a switch that is down, the problems tell by themselves
	s.Foreign = foreign
	unlinked, notes := a.unlinked(ctx)
	s.Problems, s.Notes = a.problems(ctx, snap, nodes, unlinked), notes
	if err != nil && ctx.Err() != nil {
		s.Problems = append(s.Problems, a.vswitch.hangs(statusPatience))
	}
	return s, nil
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

func (a *Agent) nodes(snap *cluster.Snapshot) []api.Node {
	return view.Nodes(snap, a.self(), func(id cluster.NodeID) (alive, doubtful bool) {
		m, _ := a.gossip.Member(string(id))
		return m.State == gossip.Alive, m.Doubtful
	})
}

// answers reports whether another host is alive.
func (a *Agent) answers(id cluster.NodeID) bool {
	m, _ := a.gossip.Member(string(id))
	return m.State == gossip.Alive
}

// problems lists what is wrong, the most serious first, each with what to do.
func (a *Agent) problems(ctx context.Context, snap *cluster.Snapshot, nodes []api.Node, gone unlinked) []api.Problem {
	if a.left.Load() {
		return []api.Problem{{What: "this host has left the cluster", Do: backByJoin}}
	}
	list := append([]api.Problem{}, a.membershipProblems(snap)...)
	list = append(list, a.keyProblems(ctx)...)
	list = append(append(list, a.refusedHosts()...), a.suspicions(snap)...)
	list = append(list, a.silentHosts(nodes)...)
	list = append(list, contactProblems(a.contacts.now(), nodes, a.cfg.Port, time.Now())...)
	list = append(list, a.differences(ctx, nodes)...)
	list = append(list, a.reachProblems(snap)...)
	list = append(list, a.hostRangeProblems(snap)...)
	list = append(list, a.routesTaken(snap)...)
	list = append(list, a.wrongSources(nodes)...)
	list = append(list, a.vswitch.problems(ctx, gone)...)
	list = append(list, gone.problems...)
	list = append(list, a.forwardingOff()...)
	list = append(list, a.firewall.problems(a.hellos.now(), nodes)...)
	list = append(list, a.hellos.problems(nodes, a.cfg.VXLANPort)...)
	list = append(list, a.sockets.problems()...)
	list = append(list, a.metricsPort.problems()...)
	list = append(list, a.engine.problems(time.Now())...)
	return append(list, a.driverProblems(ctx)...)
}

// writePatience is how long a disk may take for what the agent writes to it: a slow card is no problem.
const writePatience = 3 * time.Second

// membershipProblems are those of this host's place in its cluster.
func (a *Agent) membershipProblems(snap *cluster.Snapshot) (list []api.Problem) {
	add := func(do, format string, args ...any) {
		list = append(list, api.Problem{What: fmt.Sprintf(format, args...), Do: do})
	}
	switch err := a.replica.Trouble(); {
	case a.alloc.Leaving():
		add("run `grapevine leave` again; to stay, restart the agent. Until then this host makes no networks and hands out no addresses",
			"this host is leaving its cluster, and `grapevine leave` has not come to its end")
	case errors.Is(err, cluster.ErrForgotten):
		if why := a.spent.Load(); why != nil {
			add("this host hands out nothing until then, and then joins as a new one by itself", "the cluster has forgotten this host, and its state cannot be set aside: %v", *why)
			break
		}
		if v := a.verdict.Load(); v != nil && !v.proven() {
			list = append(list, v.problem(snap, a.cfg.State))
			break
		}
		add("wait some seconds: it sets its state aside and joins as a new host", "the cluster has forgotten this host")
	case err != nil:
		add("stop the agent, `grapevine forget` this host on another one, and start it again: it joins as a new host",
			"this host's state is older than what the others know of it: %v", err)
	}
	const unwritten = "until then this host makes no new networks or containers, and does not learn what others make"
	if err := a.replica.Unwritten(); err != nil {
		add(unwritten, "this host's state cannot be written: %v", err)
	}
	if since := a.db.Writing(); since > writePatience {
		add("look at what the kernel says of the disk (dmesg); "+unwritten, "this host's disk has not taken a write to %s for %v", a.db.Path(), since.Round(time.Second))
	}
	if a.unproven.Load() && a.replica.Trouble() == nil {
		add("start the hosts that do not answer; `grapevine forget`, on another host, those that are gone for good. If there is none, or all were restored, nobody can say: stop the agent, move "+a.cfg.State+" away, and `grapevine restore --alone` on one of them. Until then this host hands out nothing",
			"this host was restored from a backup, or its state file was damaged, and it waits for every other host to say that nothing is missing in it")
	}
	if at, ok := a.gossip.Clone(); ok {
		add("one of the two is a copy of the other: stop that and remove "+a.cfg.State+" there. Until then neither hands out anything",
			"the host at %s has this host's ID %s", at, a.id.Node)
	}
	if what := a.waitsFor(snap); what != "" {
		do := fmt.Sprintf("start the agent there, and check that port %d is open for TCP and UDP between the hosts", a.cfg.Port)
		if len(a.gossip.Strangers()) > 0 {
			do = "give this host the cluster's gossip key, as said below"
		}
		add(do, "%s", what)
	}
	return list
}

// refusedHosts are those that gossip keeps out, and why.
func (a *Agent) refusedHosts() (list []api.Problem) {
	for _, p := range a.gossip.Problems() {
		list = append(list, api.Problem{What: p, Do: "until then the two hosts' containers do not reach each other"})
	}
	return append(list, a.foreignProblems(len(a.gossip.Alive())+1)...)
}

// waitsFor says what keeps this host from handing out addresses, "" if nothing does.
func (a *Agent) waitsFor(snap *cluster.Snapshot) string {
	switch {
	case a.gossip.ClusterID() == "" && a.role == identity.Seed:
		return "this host is about to begin a cluster, and first asks the hosts of GRAPEVINE_JOIN for one, which takes a few seconds"
	case a.gossip.ClusterID() == "":
		return fmt.Sprintf("this host waits for a cluster: no host of GRAPEVINE_JOIN (%s) has let it in yet", strings.Join(joinList(a.cfg.Join), ", "))
	case snap.Ring().Len() == 0:
		return "this host waits to learn who owns which addresses from the hosts of its cluster"
	}
	return ""
}

// differences finds what is to be the same on all hosts, or another on each, and is not.
func (a *Agent) differences(ctx context.Context, nodes []api.Node) []api.Problem {
	list := append(vxlanDifferences(nodes, a.cfg.VXLANPort), rangeDifferences(nodes)...)
	if twins := namesakes(nodes, ""); len(twins) > 0 {
		list = append(list, namesakes(nodes, a.setCommand(ctx, "GRAPEVINE_NAME=NAME"))...)
	}
	return list
}

// vxlanDifferences are ports of VXLAN that are to be the same on all hosts and are not.
func vxlanDifferences(nodes []api.Node, vxlan uint16) (list []api.Problem) {
	for _, n := range nodes {
		if n.Alive && n.VXLANPort != vxlan && n.VXLANPort != 0 {
			list = append(list, api.Problem{
				What: fmt.Sprintf("the UDP port of VXLAN is %d here and %d on %s: containers of the two do not reach each other", vxlan, n.VXLANPort, n.Name),
				Do:   "set GRAPEVINE_VXLAN_PORT to the same on every host",
			})
		}
	}
	return list
}
