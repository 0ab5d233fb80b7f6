package gossip

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// MemberState says how a host stands.
type MemberState string

// The states of a member.
const (
	Alive MemberState = "alive"
	Left  MemberState = "left" // it said so itself (Config.Left), and is not alive any more
	Dead  MemberState = "dead" // it does not answer, or was never met in this run
)

// Member is a host of the cluster.
type Member struct {
	ID    string
	Name  string         // for people; "" if not met in this run
	Addr  netip.AddrPort // where its gossip answers
	State MemberState
	Since time.Time // of the last change of State
	Self  bool
	// Doubtful: alive, but those who watch it hear nothing of it just now. Either it is
	// back soon, or it is dead a few seconds later.
	Doubtful bool
	// DoubtfulSince is since when; zero: it is not Doubtful.
	DoubtfulSince time.Time
}

// peer is what is known of another host. Gossip.mu guards it.
type peer struct {
	Member
	newest  uint8  // version that it speaks
	epoch   uint64 // that calls of it are to name
	foreign bool   // says it is of another cluster now: nothing goes to it
	retry   backoff
	sync    backoff
	pulling bool
}

// Members lists this host and every other one seen, sorted by ID.
func (g *Gossip) Members() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := []Member{{
		ID: g.cfg.Node, Name: g.cfg.Name, Addr: g.addr, State: Alive, Since: g.started,
		Self: true,
	}}
	if g.leaving {
		list[0].State = Left
	}
	for _, p := range g.peers {
		if !p.foreign {
			list = append(list, g.member(p))
		}
	}
	slices.SortFunc(list, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// Member returns another host, as Members lists it; false: it has not been seen.
func (g *Gossip) Member(id string) (Member, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.peers[id]
	if p == nil || p.foreign {
		return Member{}, false
	}
	return g.member(p), true
}

// member is a copy for callers, with mu held.
func (g *Gossip) member(p *peer) Member {
	m := p.Member
	if m.Doubtful = p.reachable() && g.doubts(p.ID); m.Doubtful {
		if n, err := parseNode(p.ID); err == nil {
			m.DoubtfulSince = g.watch.doubtedSince(n)
		}
	}
	return m
}

// doubts reports whether a host is in doubt.
func (g *Gossip) doubts(id string) bool {
	n, err := parseNode(id)
	return err == nil && g.watch.doubts(n)
}

// Alive lists the IDs of the other hosts that answer, in random order, those in doubt last.
func (g *Gossip) Alive() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ids []string
	for id, p := range g.peers {
		if p.reachable() {
			ids = append(ids, id)
		}
	}
	shuffle(ids)
	g.watch.last(ids)
	return ids
}

func (p *peer) reachable() bool { return p != nil && p.State == Alive && !p.foreign }

// node is the peer as memberlist wants it for sending.
func (p *peer) node() *memberlist.Node {
	return &memberlist.Node{Name: p.ID, Addr: p.Addr.Addr().AsSlice(), Port: p.Addr.Port()}
}

// Forget drops a host that is not alive from what is remembered: it is not
// dialled again, and Members does not list it. If it comes back it is met anew.
func (g *Gossip) Forget(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.peers[id]; p != nil && !p.reachable() {
		delete(g.peers, id)
		g.knownChanged()
	}
}

// change changes a peer, with mu held, and keeps count of those that answer.
func (g *Gossip) change(p *peer, f func()) {
	members := g.members.Load()
	was, newest := p.reachable(), p.newest
	if was {
		g.alive.Add(-1)
		g.newest.add(p, -1)
		members ^= memberHash(p.ID, p.Addr)
	}
	f()
	if p.reachable() {
		g.alive.Add(1)
		g.newest.add(p, 1)
		members ^= memberHash(p.ID, p.Addr)
	} else if was && newest < g.cfg.speaks.max {
		g.gone.add(newest, time.Now())
	}
	g.members.Store(members)
}

// known lists the peers to remember: all but those that left.
func (g *Gossip) known() []Peer {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []Peer
	for _, p := range g.peers {
		if p.State != Left && !p.foreign {
			list = append(list, Peer{p.ID, p.Addr})
		}
	}
	slices.SortFunc(list, func(a, b Peer) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// knownChanged wakes the goroutine that saves the peers.
func (g *Gossip) knownChanged() { poke(g.saveKnown) }

// poke wakes the reader of a channel with room for one, without blocking.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// events follows who comes and goes: memberlist's event and conflict delegate.
// It is called with memberlist's lock held.
type events struct{ g *Gossip }

// NotifyJoin implements memberlist.EventDelegate.
func (e events) NotifyJoin(n *memberlist.Node) { e.update(n, Alive) }

// NotifyUpdate implements memberlist.EventDelegate.
func (e events) NotifyUpdate(n *memberlist.Node) { e.update(n, Alive) }

// NotifyLeave implements memberlist.EventDelegate. Whether it is a death or a leave
// memberlist's words, which any host with the gossip key could make, do not tell.
func (e events) NotifyLeave(n *memberlist.Node) { e.update(n, Dead) }

func (e events) update(n *memberlist.Node, state MemberState) {
	g := e.g
	g.pace.hurry()
	if n.Name == g.cfg.Node {
		g.mu.Lock()
		g.told = slices.Clone(n.Meta)
		g.mu.Unlock()
		return
	}
	meta, err := decodeMeta(n.Meta, n.Name)
	if err != nil {
		return
	}
	if state == Dead && g.cfg.Left(n.Name) {
		state = Left
	}
	addr := addrOf(n)
	g.mu.Lock()
	p := g.peers[n.Name]
	if p == nil {
		p = &peer{}
		g.peers[n.Name] = p
	}
	before, moved := p.State, p.Addr != addr
	p.Name = meta.name
	g.change(p, func() { p.ID, p.Addr, p.State, p.newest = n.Name, addr, state, meta.speaks.max })
	p.epoch = meta.epoch
	if before != state {
		p.Since = time.Now()
		p.retry.reset()
		p.sync.reset()
		delete(g.problems, "conflict "+n.Name+" "+addr.String())
	}
	if before != state || moved {
		g.knownChanged()
	}
	if len(g.early) > 0 && g.alive.Load() > 0 {
		poke(g.company)
	}
	g.mu.Unlock()
	if before == state {
		return
	}
	g.log.Info("host is "+string(state), "host", n.Name, "name", meta.name, "addr", addr)
	if state != Alive {
		g.calls.fail(n.Name, state)
	}
}

// NotifyConflict implements memberlist.ConflictDelegate: two hosts have one ID,
// as when a machine was cloned with its state directory, or one host has just
// changed its address, or somebody sends what a host said before it did so.
func (e events) NotifyConflict(existing, other *memberlist.Node) {
	g := e.g
	if id, err := parseNode(existing.Name); err == nil {
		g.suspectTwin(addrOf(existing), twin{id, addrOf(other)})
	}
}

func addrOf(n *memberlist.Node) netip.AddrPort {
	a, _ := netip.AddrFromSlice(n.Addr)
	return netip.AddrPortFrom(a.Unmap(), n.Port)
}

// lastAddr is where a host was last, invalid if it is not known.
func (g *Gossip) lastAddr(id string) (a netip.AddrPort) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.peers[id]; p != nil {
		a = p.Addr
	}
	return a
}
