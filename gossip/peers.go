package gossip

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// peer is what is known of another host. roster.mu guards it.
type peer struct {
	Member
	newest  uint8  // version that it speaks
	epoch   uint64 // that calls of it are to name
	foreign bool   // says it is of another cluster now: nothing goes to it
	retry   backoff
	sync    backoff
	pulling bool
	tried   time.Time // when it had this host answer its last Try of streams
}

func (p *peer) reachable() bool { return p != nil && p.State == Alive && !p.foreign }

// speaks is the newest version of a peer that answers; 0: it does not.
func (p *peer) speaks() uint8 {
	if !p.reachable() {
		return 0
	}
	return p.newest
}

// node is the peer as memberlist wants it for sending.
func (p *peer) node() *memberlist.Node {
	return &memberlist.Node{Name: p.ID, Addr: p.Addr.Addr().AsSlice(), Port: p.Addr.Port()}
}

// roster is what is known of the other hosts.
type roster struct {
	*core
	presence *presence
	watch    *watch
	spoken   spoken        // has a lock of its own, taken after mu
	alive    atomic.Int32  // peers that answer
	members  atomic.Uint64 // hash of them and us: see memberHash
	save     chan struct{} // room for one: the peers have changed

	mu    sync.Mutex // no call of memberlist under it
	peers map[string]*peer
}

// newRoster remembers the peers of an earlier run.
func newRoster(c *core, own *presence, w *watch) *roster {
	r := &roster{
		core: c, presence: own, watch: w, spoken: spoken{max: c.cfg.speaks.max, newest: census{}},
		save: make(chan struct{}, 1), peers: map[string]*peer{},
	}
	for _, p := range c.cfg.Known {
		if _, err := parseNode(p.ID); err == nil && p.ID != c.cfg.Node && p.Addr.IsValid() {
			r.peers[p.ID] = &peer{Member: Member{ID: p.ID, Addr: p.Addr, State: Dead, Since: c.started}}
		}
	}
	return r
}

// knows reports whether an ID is this host's or a peer's, be it one of an earlier run.
func (r *roster) knows(id nodeID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return id == r.self || r.peers[id.String()] != nil
}

// list is all peers, for callers.
func (r *roster) list() (list []Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.peers {
		if !p.foreign {
			list = append(list, r.member(p))
		}
	}
	return list
}

// get is one of list.
func (r *roster) get(id string) (Member, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[id]
	if p == nil || p.foreign {
		return Member{}, false
	}
	return r.member(p), true
}

// member is a copy for callers, with mu held.
func (r *roster) member(p *peer) Member {
	m := p.Member
	if m.Doubtful = p.reachable() && r.doubts(p.ID); m.Doubtful {
		if n, err := parseNode(p.ID); err == nil {
			m.DoubtfulSince = r.watch.doubtedSince(n)
		}
	}
	return m
}

// doubts reports whether a host is in doubt.
func (r *roster) doubts(id string) bool {
	n, err := parseNode(id)
	return err == nil && r.watch.doubts(n)
}

// answering is Gossip.Alive.
func (r *roster) answering() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for id, p := range r.peers {
		if p.reachable() {
			ids = append(ids, id)
		}
	}
	shuffle(ids)
	r.watch.last(ids)
	return ids
}

// triedBy notes that a peer has had this host answer a Try of streams.
func (r *roster) triedBy(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[id]; p != nil {
		p.tried = time.Now()
	}
}

// tried is Gossip.Tried.
func (r *roster) tried(id string) (at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[id]; p != nil {
		at = p.tried
	}
	return at
}

// forget is Gossip.Forget.
func (r *roster) forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[id]; p != nil && !p.reachable() {
		delete(r.peers, id)
		poke(r.save)
	}
}

