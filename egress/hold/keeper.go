// Package hold keeps this host's part of the cluster's egress addresses: it takes what nobody holds, adds it to the
// interface of its subnet, tells the LAN and the cluster, and lets go of what is another host's. Which host is to do
// what is package egress'.
package hold

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress"
	"github.com/grapevine-net/grapevine/host/lan"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/replica"
)

// Replica is the agent's copy of the cluster's state; *replica.Replica is one.
type Replica interface {
	Snapshot() *cluster.Snapshot
	Watch() (changed <-chan struct{})
	CaughtUp() <-chan struct{}
	Update(func(*replica.Tx) error) (rev uint64, err error)
}

// Config is what a Keeper works with.
type Config struct {
	Self    cluster.NodeID
	Replica Replica
	// Alive reports whether a host answers, without doubt.
	Alive func(cluster.NodeID) bool
	// Hear reports whether a host has answered since this one was last stalled, or its agent started, and whether that is
	// known: it may have been asked just now.
	Hear func(cluster.NodeID) (heard, known bool)
	// Serve declares by which addresses subnets leave here (nat.NAT.Serve); Placed returns when the switch heeds what
	// Serves says (overlay.Overlay.Pass).
	Serve  func([]nat.Source) error
	Placed func(context.Context) error
	LAN    LAN // nil: this host's
	// Routed says what routers are told now; nil: nothing.
	Routed func() Routed
	Log    *slog.Logger
}

// LAN is where addresses are held; package host/lan is one.
type LAN interface {
	Look() (View, error)
	Add(nic string, a netip.Addr) error
	Remove(netip.Addr) error
	Probe(ctx context.Context, nic string, a netip.Addr) (net.HardwareAddr, error)
	Announce(nic string, a netip.Addr) error
	// Guard hears who else says there that it has the address, until end is called or it ends by itself.
	Guard(nic string, a netip.Addr, claimed func(net.HardwareAddr)) (end func(), over <-chan struct{}, err error)
	Linked(nic string) bool
}

// View is what the host's interfaces have at one moment; lan.View is one.
type View interface {
	Find(netip.Addr) lan.Place
	Ours() []netip.Addr
}

type hostLAN struct{}

func (hostLAN) Look() (View, error)                     { return lan.Look() }
func (hostLAN) Add(nic string, a netip.Addr) error      { return lan.Add(nic, a) }
func (hostLAN) Remove(a netip.Addr) error               { return lan.Remove(a) }
func (hostLAN) Announce(nic string, a netip.Addr) error { return lan.Announce(nic, a) }
func (hostLAN) Linked(nic string) bool                  { return lan.Linked(nic) }
func (hostLAN) Guard(nic string, a netip.Addr, claimed func(net.HardwareAddr)) (end func(), over <-chan struct{}, err error) {
	return lan.Guard(nic, a, claimed)
}
func (hostLAN) Probe(ctx context.Context, nic string, a netip.Addr) (net.HardwareAddr, error) {
	return lan.Probe(ctx, nic, a)
}

// Keeper holds addresses. Its methods may be called concurrently; Begin comes first.
type Keeper struct {
	cfg     Config
	log     *slog.Logger
	started time.Time

	mu     sync.Mutex
	serves map[string][]netip.Addr     // egresses by name: the addresses that were taken, and NAT, are in place
	leads  map[netip.Prefix]netip.Addr // the sources that NAT has, as far as it is known
	notes  map[string]Note
	claims atomic.Uint64 // how often another one was heard that says it has what this host holds

	// Of Run's goroutine, and of one for each egress while it takes.
	held  map[string]*held
	seen  seen
	clean bool // nothing is left of an egress, and there is none: the LAN need not be looked at
	links flaps
	said  time.Time // others were told last what this host cannot hold

	nat     sync.Mutex   // of the NAT, for which Serve may wait long: nobody who asks what is served waits with it
	sources []nat.Source // that Serve was told last
}

