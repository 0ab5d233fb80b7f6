package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// Gossip is a host's part in the cluster. New makes one.
type Gossip struct {
	cfg       Config
	self      nodeID
	state     State
	log       *slog.Logger
	ml        *memberlist.Memberlist
	judge     *logWriter
	door      *door
	transport *transport
	addr      netip.AddrPort // advertised
	runID     uint64         // random: this run of the agent, of which a copy is another
	started   time.Time
	stats     counters
	running   atomic.Bool
	begun     chan struct{} // closed by Run
	alive     atomic.Int32  // peers that answer
	members   atomic.Uint64 // hash of them and us: see memberHash

	keyMu   sync.Mutex // changes of the keyring: one at a time
	keyring *memberlist.Keyring

	mu        sync.Mutex // guards the next block; no call of memberlist under it
	cluster   string
	told      []byte // our meta as memberlist has it
	leaving   bool
	peers     map[string]*peer
	newest    census // of the peers that answer
	gone      gone
	problems  map[string]problem
	clone     netip.AddrPort // who else has our ID
	cloneSeen time.Time
	handlers  map[string]Handler
	early     [][]byte // broadcasts that wait for the first peer

	clusterKnown chan struct{} // closed when cluster is set
	announce     chan struct{} // room for one: our meta has changed
	saveKnown    chan struct{} // room for one: the peers have changed
	rejoin       chan struct{} // room for one: dial lost peers now
	spread       chan int      // room for one: compare digests now, with as many peers
	company      chan struct{} // room for one: the first peer is there

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

	node nodeLock
	down bool // guarded by node
	work tasks
}

// New listens for peers, and answers them at memberlist's level; everything else
// waits for Run. It fails if the configuration is wrong or the address is taken.
// Whoever does not call Run must call Close.
func New(cfg Config, state State) (*Gossip, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	g := &Gossip{
		cfg: cfg, state: state, log: cfg.Log, started: time.Now(), runID: rand.Uint64(),
		peers: map[string]*peer{}, newest: census{}, problems: map[string]problem{}, handlers: map[string]Handler{},
		clusterKnown: make(chan struct{}), begun: make(chan struct{}),
		announce: make(chan struct{}, 1), saveKnown: make(chan struct{}, 1),
		rejoin: make(chan struct{}, 1), spread: make(chan int, 1), company: make(chan struct{}, 1),
		incoming: make(chan delta, incomingLimit), hints: make(chan hint, hintLimit), meet: make(chan summary),
		seen: newRecent(seenLimit), epochs: newEpochs(), slots: make(chan struct{}, maxHandlers), calls: newCallTable(), sessions: newSessionTable(), work: newTasks(),
		node: make(nodeLock, 1), twins: twins{looks: map[twin]time.Time{}}, silences: silences{of: map[string]time.Time{}},
	}
	var err error
	if g.self, err = parseNode(cfg.Node); err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	g.door = newDoor(g)
	g.watch = newWatch(g.self, cfg.Timing.Beat, cfg.Run)
	for _, p := range cfg.Known {
		if _, err := parseNode(p.ID); err == nil && p.ID != cfg.Node && p.Addr.IsValid() {
			g.peers[p.ID] = &peer{Member: Member{ID: p.ID, Addr: p.Addr, State: Dead, Since: g.started}}
		}
	}
	g.adopt(cfg.ClusterID)
	g.pace.short = cfg.Timing.Gossip
	g.out = newOutbox(func() int { return int(g.alive.Load()) + 1 })
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
		g.joinLoop, g.announceLoop, g.saveLoop, g.mergeLoop, g.bulkLoop, g.earlyLoop, g.compareLoop, g.fetchLoop, g.meetLoop, g.beatLoop, g.againLoop,
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
	g.node.lock()
	g.down = true
	err := g.ml.Shutdown()
	g.node.unlock()
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
func (g *Gossip) Leave(ctx context.Context) error {
	g.mu.Lock()
	again := g.leaving
	g.leaving = true
	g.mu.Unlock()
	if again {
		return nil
	}
	limit := 5 * time.Second
	if t, ok := ctx.Deadline(); ok {
		limit = max(time.Until(t), time.Millisecond)
	}
	g.node.lock()
	defer g.node.unlock()
	if g.down {
		return nil
	}
	// First the flag that tells those of version 2 a leave from a death, then the leave itself.
	g.publish(limit / 4)
	if err := g.ml.Leave(limit / 2); err != nil {
		return fmt.Errorf("gossip: leave: %w", err)
	}
	return nil
}

// Depart tells the peers that this host ends here, and will be back at another address:
// they take it for dead at once, and its new address as soon as they hear of it. It
// blocks until that has been sent, at most a second. Close and a new Gossip come next.
func (g *Gossip) Depart(ctx context.Context) error {
	g.node.lock()
	defer g.node.unlock()
	if g.down || ctx.Err() != nil {
		return nil
	}
	if err := g.ml.Leave(time.Second); err != nil {
		return fmt.Errorf("gossip: depart: %w", err)
	}
	return nil
}

// publish tells the peers our meta, and waits for limit at most until it has been sent.
// memberlist says nothing, but for that wait, where it refutes what another host says of us
// at the same moment; then it is told once more. The caller holds node.
func (g *Gossip) publish(limit time.Duration) {
	for range 2 {
		if err := g.ml.UpdateNode(limit); err != nil {
			g.log.Debug("announce", "err", err)
		}
		g.mu.Lock()
		told := bytes.Equal(g.told, g.nodeMeta())
		g.mu.Unlock()
		if told {
			return
		}
	}
	poke(g.announce)
}

// announceLoop tells the peers when our meta has changed.
func (g *Gossip) announceLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.announce:
		}
		g.node.lock()
		g.mu.Lock()
		leaving := g.leaving
		g.mu.Unlock()
		if !g.down && !leaving { // memberlist may have forgotten a node that left
			g.publish(500 * time.Millisecond)
		}
		g.node.unlock()
	}
}
