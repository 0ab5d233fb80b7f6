// Package overlay makes the switch of this host what the cluster's state says it
// should be. One loop takes a snapshot, plans, compiles and diffs it against what
// the switch has, and applies the difference as one bundle. A new container, a
// gossiped change, a wiped switch, a restarted daemon and a restarted agent are all
// the same to it; what is as it should be is never touched.
package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/service/expose"
)

// Source is where snapshots come from (package replica). The channel is closed at
// the change after the call; it is taken before the snapshot.
type Source interface {
	Snapshot() *cluster.Snapshot
	Watch() <-chan struct{}
}

// Tunnel carries packets to other hosts. Ensure and SetVTEPs are idempotent and declare
// the whole state.
type Tunnel interface {
	// Ensure makes the tunnel's device and returns its name. A device that is no port
	// of the bridge yet is made one by the caller.
	Ensure(ctx context.Context) (port string, err error)
	// SetVTEPs declares all remote VTEPs by index. It is called with what is new
	// before flows use it, and without what is old after.
	SetVTEPs(ctx context.Context, vteps map[uint32]netip.Addr) error
	// Foreign counts the packets that the tunnel itself, and not the switch, has dropped
	// since no VTEP sent them.
	Foreign(ctx context.Context) (uint64, error)
}

// Gateway is the host's own end of the overlay: addresses, routes and NAT on an
// internal port, which the loop makes. Ensure is idempotent and declares the whole
// state.
type Gateway interface {
	Ensure(ctx context.Context, cfg gateway.Config) error
	MAC() net.HardwareAddr
	PortName() string
}

// Reach knows what this host reaches by itself. Its methods do not block.
type Reach interface {
	// Watch returns a channel that is closed when Judge would say something else of the same
	// snapshot; it is taken before.
	Watch() <-chan struct{}
	// Judge returns the subnets that this host cannot take, and those of the cluster's ranges
	// in which it has nothing of its own.
	Judge(snap *cluster.Snapshot) (barred map[netip.Prefix]bool, clear []netip.Prefix)
	// Own are this host's addresses. Watch tells of them, too.
	Own() []netip.Addr
}

// FastPath carries what needs no switch. Narrow is called before the flows become those
// of an input, Widen after; an error of either is one of the flows. Both are called in
// every pass. Tally is what it carried, of the input that was last widened to.
type FastPath interface {
	Narrow(context.Context, pipeline.Input) error
	Widen(context.Context, pipeline.Input) error
	Tally() (pipeline.Tally, error)
}

// settler is a FastPath that carries connections which the switch has found settled (pipeline.Input.Generation). Settle is called
// in each pass in which there are rules, with an input without generation, and returns that of the rules in force, or 0: nothing
// is to be settled; and the endpoints that are to be sent no marks (pipeline.Port.Bare). Slots are those of rules that it counts for. Begin is called before each Narrow with the rules whose counters the
// switch is to begin: then its own begin, too.
type settler interface {
	Settle(pipeline.Input) (generation uint16, bare map[string]bool)
	Slots() map[uint32]uint16
	Begin(rules map[uint32]bool)
}

// owner is a FastPath that carries connections of which the switch knows nothing. When they are the switch's to judge it says who called whom,
// by a Secret (pipeline.Hint), 0 if it has none. Forget is called when what is known of addresses' connections is out of date.
type owner interface {
	Secret() (uint32, error)
	Forget(addrs []netip.Addr) error
}