// seen is what the last round was about.
type seen struct {
	snap   *cluster.Snapshot
	alive  []bool           // the cluster's hosts
	voters []cluster.NodeID // the gateways of what wants a quorum
	heard  []hearing        // of these
	nics   []string         // for addresses that this host may hold
	links  []bool           // whether these have a link
	claims uint64           // that were heard before it
	due    time.Time        // of the next round, if nothing changes before
	busy   bool             // there is something to look after
}

type hearing struct{ heard, known bool }

// held is what is remembered of an egress from one round to the next.
type held struct {
	defender
	since    time.Time // this host is to take it, if its turn comes; zero: it is not
	again    time.Time // before that nothing is tried
	announce time.Time // when the LAN is told next
	pause    time.Duration
	failed   error                            // of telling it last
	cut      time.Time                        // since then the interface has no link; zero: it has one
	away     bool                             // it had none for long while nobody could hear so: another one may have the address
	back     bool                             // it was, has the address again, and has not heard long enough from others who may have it
	met      time.Time                        // since then another gateway is heard; zero: none is
	alive    []bool                           // of the gateways, when the LAN was told last
	next     time.Duration                    // until it is looked at again
	rival    atomic.Pointer[net.HardwareAddr] // that answered last for what this host holds
	asking   atomic.Bool                      // whether somebody else has it
}

// Note says what is in the way of this host's holding an address.
type Note struct {
	Occupied net.HardwareAddr // another machine's, that has it; without bytes: the routers lead to it
	Silent   bool             // it is that of the holder, whose agent does not answer
	Unfit    bool             // no interface is in its subnet
	Cut      string           // the interface for it, which has no link
	Rival    net.HardwareAddr // another machine's, that has it as well while this host holds it
	Twice    bool             // an administrator has given it to this host, and another host holds it
	Err      error
}

// Any reports whether something is.
func (n Note) Any() bool {
	return n.Occupied != nil || n.Unfit || n.Cut != "" || n.Twice || n.Err != nil
}

// Times.
const (
	tick       = 100 * time.Millisecond
	turn       = time.Second            // for each host that is to take an address first, and does not
	turns      = 5                      // at most
	patience   = 3 * time.Second        // after the start, without a word of another host
	linkless   = 500 * time.Millisecond // is how long the holder's link may be gone
	retry      = time.Second            // after a try that failed
	reannounce = 30 * time.Second
	settled    = 3 * time.Second // a pause between announcements from which on it is asked who else has the address
	idle       = time.Second     // between rounds while nothing is to be taken
	untold     = 2 * time.Second // between two records of what this host cannot hold
)

// New returns a Keeper; nothing happens before Begin.
func New(cfg Config) *Keeper {
	if cfg.LAN == nil {
		cfg.LAN = hostLAN{}
	}
	if cfg.Routed == nil {
		cfg.Routed = func() Routed { return Routed{} }
	}
	return &Keeper{cfg: cfg, log: cfg.Log, started: time.Now(), serves: map[string][]netip.Addr{}, notes: map[string]Note{}, held: map[string]*held{}, links: flaps{}}
}

// Begin goes on with what an agent before this one has left: while that was gone, the host has carried packets.
func (k *Keeper) Begin(serve func([]nat.Source) error, placed func(context.Context) error) {
	k.cfg.Serve, k.cfg.Placed = serve, placed
	snap := k.cfg.Replica.Snapshot()
	view, err := k.cfg.LAN.Look()
	for _, c := range k.cases(snap) {
		if err == nil && spotsOf(c, view, k.cfg.Routed()).here() && c.Holder == k.cfg.Self && !c.Twice {
			k.serves[c.Egress.Name] = c.Egress.Addrs
		}
	}
	if err := k.tellNAT(snap); err != nil {
		k.log.Warn("addresses for the outside", "error", err)
	}
}