// change changes a peer, with mu held, and keeps count of those that answer.
func (r *roster) change(p *peer, f func()) {
	members := r.members.Load()
	was, spoke := p.reachable(), p.speaks()
	if was {
		r.alive.Add(-1)
		members ^= memberHash(p.ID, p.Addr)
	}
	f()
	if p.reachable() {
		r.alive.Add(1)
		members ^= memberHash(p.ID, p.Addr)
	}
	r.spoken.change(spoke, p.speaks(), time.Now())
	r.members.Store(members)
}

// countOwn counts this host, at its address, among the members.
func (r *roster) countOwn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members.Store(r.members.Load() ^ memberHash(r.cfg.Node, r.addr))
}

// update takes what memberlist says of a host, and reports what that changed.
func (r *roster) update(id string, addr netip.AddrPort, state MemberState, meta nodeMeta) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[id]
	if p == nil {
		p = &peer{}
		r.peers[id] = p
	}
	before, moved := p.State, p.Addr != addr
	p.Name = meta.name
	r.change(p, func() { p.ID, p.Addr, p.State, p.newest = id, addr, state, meta.speaks.max })
	p.epoch = meta.epoch
	if before != state {
		p.Since = time.Now()
		p.retry.reset()
		p.sync.reset()
	}
	if before != state || moved {
		poke(r.save)
	}
	return before != state
}

// setForeign notes whether a host that is known says it is of another cluster.
func (r *roster) setForeign(id string, foreign bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[id]; p != nil {
		r.change(p, func() { p.foreign = foreign })
	}
}

// hasLeft says that a host has gone for good: it is an old word that it is alive, which is
// late, or which somebody has recorded. memberlist itself forgets the dead.
func (r *roster) hasLeft(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.peers[id].reachable() && r.cfg.Left(id)
}

// noteLeft notes which of the dead have left: of one whose word of it came after its end it
// is known only now.
func (r *roster) noteLeft() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, p := range r.peers {
		if p.State == Dead && r.cfg.Left(id) {
			r.change(p, func() { p.State, p.Since = Left, time.Now() })
			poke(r.save)
		}
	}
}