// Config is what an Overlay works with.
type Config struct {
	Self    cluster.NodeID
	Bridge  *ovs.Bridge
	Tunnel  Tunnel
	Mode    pipeline.TunnelMode // how Tunnel wants the VNID and the VTEP
	Gateway Gateway             // nil: no way to the host or out of the cluster
	Fast    FastPath            // nil: the switch carries all
	Links   Links               // nil: endpoints' interfaces are looked at now and then only
	// VXLANPort is the cluster's UDP port for VXLAN, 0 where GRE is in its place, MTU that of the underlay (bytes; 0:
	// not known).
	VXLANPort uint16
	MTU       int
	// GossipPort is where hosts hear each other, TCP and UDP: containers may not.
	GossipPort uint16
	// Reach says which subnets this host can take: others have no routes and no gateway
	// here. nil: it can take all.
	Reach Reach
	// Reaches says which networks this host is to have a way to; nil: all.
	Reaches func(network string) bool
	// Opened, if set, is called when the switch may have opened devices anew. It must
	// be quick.
	Opened func()
	// CaughtUp, if set, is closed when the Source is no older than what the flows were made
	// of that are there at the start. Until then no flow is changed or deleted, as would be
	// if an agent was killed before what it knew was on the disk.
	CaughtUp <-chan struct{}
	// InPlace, if set, is called when the flows are in place, also of a switch that has
	// just begun.
	InPlace func(context.Context) error
	// Settled, if set, says whether ports of endpoints may be added; after InPlace they may.
	Settled func() bool
	// Liberal, if set, has the switch track connections of which it sees a part of the packets only, until it begins anew: else the
	// fast path carries nothing of endpoints with rules.
	Liberal func(context.Context) error
	// Answers, if set, asks the switch's daemons for a sign of life. Its error is of one that runs and gives
	// none within seconds, and says what to do; a daemon that is down is no error.
	Answers func(context.Context) error
	// CannotTrack says what the switch lacks to enforce policies; nil: nothing. It is asked once.
	CannotTrack func(context.Context) (lacks []string, err error)
	// Epochs keeps the epochs of policies' rules over restarts; nil: nothing does.
	Epochs Epochs
	// Sealed, if set, says whether what goes to the VTEPs inside what encrypts cannot go in the clear: until it says so,
	// encrypted networks have no way to other hosts. It is asked in every pass while there is such a network.
	Sealed func() bool
	// Told keeps what containers were told by name over restarts; nil: nothing does.
	Told Told
	// Egress, if set, says of egresses that this host holds by the records whether it is ready to be a subnet's way out.
	Egress func(name string, subnet netip.Prefix) bool
	// Heeds, if set, says which exposed ports this host answers: containers leave by none of these. nil: all.
	Heeds func(expose.Exposure) bool
	// Near, if set, says what an address is that this host has or reaches without a router; else nothing. No name opens it.
	Near func(netip.Addr) string
	// Room, if set, says for how many connections of endpoints with rules there is room.
	Room func() int
	// Unheard, if set, says with which hosts endpoints of this one do not talk, since these may not have heard who has their addresses
	// now; nil hosts: with none. It must not block.
	Unheard func(*cluster.Snapshot) map[string][]cluster.NodeID
	// Rejects, if set, is told in each pass whether rules reject: somebody is to answer then (package overlay/reject).
	Rejects func(bool)
	Log     *slog.Logger // nil: slog.Default()
}

// Overlay is the loop and what others ask of it. Its methods may be called
// concurrently.
type Overlay struct {
	cfg Config
	src Source
	log *slog.Logger

	kick   chan struct{} // somebody waits for the next pass
	event  chan struct{} // the switch may have changed: events says how
	events events
	told   *told
	// crowding says who begins no connections with endpoints that have rules; nil: nobody counts them.
	crowding *crowding
	narrow   *narrowing
	// damaged: the kernel tells of changes that hurt says.
	damaged chan struct{}

	mu       sync.Mutex
	detached map[string]bool // endpoints that Detach took off, until Attach or the record goes
	started  uint64          // passes begun
	last     result          // of the last pass that ended
	ended    chan struct{}   // closed and replaced when a pass ends
	hurt     damage          // what others may have taken away, to be looked at
	missing  []string        // what they have, and is not put back yet
	lacking  string          // what the switch lacks to enforce policies
	asked    chan struct{}   // closed when lacking is known
	repairs  repairs
	hang     error // the switch did not answer; nil again after a pass
}

// result is what a pass achieved.
type result struct {
	pass     uint64
	placed   uint64           // the last pass that put its flows in place
	err      error            // why the flows are not in place
	rest     error            // what else is wrong: tunnel, gateway, broken ports
	rev      uint64           // of the snapshot whose flows are in place
	attached map[string]bool  // endpoints with a port and flows
	problems map[string]error // endpoints without, and why
	input    pipeline.Input   // what the flows are for
}