// Serves reports whether this host is ready to be the way to the outside of an egress. The record says whether it is.
func (k *Keeper) Serves(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.serves[name]) > 0
}

// Leads reports whether it is that of one subnet, or container: one that came to the egress later leads out when NAT has it,
// too. Of a container NAT may have one address and of its subnet another one: it leaves with its own.
func (k *Keeper) Leads(name string, subnet netip.Prefix) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	a, is := k.leads[subnet]
	for bits := subnet.Bits() - 1; !is && subnet.IsSingleIP() && bits >= 0; bits-- {
		wider, _ := subnet.Addr().Prefix(bits)
		a, is = k.leads[wider]
	}
	return is && slices.Contains(k.serves[name], a)
}

// Notes says what is in the way of this host's holding addresses, by the egress' name.
func (k *Keeper) Notes() map[string]Note {
	k.mu.Lock()
	defer k.mu.Unlock()
	notes := map[string]Note{}
	for name, n := range k.notes {
		notes[name] = n
	}
	return notes
}

func (k *Keeper) cases(snap *cluster.Snapshot) []egress.Case {
	return egress.Cases(snap, k.cfg.Self, k.cfg.Alive, k.cfg.Hear)
}

// Run holds and lets go until ctx is done, and leaves what it holds.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.forget(nil)
	for {
		changed := k.cfg.Replica.Watch()
		busy := k.step(ctx, k.cfg.Replica.Snapshot(), time.Now())
		var again <-chan time.Time
		if busy {
			again = time.After(tick)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-changed:
			select { // changes come in crowds
			case <-ctx.Done():
				return nil
			case <-time.After(tick / 10):
			}
		}
	}
}

// step has a round if one is due, or if the records or who answers have changed since the last one. It reports whether
// there is something to look after.
func (k *Keeper) step(ctx context.Context, snap *cluster.Snapshot, now time.Time) (busy bool) {
	var alive []bool
	for n := range cluster.All[cluster.Node](snap) {
		alive = append(alive, k.cfg.Alive(n.ID))
	}
	var heard []hearing
	for _, id := range k.seen.voters {
		is, known := k.cfg.Hear(id)
		heard = append(heard, hearing{is, known})
	}
	var links []bool
	for _, nic := range k.seen.nics {
		links = append(links, k.cfg.LAN.Linked(nic))
	}
	claims := k.claims.Load()
	if snap != k.seen.snap || claims != k.seen.claims || !slices.Equal(alive, k.seen.alive) || !slices.Equal(heard, k.seen.heard) || !slices.Equal(links, k.seen.links) || k.seen.busy && !now.Before(k.seen.due) {
		k.seen = seen{snap: snap, alive: alive, claims: claims}
		next, voters, busy := k.round(ctx, snap, now)
		k.seen.due, k.seen.busy = now.Add(next), busy
		for _, g := range voters {
			k.seen.voters, k.seen.heard = append(k.seen.voters, g.ID), append(k.seen.heard, hearing{!g.Unheard, !g.Asked})
		}
	}
	return k.seen.busy
}

