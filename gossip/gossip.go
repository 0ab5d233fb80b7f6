package gossip

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// Gossip is a host's part in the cluster. New makes one.
type Gossip struct {
	*core
	state     State
	ml        *memberlist.Memberlist
	judge     *logWriter
	door      *door
	transport *transport
	runID     uint64 // random: this run of the agent, of which a copy is another
	running   atomic.Bool
	begun     chan struct{} // closed by Run

	keyring  *keyring
	presence *presence
	roster   *roster
	refusals *refusals

	mu        sync.Mutex     // guards the next block; no call of memberlist under it
	clone     netip.AddrPort // who else has our ID
	cloneSeen time.Time
	handlers  map[string]Handler
	early     [][]byte // broadcasts that wait for the first peer

	rejoin  chan struct{} // room for one: dial lost peers now
	spread  chan int      // room for one: compare digests now, with as many peers
	company chan struct{} // room for one: the first peer is there

	out          outbox
	pace         pace
	mergeMu      sync.Mutex // one State.MergeAll at a time
	seen         *recent
	epochs       *epochs
	incoming     chan delta
	incomingHeld atomic.Int64 // bytes in incoming
	hints        chan hint
	meet         chan summary
	sessions     sessionTable
	watch        *watch
	twins        twins
	silences     silences

	calls   callTable
	slots   chan struct{} // of running handlers
	serving atomic.Int32  // requests in any stage
}

// New listens for peers, and answers them at memberlist's level; everything else
// waits for Run. It fails if the configuration is wrong or the address is taken.
// Whoever does not call Run must call Close.
func New(cfg Config, state State) (*Gossip, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	self, err := parseNode(cfg.Node)
	if err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	c := &core{cfg: cfg, self: self, log: cfg.Log, started: time.Now(), work: newTasks()}
	g := &Gossip{
		core: c, state: state, runID: rand.Uint64(), judge: newLogWriter(c.log, &c.stats),
		handlers: map[string]Handler{}, begun: make(chan struct{}),
		rejoin: make(chan struct{}, 1), spread: make(chan int, 1), company: make(chan struct{}, 1),
		incoming: make(chan delta, incomingLimit), hints: make(chan hint, hintLimit), meet: make(chan summary),
		seen: newRecent(seenLimit), epochs: newEpochs(), slots: make(chan struct{}, maxHandlers), calls: newCallTable(), sessions: newSessionTable(),
		twins: twins{looks: map[twin]time.Time{}}, silences: silences{of: map[string]time.Time{}},
	}
	if g.keyring, err = newKeyring(cfg.Keys); err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	g.door = newDoor(g)
	g.watch = newWatch(g.self, cfg.Timing.Beat, cfg.Run)
	g.presence = newPresence(c, g.epochs, func() { poke(g.rejoin) })
	g.roster = newRoster(c, g.presence, g.watch)
	g.refusals = newRefusals(c, &g.judge.strangers)
	g.presence.adopt(cfg.ClusterID)
	g.pace.short = cfg.Timing.Gossip
	g.out = newOutbox(func() int { return int(g.roster.alive.Load()) + 1 })
	if err := g.listen(); err != nil {
		return nil, fmt.Errorf("gossip: listen on %v: %w%s", cfg.Bind, err, listenAdvice(err))
	}
	return g, nil
}

// listenAdvice says what to do about an address that cannot be listened on.
// memberlist's error has the system's as text only.
func listenAdvice(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, syscall.EADDRINUSE.Error()):
		return "; stop the program that has this port (`ss -lntup` names it), or set GRAPEVINE_PORT, the same on every host"
	case strings.Contains(text, syscall.EADDRNOTAVAIL.Error()):
		return "; set GRAPEVINE_BIND to an address of this host, or leave it out for all"
	}
	return ""
}

// Addr is where peers reach this host: Advertise, or what became of Bind.
func (g *Gossip) Addr() netip.AddrPort { return g.addr }

// Run joins the cluster and keeps the host in it until ctx ends; then it stops as
// Close does and returns nil. It may be called once.
func (g *Gossip) Run(ctx context.Context) error {
	if g.running.Swap(true) {
		return errors.New("gossip: Run was called before")
	}
	close(g.begun)
	for _, f := range []func(context.Context){
		g.joinLoop, g.presence.announceLoop, g.roster.saveLoop, g.mergeLoop, g.bulkLoop, g.earlyLoop, g.compareLoop, g.fetchLoop, g.meetLoop, g.beatLoop, g.againLoop,
	} {
		if !g.work.spawn(f) {
			return errors.New("gossip: Run after Close")
		}
	}
	select {
	case <-ctx.Done():
	case <-g.work.ctx.Done():
	}
	return g.Close()
}

