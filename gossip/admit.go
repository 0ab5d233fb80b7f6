package gossip

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// maxProblems bounds how many different refusals are remembered.
const maxProblems = 256

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

// Clone returns the address at which another host has proved within the last minute that it
// has this host's ID and key, and whether there is one.
func (g *Gossip) Clone() (at netip.AddrPort, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.clone, !g.cloneSeen.IsZero() && time.Since(g.cloneSeen) < cloneMemory
}

// CloneSought reports whether it is being found out just now whether there is a Clone.
func (g *Gossip) CloneSought() bool { return g.twins.looking(g.self) }

// place is an address behind a name, for people; "" if it is not known.
func place[A netip.Addr | netip.AddrPort](addr A) string {
	if addr == *new(A) {
		return ""
	}
	return fmt.Sprintf(" (%v)", addr)
}

// problem is why something was refused, and when last.
type problem struct {
	err    error
	last   time.Time
	at     netip.AddrPort // of a host that is refused as a whole; looked at again (again.go)
	looked time.Time      // when last
	gone   int            // how often it was not found there, in a row
}

// over reports whether it is no problem any more: for as long as somebody sends again what a host said
// that has gone, it is remembered that it has.
func (p problem) over() bool { return p.gone >= goneAfter }

// fading reports whether nothing more was heard for so long that it is forgotten.
func (p problem) fading(now time.Time) bool { return now.Sub(p.last) > problemMemory }

// problemMemory is longer than the pause between two tries to reach a host
// (foreignLimit).
const problemMemory = 3 * time.Minute

// refuse counts a refusal, and logs and remembers it if it is the first with
// this key. It returns err.
func (g *Gossip) refuse(reason, key string, err error) error {
	return g.refuseAt(reason, key, netip.AddrPort{}, func(netip.AddrPort) error { return err })
}

// refuseAt is refuse of a host that is at an address, if that is known: it may have been once
// before.
func (g *Gossip) refuseAt(reason, key string, at netip.AddrPort, say func(at netip.AddrPort) error) error {
	g.stats.add(reason, 1)
	g.mu.Lock()
	was, seen := g.problems[key]
	if !at.IsValid() {
		at = was.at
	}
	err := say(at)
	if seen || len(g.problems) < maxProblems {
		was.err, was.last, was.at = err, time.Now(), at
		g.problems[key] = was
	}
	g.mu.Unlock()
	if !seen {
		g.log.Warn(strings.TrimPrefix(err.Error(), refusedMark), "reason", reason)
	}
	return err
}

// Problems returns what keeps hosts apart, for people: each host of another
// version, and each ID that two hosts have. A problem goes when
// that host is admitted, or was not seen for problemMemory: a host that has only
// changed its address looks like two for a moment.
func (g *Gossip) Problems() []string {
	return g.listProblems(func(key string) bool { return !strings.HasPrefix(key, suspect) && !strings.HasPrefix(key, foreign) })
}

// Suspects returns which hosts send what the State refuses, and why, for people.
func (g *Gossip) Suspects() []string {
	return g.listProblems(func(key string) bool { return strings.HasPrefix(key, suspect) })
}

// suspect begins the keys of problems with what a host says, not with the host.
const suspect = "merge "

func (g *Gossip) listProblems(which func(key string) bool) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []string
	for key, p := range g.problems {
		if !which(key) {
			continue
		}
		if p.fading(time.Now()) {
			delete(g.problems, key)
		}
		if p.fading(time.Now()) || p.over() {
			continue
		}
		list = append(list, strings.TrimPrefix(p.err.Error(), refusedMark))
	}
	slices.Sort(list)
	return list
}

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
	if g.hasLeft(n.Name) {
		g.stats.add(RefusedReplay, 1)
		return errLeft
	}
	m, err := decodeMeta(n.Meta, n.Name)
	if err == nil && !g.cfg.speaks.meet(m.speaks) {
		err = fmt.Errorf("%w: it speaks gossip versions %v, this one %v: upgrade the older", errVersion, m.speaks, g.cfg.speaks)
	}
	if errors.Is(err, errVersion) {
		return g.refuseAt(RefusedVersion, "version "+n.Name, addrOf(n), func(at netip.AddrPort) error {
			return fmt.Errorf(refusedMark+"host %.64q%s: %w", n.Name, place(at), err)
		})
	}
	if err != nil {
		return g.refuse(RefusedGarbage, "meta "+n.Name, fmt.Errorf(refusedMark+"host %.64q (%v): %w", n.Name, addrOf(n), err))
	}
	ours := g.adopt(m.cluster)
	switch m.cluster {
	case ours:
		g.admitted(n.Name)
		return nil
	case "":
		g.stats.add(RefusedNoCluster, 1)
		return errFresh
	}
	g.mu.Lock()
	if p := g.peers[n.Name]; p != nil {
		g.change(p, func() { p.foreign = true })
	}
	g.mu.Unlock()
	return g.refuseForeign(Foreign{ID: n.Name, Name: m.name, Cluster: m.cluster}, addrOf(n), ours)
}

// hasLeft says that a host has gone for good: it is an old word that it is alive, which is
// late, or which somebody has recorded. memberlist itself forgets the dead.
func (g *Gossip) hasLeft(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.peers[id].reachable() && g.cfg.Left(id)
}

// noteLeft notes which of the dead have left: of one whose word of it came after its end it
// is known only now.
func (g *Gossip) noteLeft() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, p := range g.peers {
		if p.State == Dead && g.cfg.Left(id) {
			g.change(p, func() { p.State, p.Since = Left, time.Now() })
			g.knownChanged()
		}
	}
}

func (g *Gossip) admitted(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.peers[id]; p != nil {
		g.change(p, func() { p.foreign = false })
	}
	delete(g.problems, "cluster "+id)
	delete(g.problems, "version "+id)
	delete(g.problems, "meta "+id)
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
	ours := g.adopt(theirs)
	if _, ok := found[ours]; ok {
		return nil
	}
	return g.refuseForeign(found[theirs], at[theirs], ours)
}

// adopt takes a cluster's ID if this host has none, and returns the ID it has.
func (g *Gossip) adopt(id string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cluster == "" && id != "" {
		g.cluster = id
		close(g.clusterKnown)
		poke(g.announce)
		poke(g.rejoin)
	}
	return g.cluster
}

// ClusterID returns the ID of the cluster this host is in, "" if none yet.
func (g *Gossip) ClusterID() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cluster
}

// SetClusterID makes this host the seed of a new cluster. It is an error if the
// host is in another one already.
func (g *Gossip) SetClusterID(id string) error {
	if id == "" || len(id) > maxLabel {
		return fmt.Errorf("set cluster ID %.80q: want 1 to %d bytes", id, maxLabel)
	}
	if have := g.adopt(id); have != id {
		return fmt.Errorf("set cluster ID %s: this host is in cluster %s already", id, have)
	}
	return nil
}

// ClusterKnown waits until the host is in a cluster, and returns its ID.
func (g *Gossip) ClusterKnown(ctx context.Context) (string, error) {
	select {
	case <-g.clusterKnown:
		return g.ClusterID(), nil
	case <-ctx.Done():
		return "", fmt.Errorf("wait for a cluster: %w", ctx.Err())
	}
}