// round does what is to be done now, and returns when the next one is due, if there is something to look after, and the
// gateways of which more than half must be heard for something.
func (k *Keeper) round(ctx context.Context, snap *cluster.Snapshot, now time.Time) (next time.Duration, voters []egress.Gateway, busy bool) {
	cases := k.cases(snap)
	if len(cases) == 0 && k.clean {
		return idle, nil, false
	}
	for _, c := range cases {
		if c.Egress.Quorum {
			voters = append(voters, c.Gateways...)
		}
	}
	view, err := k.cfg.LAN.Look()
	if err != nil {
		for _, c := range cases {
			k.note(c, Note{Err: err})
		}
		return idle, voters, true
	}
	next = idle
	names, routed := map[string]bool{}, k.cfg.Routed()
	for _, a := range routed.From {
		k.watch(view.Find(a), now)
	}
	mute := cutOff(snap, k.cfg.Self, view)
	var all errgroup.Group
	var unfit []cluster.UnfitCase
	found := make([]spots, len(cases))
	for i, c := range cases {
		if found[i] = spotsOf(c, view, routed); !c.Gateway() {
			continue
		}
		for _, s := range found[i] {
			if !s.routed() {
				k.watch(s.Place, now)
			}
		}
	}
	calm := steady{view, k.links, now}
	for i, c := range cases {
		p := spotsOf(c, calm, routed)
		if c.Gateway() && !p.fit() && len(unfit) < cluster.MaxUnfit {
			unfit = append(unfit, cluster.UnfitCase{Egress: c.Egress.Name, NIC: p.cut()})
		}
		if c.Others() { // who has nobody to leave it to makes do with the link that there is
			found[i] = p
		}
	}
	for _, nic := range k.seen.nics {
		if wait := k.links.wait(nic, now); wait > 0 {
			next = min(next, wait)
		}
	}
	later, failed := k.tellUnfit(snap, unfit, now)
	if failed != nil { // others wait for this host in vain
		k.log.Warn("what this host cannot hold is not told to others", "error", failed)
	}
	if later > 0 {
		next = min(next, later)
	}
	for i, c := range cases {
		names[c.Egress.Name] = true
		h := k.held[c.Egress.Name]
		if h == nil {
			h = &held{}
			k.held[c.Egress.Name] = h
		}
		c.Alone = mute || !c.Others()
		all.Go(func() error { h.next = k.one(ctx, c, h, found[i], now); return nil })
	}
	_ = all.Wait() // what fails is noted
	k.forget(names)
	for _, h := range k.held {
		next = min(next, h.next)
	}
	err = k.settle(ctx, snap, cases, view)
	if err != nil && ctx.Err() == nil {
		k.log.Warn("addresses for the outside", "error", err)
		next = tick
	}
	k.clean = len(cases) == 0 && err == nil && failed == nil && later == 0 && len(k.sources) == 0
	return next, voters, len(cases) > 0 || len(k.sources) > 0
}

// cutOff reports whether this host's way to the others has no link either: what it lets go nobody hears of, and the others see to
// it as they do when a host dies.
func cutOff(snap *cluster.Snapshot, self cluster.NodeID, view View) bool {
	n, _ := cluster.Get[cluster.Node](snap, string(self))
	a := n.Address()
	if n.Bind.IsValid() {
		a = n.Bind
	}
	return a.IsValid() && view.Find(a).Cut
}

// watch has the link of an interface looked at from one round to the next.
func (k *Keeper) watch(p lan.Place, now time.Time) {
	if p.NIC != "" {
		k.links.see(p.NIC, !p.Cut, now)
	}
	if p.NIC != "" && !slices.Contains(k.seen.nics, p.NIC) {
		k.seen.nics, k.seen.links = append(k.seen.nics, p.NIC), append(k.seen.links, !p.Cut)
	}
}

// tellUnfit tells others which egresses this host cannot hold, and returns when it is to, if it has told them something else but a
// moment ago: each record goes to all hosts.
func (k *Keeper) tellUnfit(snap *cluster.Snapshot, list []cluster.UnfitCase, now time.Time) (later time.Duration, err error) {
	said, _ := cluster.Get[cluster.Unfit](snap, string(k.cfg.Self))
	if slices.Equal(said.Egresses, list) {
		return 0, nil
	}
	if later = untold - now.Sub(k.said); later > 0 {
		return later, nil
	}
	k.said = now
	_, err = k.cfg.Replica.Update(func(tx *replica.Tx) error {
		if len(list) == 0 {
			tx.Delete(said.Key())
			return nil
		}
		return tx.Put(cluster.Unfit{Host: k.cfg.Self, Egresses: list})
	})
	return 0, err
}

