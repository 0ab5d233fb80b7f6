package gossip

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// Gossip is a host's part in the cluster. New makes one. It is its rooms, each of which has a state
// and a lock of its own.
type Gossip struct {
	*core
	ml      *memberlist.Memberlist
	judge   *logWriter
	running atomic.Bool

	// Who is there.
	presence *presence // this host
	roster   *roster   // the others
	watch    *watch    // who is in doubt
	refusals *refusals // who is kept out, and why
	clones   *clones   // who is there twice
	prover   *prover
	hearer   *hearer // who has been heard since this host was stalled

	// What comes and goes.
	keyring *keyring
	door    *door
	inbox   *inbox
	post    *post

	// What hosts do with each other.
	spreader *spreader
	merger   *merger
	comparer *comparer
	fetcher  *fetcher
	caller   *caller
	server   *server
	dialer   *dialer
	meeter   *meeter
	beater   *beater
	trier    *trier
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
	g := &Gossip{core: c, judge: newLogWriter(c.log, &c.stats), watch: newWatch(self, cfg.Timing.Beat, cfg.Run)}
	if g.keyring, err = newKeyring(cfg.Keys); err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	g.furnish(state)
	g.presence.adopt(cfg.ClusterID)
	if err := g.listen(); err != nil {
		return nil, fmt.Errorf("gossip: listen on %v: %w%s", cfg.Bind, err, listenAdvice(err))
	}
	return g, nil
}