// New returns an Overlay; nothing happens before Run.
func New(cfg Config, src Source) (*Overlay, error) {
	switch {
	case cfg.Bridge == nil || cfg.Tunnel == nil || src == nil:
		return nil, errors.New("an overlay needs a bridge, a tunnel and a source")
	case cfg.Mode != pipeline.Metadata && cfg.Mode != pipeline.HeaderBits:
		return nil, fmt.Errorf("tunnel mode %d is unknown", cfg.Mode)
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	o := &Overlay{
		cfg: cfg, src: src, log: cfg.Log, detached: map[string]bool{},
		kick: make(chan struct{}, 1), event: make(chan struct{}, 1), damaged: make(chan struct{}, 1), ended: make(chan struct{}), asked: make(chan struct{}),
		told: newTold(cfg), narrow: newNarrowing(cfg.Bridge.Settle, cfg.Log),
	}
	o.crowding = o.newCrowding()
	return o, nil
}

// Run keeps the switch as it should be until ctx is done, and leaves it so.
func (o *Overlay) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return o.cfg.Bridge.Watch(ctx, o.hear) })
	if w := o.openWatch(); w != nil {
		g.Go(func() error { return o.watchHost(ctx, w) })
	}
	o.recall()
	if o.cfg.Told != nil {
		g.Go(func() error { o.keepTold(ctx); return nil })
	}
	g.Go(func() error { o.watchBeside(ctx); return nil })
	g.Go(func() error { o.narrow.run(ctx); return nil })
	if o.crowding != nil {
		g.Go(func() error { o.crowding.watch(ctx); return nil })
	}
	g.Go(func() error { return o.loop(ctx) })
	if err := g.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// poke wakes whoever reads from c, unless that is about to happen anyway.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

const (
	slowTimer = 30 * time.Second       // everything is looked at, whatever happens
	reread    = 10 * slowTimer         // all flows are read, though the switch tells of none
	calm      = 50 * time.Millisecond  // changes of the snapshot within are taken together
	retryMin  = 20 * time.Millisecond  // after a failure
	retryMax  = 250 * time.Millisecond // and while it goes on
	retrySlow = 5 * time.Second        // when it has gone on for long
	echoes    = time.Second            // after our own changes of ports the switch tells of those
	gather    = 10 * time.Millisecond  // the switch speaks of a change line by line
	glances   = 2 * time.Second        // sysctls are looked at, of which the kernel does not tell
)

// loop runs passes. A failed pass is repeated soon: whole within two seconds of the
// switch being back, by whatever it was lost.
func (o *Overlay) loop(ctx context.Context) error {
	r := &reconciler{cfg: o.cfg, log: o.log, behind: o.cfg.CaughtUp != nil, tracks: o.tracks, told: o.told, crowds: o.crowding.crowds, silent: o.events.silent}
	if err := r.planAnew(); err != nil {
		return err
	}
	why, failures := everything, 0
	next := schedule{inspect: func(d damage) bool { return o.inspect(ctx, r, d) }}
	for {
		changed, reached := o.src.Watch(), r.watchReach()
		err := o.pass(ctx, r, why)
		next.looked(why, time.Now())
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errBehind) {
			select {
			case <-ctx.Done():
			case <-o.cfg.CaughtUp:
			}
			continue
		}
		if err == nil {
			failures = 0
			next.quiet = r.touched.Add(echoes)
			if (why == everything || o.lacks()) && o.inspect(ctx, r, r.anything()) {
				sleep(ctx, mendPause)
				why = everything
				continue
			}
			why = next.wait(ctx, o, r.judge, changed, reached, slowTimer)
			continue
		}
		// The steps of a pass that fails may wake the loop themselves: a pause first.
		failures++
		pause := retryPause(failures)
		sleep(ctx, min(pause, retryMax))
		next.inspection(o, time.Now()) // what needs no switch does not wait for it
		if why = everything; pause > retryMax {
			next.wait(ctx, o, r.judge, changed, reached, pause-retryMax)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func retryPause(failures int) time.Duration {
	if failures > 100 {
		return retrySlow
	}
	return min(retryMin<<min(failures-1, 10), retryMax)
}

// reason says how much of the world a pass looks at.
type reason int

const (
	ourChange  reason = iota // the snapshot, or an endpoint: the switch is as we left it
	ports                    // the switch may have other ports
	theirs                   // the switch may have changed
	everything               // and all devices
)