// forget drops what is remembered of egresses that there are no more.
func (k *Keeper) forget(names map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, h := range k.held {
		if !names[name] {
			k.guard(name, &h.defender, nil)
			delete(k.held, name)
			delete(k.serves, name)
			delete(k.notes, name)
		}
	}
}

// one does what is to be done about one egress, and returns when it is to be looked at again.
func (k *Keeper) one(ctx context.Context, c egress.Case, h *held, p spots, now time.Time) (next time.Duration) {
	c.Has = p.ours() || k.Serves(c.Egress.Name)
	c.Here, c.Young = p.here() || h.away, now.Sub(k.started) <= patience
	verdict, nth := c.Judge()
	if verdict != egress.Take {
		h.since = time.Time{}
	}
	h.look(c, verdict, p, now)
	if verdict != egress.Leave && p.fit() {
		if err := p.gather(k.cfg.LAN); err != nil {
			k.note(c, Note{Err: err})
			return k.later(c, retry)
		}
	}
	holds := verdict == egress.Hold && p.here() && k.took(c.Egress) && p.fit() && !h.away
	if holds {
		k.guard(c.Egress.Name, &h.defender, p)
	} else {
		k.guard(c.Egress.Name, &h.defender, nil)
	}
	switch {
	case verdict == egress.Leave:
		var err error
		if p.ours() {
			err = p.remove(k.cfg.LAN)
			k.log.Info("the address of an egress is another host's, or not to be held here", "egress", c.Egress.Name, "addresses", c.Egress.Addrs, "error", err)
		}
		k.serve(c, false)
		k.note(c, Note{Twice: p.theirs() && c.Holder != "" && c.Holder != k.cfg.Self, Err: err})
	case holds:
		next = k.tell(ctx, c, h, p, now)
		n := Note{Err: h.failed}
		if who := h.rival.Load(); who != nil {
			n.Rival = *who
		}
		k.note(c, n)
		return next
	case verdict == egress.Hold && (p.here() || h.away) && k.took(c.Egress) && p.cut() != "" && (c.Alone || now.Sub(h.cut) < linkless):
		h.announce, h.pause = time.Time{}, 0 // the LAN is told when there is a link again
		n := Note{Cut: p.cut()}
		if h.away && p.onLAN() {
			n.Err = p.remove(k.cfg.LAN)
			k.log.Info("this host has no link for the address of an egress, and nobody to leave it to", "egress", c.Egress.Name, "addresses", c.Egress.Addrs, "without a link", p.cut(), "error", n.Err)
		}
		if k.note(c, n); !c.Alone || !h.away {
			return tick
		}
	case !p.fit():
		k.serve(c, false)
		err := p.remove(k.cfg.LAN)
		if c.Holder == k.cfg.Self && k.caughtUp(now) && h.informed(now) { // another gateway may have interfaces for all, with links
			k.log.Info("this host cannot hold the address of an egress any more", "egress", c.Egress.Name, "addresses", c.Egress.Addrs, "without a link", p.cut())
			err = errors.Join(err, k.record(c, cluster.EgressHolder{Egress: c.Egress.Name}))
		}
		k.note(c, Note{Unfit: p.cut() == "", Cut: p.cut(), Err: err})
	case !k.caughtUp(now):
		return k.later(c, tick)
	case now.Before(h.again):
		return k.later(c, h.again.Sub(now))
	case verdict == egress.Take && !p.here() && !h.turn(nth, now): // others come first
		return k.later(c, tick)
	default:
		n := k.take(ctx, c, p, h.away)
		if n != nil {
			if n.Occupied != nil && h.away || !p.here() && !h.away || !k.took(c.Egress) { // as after it was given another address
				k.serve(c, false)
			}
			if c.Holder == k.cfg.Self && (n.Occupied != nil || !p.here()) && ctx.Err() == nil {
				n.Err = errors.Join(n.Err, p.remove(k.cfg.LAN))
				if h.informed(now) { // another gateway may be able to
					n.Err = errors.Join(n.Err, k.record(c, cluster.EgressHolder{Egress: c.Egress.Name}))
				}
			}
			h.again = now.Add(retry)
			k.note(c, *n)
			return retry
		}
		h.announce, h.pause, h.back, h.away = time.Time{}, 0, h.away, false
		h.rival.Store(nil)
		next = k.tell(ctx, c, h, p, now)
		k.note(c, Note{Err: h.failed})
		return next
	}
	return idle
}