// Close stops without a word to the peers, which take the host for dead after a
// while: see Leave. It ends Run, fails calls that wait, cancels the contexts of
// handlers and waits for them. Calling it again does nothing.
func (g *Gossip) Close() error {
	g.work.cancel()
	err := g.presence.end()
	g.work.wait()
	if err != nil {
		return fmt.Errorf("gossip: close: %w", err)
	}
	return nil
}

// Leave tells the peers that this host goes for good, so that they do not take
// it for dead, dial it or remember it: they believe it by what they know of it (Config.Left),
// which the caller sees to first. It blocks until that has been sent, a few
// hundred milliseconds, or ctx ends. The host stays able to answer calls until
// Run ends; it cannot come back but with a new Gossip.
func (g *Gossip) Leave(ctx context.Context) error { return g.presence.leave(ctx) }

// Depart tells the peers that this host ends here, and will be back at another address:
// they take it for dead at once, and its new address as soon as they hear of it. It
// blocks until that has been sent, at most a second. Close and a new Gossip come next.
func (g *Gossip) Depart(ctx context.Context) error { return g.presence.depart(ctx) }

// ClusterID returns the ID of the cluster this host is in, "" if none yet.
func (g *Gossip) ClusterID() string { return g.presence.clusterID() }

// SetClusterID makes this host the seed of a new cluster. It is an error if the
// host is in another one already.
func (g *Gossip) SetClusterID(id string) error { return g.presence.seed(id) }

// ClusterKnown waits until the host is in a cluster, and returns its ID.
func (g *Gossip) ClusterKnown(ctx context.Context) (string, error) { return g.presence.await(ctx) }

// Members lists this host and every other one seen, sorted by ID.
func (g *Gossip) Members() []Member {
	own := Member{ID: g.cfg.Node, Name: g.cfg.Name, Addr: g.addr, State: Alive, Since: g.started, Self: true}
	if g.presence.leaves() {
		own.State = Left
	}
	list := append(g.roster.list(), own)
	slices.SortFunc(list, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// Member returns another host, as Members lists it; false: it has not been seen.
func (g *Gossip) Member(id string) (Member, bool) { return g.roster.get(id) }

// Alive lists the IDs of the other hosts that answer, in random order, those in doubt last.
func (g *Gossip) Alive() []string { return g.roster.answering() }

// Forget drops a host that is not alive from what is remembered: it is not
// dialled again, and Members does not list it. If it comes back it is met anew.
func (g *Gossip) Forget(id string) { g.roster.forget(id) }

// Problems returns what keeps hosts apart, for people: each host of another
// version, and each ID that two hosts have. A problem goes when
// that host is admitted, or was not seen for problemMemory: a host that has only
// changed its address looks like two for a moment.
func (g *Gossip) Problems() []string { return g.refusals.Problems() }

// Suspects returns which hosts send what the State refuses, and why, for people.
func (g *Gossip) Suspects() []string { return g.refusals.suspects() }

// Foreigners lists the hosts of other clusters that this one has met of late, by address.
func (g *Gossip) Foreigners() []Foreign { return g.refusals.foreigners() }

// Strangers lists who has spoken, or answered, of late with a gossip key that this host does
// not have. A host that is a member by now is none, whatever it said before.
func (g *Gossip) Strangers() []Stranger {
	list := g.judge.strangers.list(time.Now())
	if len(list) == 0 {
		return nil
	}
	return g.roster.without(list)
}

// InstallKey adds a key that decrypts. Rotation over a cluster is: install the
// new key on every host, then use it on every host, then remove the old one.
func (g *Gossip) InstallKey(key []byte) error { return g.keyring.install(key) }

// UseKey makes an installed key the one that encrypts.
func (g *Gossip) UseKey(key []byte) error { return g.keyring.use(key) }

// RemoveKey takes a key off the ring. The key in use cannot be removed; one that
// is not there already is removed.
func (g *Gossip) RemoveKey(key []byte) error { return g.keyring.remove(key) }

// ListKeys returns copies of the keys, the one in use first.
func (g *Gossip) ListKeys() [][]byte { return g.keyring.list() }