// find returns how to reach a host, or why it cannot be reached.
func (r *roster) find(id string) (*memberlist.Node, error) {
	if r.presence.clusterID() == "" {
		return nil, fmt.Errorf("%w: this host is in no cluster yet", ErrUnreachable)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[id]
	switch {
	case p == nil:
		return nil, fmt.Errorf("%w: no such host in the cluster", ErrUnreachable)
	case p.foreign:
		return nil, fmt.Errorf("%w: it belongs to another cluster", ErrUnreachable)
	case p.State != Alive:
		return nil, fmt.Errorf("%w: it is %s (last at %v)", ErrUnreachable, p.State, p.Addr)
	}
	return p.node(), nil
}

// nodeOf is find for those who do not mind: nil if it cannot be reached.
func (r *roster) nodeOf(id string) *memberlist.Node {
	n, _ := r.find(id)
	return n
}

// pick returns up to k random hosts that can be reached.
func (r *roster) pick(k int) []*memberlist.Node {
	var nodes []*memberlist.Node
	for _, id := range r.answering() {
		if len(nodes) == k {
			break
		}
		if n := r.nodeOf(id); n != nil {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// circle are the hosts that answer, and this one, sorted.
func (r *roster) circle() []nodeID {
	circle := []nodeID{r.self}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, p := range r.peers {
		if n, err := parseNode(id); err == nil && p.reachable() {
			circle = append(circle, n)
		}
	}
	slices.SortFunc(circle, compareIDs)
	return circle
}

// lastAddr is where a host was last, invalid if it is not known.
func (r *roster) lastAddr(id string) (a netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[id]; p != nil {
		a = p.Addr
	}
	return a
}

// places are the addresses of the cluster's hosts.
func (r *roster) places() map[netip.Addr]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[netip.Addr]struct{}, len(r.peers))
	for _, p := range r.peers {
		if !p.foreign {
			all[p.Addr.Addr().Unmap()] = struct{}{}
		}
	}
	return all
}

// without leaves out of strangers those that are members by now.
func (r *roster) without(list []Stranger) []Stranger {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.peers {
		if p.State == Alive {
			list = slices.DeleteFunc(list, func(s Stranger) bool { return s.Addr == p.Addr.Addr().Unmap() })
		}
	}
	return list
}

func (r *roster) isForeign(id string) bool {
	if id == "" {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[id]
	return p != nil && p.foreign
}

// speaksSince reports whether a host is known to speak a version.
func (r *roster) speaksSince(id string, version uint8) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[id]
	return p != nil && p.newest >= version
}

// epochOf is what is known of a host's epoch, 0 if nothing is.
func (r *roster) epochOf(id string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[id]; p != nil {
		return p.epoch
	}
	return 0
}

func (r *roster) setEpoch(id string, epoch uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[id]; p != nil {
		p.epoch = epoch
	}
}

// claimFetch marks the one fetch that there may be from a peer, if it is due.
func (r *roster) claimFetch(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[id]
	if !p.reachable() || p.pulling || !p.sync.due(time.Now()) {
		return false
	}
	p.pulling = true
	return true
}

// fetched ends what claimFetch began, and then changes the peer.
func (r *roster) fetched(id string, change func(*peer)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[id]; p != nil {
		if change != nil {
			change(p)
		} else {
			p.pulling = false
		}
	}
}

// lost are the dead that may be dialled now, and met where some host answers.
func (r *roster) lost(now time.Time) (list []*target, met map[netip.AddrPort]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	met = map[netip.AddrPort]bool{r.addr: true, r.cfg.Bind: true}
	for _, p := range r.peers {
		met[p.Addr] = met[p.Addr] || p.State == Alive
	}
	for id, p := range r.peers {
		// Another may live where a dead one was: a host that was installed anew.
		if p.State == Dead && !p.foreign && p.retry.due(now) && !met[p.Addr] {
			list = append(list, &target{id: id, addr: p.Addr})
		}
	}
	return list, met
}

// dialled notes that a peer was dialled: after a success it is no longer lost.
func (r *roster) dialled(id string, now time.Time, limit time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.peers[id]; p != nil {
		p.retry.failed(now, rejoinFirst, limit)
	}
}

// known lists the peers to remember: all but those that left.
func (r *roster) known() []Peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Peer
	for _, p := range r.peers {
		if p.State != Left && !p.foreign {
			list = append(list, Peer{p.ID, p.Addr})
		}
	}
	slices.SortFunc(list, func(a, b Peer) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// saveLoop gives the caller the peers to remember when they have changed.
func (r *roster) saveLoop(ctx context.Context) {
	if r.cfg.SaveKnown == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.save:
		}
		sleep(ctx, saveEvery) // more will change; the last state is saved even at the end
		r.cfg.SaveKnown(r.known())
	}
}

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
	g.spreader.pace.hurry()
	if n.Name == g.cfg.Node {
		g.presence.heard(n.Meta)
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
	changed := g.roster.update(n.Name, addr, state, meta)
	g.spreader.hasCompany()
	g.beater.met()
	if !changed {
		return
	}
	g.refusals.settle("conflict " + n.Name + " " + addr.String())
	g.log.Info("host is "+string(state), "host", n.Name, "name", meta.name, "addr", addr)
	if state != Alive {
		g.caller.calls.fail(n.Name, state)
	}
}

// NotifyConflict implements memberlist.ConflictDelegate: two hosts have one ID,
// as when a machine was cloned with its state directory, or one host has just
// changed its address, or somebody sends what a host said before it did so.
func (e events) NotifyConflict(existing, other *memberlist.Node) {
	g := e.g
	if id, err := parseNode(existing.Name); err == nil {
		g.clones.suspect(addrOf(existing), clone{id, addrOf(other)})
	}
}

func addrOf(n *memberlist.Node) netip.AddrPort {
	a, _ := netip.AddrFromSlice(n.Addr)
	return netip.AddrPortFrom(a.Unmap(), n.Port)
}