// look notes since when the link is gone, whether the holder has to ask before it goes on with the address, and since when others
// are heard.
func (h *held) look(c egress.Case, verdict egress.Verdict, p spots, now time.Time) {
	switch long := !h.cut.IsZero() && now.Sub(h.cut) >= linkless; {
	case verdict != egress.Hold:
		h.away = false
	case long && (c.Alone || p.cut() == ""):
		h.away = true
	}
	switch {
	case p.cut() == "":
		h.cut = time.Time{}
	case h.cut.IsZero():
		h.cut = now
	}
	switch {
	case !slices.ContainsFunc(c.Gateways, func(g egress.Gateway) bool { return g.ID != c.Self && g.Alive }):
		h.met = time.Time{}
	case h.met.IsZero():
		h.met = now
	}
	h.back = h.back && !h.heard(now)
}

// heard reports whether another gateway has been heard for long enough that it has told what it knows.
func (h *held) heard(now time.Time) bool { return !h.met.IsZero() && now.Sub(h.met) >= patience }

// informed reports whether this host, if it was away, has heard from others who took the address meanwhile, if somebody did. A
// record that it writes before may count more than theirs.
func (h *held) informed(now time.Time) bool {
	return !h.away || h.heard(now)
}

// turn reports whether the nth has its turn, of those that are to take it.
func (h *held) turn(nth int, now time.Time) bool {
	if h.since.IsZero() {
		h.since = now
	}
	return now.Sub(h.since) >= time.Duration(min(nth, turns))*turn
}

// caughtUp reports whether this host knows what the others do, or has waited for it.
func (k *Keeper) caughtUp(now time.Time) bool {
	select {
	case <-k.cfg.Replica.CaughtUp():
		return true
	default:
		return now.Sub(k.started) > patience
	}
}

// take makes this host the holder: nobody else has the address; NAT is in place before the record leads others here. It
// returns what is in the way, if something is. Who was away asks for what it has as well.
func (k *Keeper) take(ctx context.Context, c egress.Case, p spots, away bool) *Note {
	asked := slices.DeleteFunc(slices.Clone(p), func(s spot) bool { return s.Here && c.Holder == k.cfg.Self && !away })
	who, err := asked.probe(ctx, k.cfg.LAN)
	switch {
	case len(who) > 0:
		return occupied(who, k.cfg.Replica.Snapshot(), c)
	case err != nil:
		return &Note{Err: err}
	}
	if err := p.add(k.cfg.LAN); err != nil {
		return &Note{Err: err}
	}
	k.serve(c, true)
	err = k.tellNAT(k.cfg.Replica.Snapshot())
	if err == nil {
		err = k.record(c, cluster.EgressHolder{Egress: c.Egress.Name, Host: k.cfg.Self, MAC: p[0].MAC.String()})
	}
	if err != nil {
		k.serve(c, false)
		return &Note{Err: errors.Join(err, p.undo(k.cfg.LAN))}
	}
	if err := k.placed(ctx); err != nil {
		k.log.Warn("the switch does not lead an egress out yet", "egress", c.Egress.Name, "error", err)
	}
	k.log.Info("this host holds the address of an egress", "egress", c.Egress.Name, "addresses", c.Egress.Addrs, "interface", p[0].NIC)
	return nil
}

var errMoved = errors.New("somebody else was faster")