// furnish makes the rooms.
func (g *Gossip) furnish(state State) {
	c, served, dial := g.core, newEpochs(), make(chan struct{}, 1)
	g.presence = newPresence(c, served, func() { poke(dial) })
	g.roster = newRoster(c, g.presence, g.watch)
	g.refusals = newRefusals(c, &g.judge.strangers)
	g.door = newDoor(c, g.roster, g.keyring)
	g.post = &post{core: c, presence: g.presence, roster: g.roster, door: g.door}

	g.caller = &caller{core: c, roster: g.roster, post: g.post, calls: newCallTable()}
	g.prover = &prover{core: c, roster: g.roster, caller: g.caller, run: rand.Uint64(), silences: silences{of: map[string]time.Time{}}}
	g.clones = &clones{core: c, prover: g.prover, refusals: g.refusals, looks: map[clone]time.Time{}}
	g.trier = &trier{core: c, roster: g.roster, post: g.post, caller: g.caller}
	g.dialer = &dialer{core: c, presence: g.presence, roster: g.roster, refusals: g.refusals, post: g.post, now: dial}
	g.meeter = &meeter{core: c, watch: g.watch, roster: g.roster, prover: g.prover, post: g.post, others: make(chan summary)}

	g.spreader = newSpreader(c, g.presence, g.roster, g.post)
	g.hearer = newHearer(c, g.roster, g.prover, g.watch)
	g.beater = &beater{core: c, watch: g.watch, hearer: g.hearer, roster: g.roster, post: g.post, meeter: g.meeter, spreader: g.spreader, turn: make(chan struct{}, 1)}
	g.merger = &merger{core: c, state: state, roster: g.roster, refusals: g.refusals, spreader: g.spreader, incoming: make(chan delta, incomingLimit)}
	g.fetcher = &fetcher{core: c, state: state, caller: g.caller, merger: g.merger, spreader: g.spreader, sessions: newSessionTable()}
	g.comparer = &comparer{
		core: c, state: state, roster: g.roster, post: g.post, meeter: g.meeter, fetcher: g.fetcher,
		hints: make(chan hint, hintLimit), spread: make(chan int, 1),
	}
	g.merger.compare, g.fetcher.hint = g.comparer.ask, g.comparer.hint
	g.server = &server{
		core: c, roster: g.roster, post: g.post, prover: g.prover, clones: g.clones, fetcher: g.fetcher, epochs: served,
		begun: make(chan struct{}), slots: make(chan struct{}, maxHandlers), handlers: map[string]Handler{},
	}
	g.caller.run = func(ctx context.Context, method string, body []byte) ([]byte, error) {
		return g.server.run(ctx, c.cfg.Node, method, body)
	}
	g.inbox = &inbox{
		core: c, presence: g.presence, roster: g.roster, refusals: g.refusals,
		merger: g.merger, comparer: g.comparer, beater: g.beater, server: g.server, caller: g.caller,
	}
	g.door.beats = g.inbox.receive
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
	close(g.server.begun)
	for _, f := range []func(context.Context){
		g.dialer.loop, g.dialer.againLoop, g.presence.announceLoop, g.roster.saveLoop, g.merger.loop, g.spreader.bulkLoop, g.spreader.earlyLoop,
		g.comparer.compareLoop, g.comparer.fetchLoop, g.meeter.loop, g.beater.loop,
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

// Broadcast spreads a message for the peers' State.Merge. It does not block and
// may lose it; anti-entropy mends that, if the State has what it says. Messages of
// up to MaxBroadcast bytes travel best. While no peer is there to hear them the last
// ones are kept for the first that comes.
func (g *Gossip) Broadcast(b []byte) { g.spreader.broadcast(b) }

// Call asks a host to run the handler of a method, and returns what it returns:
// its result, or a *RemoteError with its error's text. It blocks until then, until
// ctx ends (default: 30 s) or until the host is found dead. A host that is known
// to be dead, or not known, is an error at once (ErrUnreachable). While the host
// has too many calls at once, Call asks again. The handler runs at most once; after
// an error that is not a RemoteError it may have run. A call to this host itself
// runs in place. Bodies have at most MaxBody bytes and must not be changed
// afterwards.
func (g *Gossip) Call(ctx context.Context, node, method string, body []byte) ([]byte, error) {
	return g.caller.call(ctx, node, method, body)
}

// Handle sets the handler of a method, replacing an earlier one. Methods that
// begin with "gossip." are this package's own. A panic in a handler is counted,
// logged and returned to the caller as an error.
func (g *Gossip) Handle(method string, h Handler) { g.server.handle(method, h) }

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

// Heard reports whether another host is alive and not in doubt, and has proven that it is there since this process was
// last stalled, or started. If it has not it is asked in the background, and until it has had the time to answer it is not
// known whether it is there: who wants to know asks again. It does not block.
func (g *Gossip) Heard(id string) (heard, known bool) { return g.hearer.heard(id) }

// Hurry says whether anything needs a host that is silent to be in doubt within a second or so, as at first. Else this host
// beats less often, and those that do as well are in doubt within some seconds. Where a host of an older version answers all hurry.
func (g *Gossip) Hurry(yes bool) { g.beater.hurry(yes) }

// Forget drops a host that is not alive from what is remembered: it is not
// dialled again, and Members does not list it. If it comes back it is met anew.
func (g *Gossip) Forget(id string) { g.roster.forget(id) }

// Try finds out in two seconds whether both streams and packets go to a host that is alive and
// come back. memberlist is content with either, and an agent needs both. Of a host of an older
// version it says that they do. With packets it is content if those do, and else takes half a second more.
func (g *Gossip) Try(ctx context.Context, node string, packets bool) Trial {
	return g.trier.try(ctx, node, packets)
}

// Tried is when a host last had this one answer a Try of streams: it was opened from there, and the answer's from here. Zero: never.
func (g *Gossip) Tried(node string) time.Time { return g.roster.tried(node) }

// Present asks where a host was last, and at other addresses, whether it is there, and reports
// whether it proves that before ctx ends. It blocks for two seconds if there is no answer.
// Hosts of version 2 do not know how.
func (g *Gossip) Present(ctx context.Context, node string, at ...netip.AddrPort) bool {
	return g.prover.present(ctx, node, at...)
}

// Silent reports whether a host was asked lately, as Present does, and has not proved that it
// is there. If it was not, it is asked in the background: who wants to know asks again. It
// does not block.
func (g *Gossip) Silent(node string, at ...netip.AddrPort) bool { return g.prover.silent(node, at...) }

// Clone returns the address at which another host has proved within the last minute that it
// has this host's ID and key, and whether there is one.
func (g *Gossip) Clone() (at netip.AddrPort, ok bool) { return g.clones.clone() }

// CloneSought reports whether it is being found out just now whether there is a Clone.
func (g *Gossip) CloneSought() bool { return g.clones.looking(g.self) }

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
