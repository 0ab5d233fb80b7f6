package gossip

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

// refusedMark begins the errors with which we refuse a host. memberlist logs
// them each time; the log filter knows them by it and leaves them to refuse.
const refusedMark = "refused: "

// errFresh refuses a host that has no cluster yet. It is about to learn ours.
var errFresh = errors.New(refusedMark + "it has no cluster yet")

// errLeft refuses a host that has left: its ID is spent.
var errLeft = errors.New(refusedMark + "it has left the cluster")

func cloneError(id string, a, b netip.AddrPort) error {
	return fmt.Errorf("hosts at %v and %v have the same node ID %s: if one is a copy of the other, stop it and remove its state directory", a, b, id)
}

// cloneMemory is how long a host takes care after it has met its own ID
// elsewhere: longer than the pause between two push/pulls.
const cloneMemory = time.Minute

// admission decides which hosts may be members: memberlist's alive and merge
// delegate.
type admission struct{ g *Gossip }

// NotifyAlive implements memberlist.AliveDelegate. It sees every word that a
// host is alive, with memberlist's lock held.
func (a admission) NotifyAlive(n *memberlist.Node) error {
	g := a.g
	if n.Name == g.cfg.Node {
		return nil // us, or a clone: a conflict if the address differs
	}
	if g.roster.hasLeft(n.Name) {
		g.stats.add(RefusedReplay, 1)
		return errLeft
	}
	m, err := decodeMeta(n.Meta, n.Name)
	if err == nil && !g.cfg.speaks.meet(m.speaks) {
		err = fmt.Errorf("%w: it speaks gossip versions %v, this one %v: upgrade the older", errVersion, m.speaks, g.cfg.speaks)
	}
	if errors.Is(err, errVersion) {
		return g.refusals.refuseAt(RefusedVersion, "version "+n.Name, addrOf(n), func(at netip.AddrPort) error {
			return fmt.Errorf(refusedMark+"host %.64q%s: %w", n.Name, place(at), err)
		})
	}
	if err != nil {
		return g.refusals.refuse(RefusedGarbage, "meta "+n.Name, fmt.Errorf(refusedMark+"host %.64q (%v): %w", n.Name, addrOf(n), err))
	}
	ours := g.presence.adopt(m.cluster)
	switch m.cluster {
	case ours:
		g.roster.setForeign(n.Name, false)
		g.refusals.settle("cluster "+n.Name, "version "+n.Name, "meta "+n.Name)
		return nil
	case "":
		g.stats.add(RefusedNoCluster, 1)
		return errFresh
	}
	g.roster.setForeign(n.Name, true)
	return g.refusals.refuseForeign(Foreign{ID: n.Name, Name: m.name, Cluster: m.cluster}, addrOf(n), ours)
}

// NotifyMerge implements memberlist.MergeDelegate: at a join it sees all hosts
// that the other side knows, before they are merged. Hosts refuse foreign ones,
// so those of the other side are of one cluster, or have none.
func (a admission) NotifyMerge(nodes []*memberlist.Node) error {
	g := a.g
	found, at := map[string]Foreign{}, map[string]netip.AddrPort{} // one host of each cluster
	for _, n := range nodes {
		m, err := decodeMeta(n.Meta, n.Name)
		if err != nil || n.State != memberlist.StateAlive || n.Name == g.cfg.Node || m.cluster == "" {
			continue // NotifyAlive judges it by itself
		}
		found[m.cluster], at[m.cluster] = Foreign{ID: n.Name, Name: m.name, Cluster: m.cluster, Hosts: found[m.cluster].Hosts + 1}, addrOf(n)
	}
	if len(found) == 0 {
		return nil
	}
	theirs := slices.Min(slices.Collect(maps.Keys(found)))
	ours := g.presence.adopt(theirs)
	if _, ok := found[ours]; ok {
		return nil
	}
	return g.refusals.refuseForeign(found[theirs], at[theirs], ours)
}