// record writes who holds an egress, unless that is another one by now than when it was judged.
func (k *Keeper) record(c egress.Case, h cluster.EgressHolder) error {
	_, err := k.cfg.Replica.Update(func(tx *replica.Tx) error {
		snap := tx.Snapshot()
		had, _ := cluster.Get[cluster.EgressHolder](snap, c.Egress.Name)
		if _, there := egress.Get(snap, c.Egress.Name); !there || had.Host != c.Holder {
			return errMoved
		}
		if had == h {
			return nil
		}
		return tx.Put(h)
	})
	return err
}

// tell tells the LAN that the address is here: some times at first, and when gateways come back, among which may be
// one that had it meanwhile. It returns when it is to be told again, or looked at.
func (k *Keeper) tell(ctx context.Context, c egress.Case, h *held, p spots, now time.Time) (next time.Duration) {
	var alive []bool
	for _, g := range c.Gateways {
		alive = append(alive, g.Alive)
	}
	if !slices.Equal(alive, h.alive) {
		h.announce, h.pause, h.alive = time.Time{}, 0, alive
	}
	defends, answer := k.defend(c, &h.defender, now)
	if now.Before(h.announce) && !defends {
		return min(idle, answer, h.announce.Sub(now))
	}
	limit := reannounce
	if h.back { // what lies between may have let nothing through when it asked last
		limit = settled
		if who, err := p.probe(ctx, k.cfg.LAN); err == nil && len(who) > 0 {
			h.away = true
			return tick
		}
	}
	if h.failed = p.announce(k.cfg.LAN); h.failed != nil {
		h.announce = now.Add(retry)
		return retry
	}
	if h.told(now); h.pause >= settled && h.asking.CompareAndSwap(false, true) {
		go k.ask(ctx, c, h, p)
	}
	h.pause = min(max(tick, 2*h.pause), limit)
	h.announce = now.Add(h.pause)
	return min(idle, h.pause)
}

// ask asks whether another machine has what this host holds, as one may that came to the LAN later.
func (k *Keeper) ask(ctx context.Context, c egress.Case, h *held, p spots) {
	defer h.asking.Store(false)
	who, err := p.probe(ctx, k.cfg.LAN)
	switch had := h.rival.Load(); {
	case err != nil:
		k.log.Debug("ask who else has the address of an egress", "egress", c.Egress.Name, "error", err)
	case len(who) == 0:
		h.rival.Store(nil)
	default:
		if h.rival.Store(&who[0]); had == nil {
			k.log.Warn("another machine has the address of an egress that this host holds", "egress", c.Egress.Name, "addresses", c.Egress.Addrs, "mac", who[0])
		}
	}
}

func (k *Keeper) serve(c egress.Case, yes bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if delete(k.serves, c.Egress.Name); yes {
		k.serves[c.Egress.Name] = c.Egress.Addrs
	}
}

// took reports whether what is served of an egress is what it has for addresses now, and not what it had before.
func (k *Keeper) took(e cluster.Egress) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Equal(k.serves[e.Name], e.Addrs)
}

// later is when an egress that is not taken now is looked at again. By addresses that it had before nothing leaves until then.
func (k *Keeper) later(c egress.Case, next time.Duration) time.Duration {
	if !k.took(c.Egress) {
		k.serve(c, false)
	}
	return next
}

func (k *Keeper) note(c egress.Case, n Note) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notes[c.Egress.Name] = n
}

// tellNAT declares the sources of what is served.
func (k *Keeper) tellNAT(snap *cluster.Snapshot) error {
	want := k.wanted(snap)
	k.nat.Lock()
	defer k.nat.Unlock()
	all := slices.Clone(k.sources)
	for _, s := range want {
		if !slices.Contains(all, s) {
			// Of one subnet there is one source.
			all = slices.DeleteFunc(all, func(o nat.Source) bool { return o.Subnet == s.Subnet })
			all = append(all, s)
		}
	}
	return k.setNAT(all)
}

// setNAT is called with nat held.
func (k *Keeper) setNAT(all []nat.Source) error {
	slices.SortFunc(all, func(a, b nat.Source) int { return a.Subnet.Compare(b.Subnet) })
	if slices.Equal(all, k.sources) {
		return nil // it does not wait for iptables each time
	}
	stays := func(s nat.Source) bool {
		return slices.ContainsFunc(all, func(o nat.Source) bool { return o.Subnet == s.Subnet })
	}
	k.lead(slices.DeleteFunc(slices.Clone(k.sources), func(s nat.Source) bool { return !stays(s) }))
	err := k.cfg.Serve(all)
	if err == nil {
		k.sources = all
		k.lead(all)
	}
	return err
}

// lead notes what NAT has.
func (k *Keeper) lead(sources []nat.Source) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leads = make(map[netip.Prefix]netip.Addr, len(sources))
	for _, s := range sources {
		k.leads[s.Subnet] = s.Address
	}
}

// wanted are the sources of what is served. An address that an egress has by now, and that was not asked for yet, is none.
func (k *Keeper) wanted(snap *cluster.Snapshot) (list []nat.Source) {
	all := egress.All(snap)
	took := map[string]cluster.Egress{}
	for _, e := range all {
		if !k.took(e.Egress) {
			continue
		}
		if took[e.Name] = e.Egress; len(e.Labels) > 0 {
			continue
		}
		for s := range cluster.All[cluster.Subnet](snap) {
			if a := e.Addr(s.Prefix.Addr().Is6()); a.IsValid() && slices.Contains(e.Networks, s.Network) && !slices.Contains(e.Taken, s.Network) {
				list = append(list, nat.Source{Subnet: s.Prefix, Address: a})
			}
		}
	}
	for _, l := range egress.NewChoice(snap, all).Leaving(k.cfg.Self) {
		e := took[l.By]
		if a := e.Addr(l.Addr.Is6()); len(e.Labels) > 0 && l.Known && a.IsValid() {
			list = append(list, nat.Source{Subnet: netip.PrefixFrom(l.Addr, l.Addr.BitLen()), Address: a})
		}
	}
	return list
}

// placed returns when the switch heeds what is served.
func (k *Keeper) placed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return k.cfg.Placed(ctx)
}

// settle makes NAT, and addresses that are nobody's any more, follow. What is served no more leaves the switch before
// its rule goes: nothing leaves by another address in between.
func (k *Keeper) settle(ctx context.Context, snap *cluster.Snapshot, cases []egress.Case, view View) error {
	k.nat.Lock()
	before := k.sources
	k.nat.Unlock()
	err := k.tellNAT(snap)
	want := k.wanted(snap)
	k.nat.Lock()
	came := slices.ContainsFunc(want, func(s nat.Source) bool { return !slices.Contains(before, s) })
	gone := slices.ContainsFunc(k.sources, func(s nat.Source) bool { return !slices.Contains(want, s) })
	k.nat.Unlock()
	if (gone || came) && err == nil {
		if err = k.placed(ctx); err == nil && gone {
			k.nat.Lock()
			// Of a container's address that another one has now: that one leaves when NAT gives it what is its own.
			single := slices.ContainsFunc(k.sources, func(s nat.Source) bool { return s.Subnet.IsSingleIP() && !slices.Contains(want, s) })
			err = k.setNAT(want)
			k.nat.Unlock()
			if err == nil && single {
				err = k.placed(ctx)
			}
		}
	}
	var more error
	for _, a := range view.Ours() {
		if !slices.ContainsFunc(cases, func(c egress.Case) bool { return slices.Contains(c.Egress.Addrs, a) }) {
			more = errors.Join(more, k.cfg.LAN.Remove(a))
		}
	}
	return errors.Join(err, more)
}
