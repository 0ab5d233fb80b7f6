// Package agent is one agent from start to end: it puts the rooms together
// (see docs/design/architecture.md), begins or finds the cluster, and answers package
// api. All goroutines belong to one errgroup.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/agent/idle"
	"github.com/grapevine-net/grapevine/agent/sockets"
	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/bgp/announce"
	"github.com/grapevine-net/grapevine/clients/sandbox"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/diagnose/probe"
	"github.com/grapevine-net/grapevine/diagnose/watch"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/driver/exposed"
	"github.com/grapevine-net/grapevine/driver/problems"
	"github.com/grapevine-net/grapevine/driver/standin"
	"github.com/grapevine-net/grapevine/edge"
	"github.com/grapevine-net/grapevine/egress/hold"
	"github.com/grapevine-net/grapevine/former"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/installed"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/plugin"
	"github.com/grapevine-net/grapevine/host/socket"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/membership"
	"github.com/grapevine-net/grapevine/multicast"
	"github.com/grapevine-net/grapevine/overlay/ike"
	"github.com/grapevine-net/grapevine/overlay/plane"
	"github.com/grapevine-net/grapevine/overlay/secure"
	"github.com/grapevine-net/grapevine/reach/follow"
	"github.com/grapevine-net/grapevine/replica"
)

// Agent is a host's agent. Run makes one. It is its parts, each opened on top of those before: who this host is in its cluster, what
// carries its containers' packets, what it goes on finding out, and where people ask.
type Agent struct {
	*place
	*rooms
	watches
	desks   desks
	sockets sockets.Open

	// stopWork ends all tasks but the API; stopped is closed when they have ended.
	stopWork context.CancelFunc
	stopped  chan struct{}
	gone     chan struct{} // closed when this host has left, and all is told
}

// place is this host's in its cluster.
type place struct {
	cfg     config.Config
	named   bool // by a setting
	version string
	log     *slog.Logger
	started time.Time

	docker    *docker.Client // nil: this host has none
	installed *installed.Agent
	underlay  link.Underlay
	reached   *follow.Follower
	member    *membership.Member // has the next four
	db        *store.DB
	replica   *replica.Replica
	gossip    *gossip.Gossip
	alloc     *ipam.Allocator
	former    *former.Keeper // of which containers had addresses before
	prober    *probe.Prober
}

// rooms are what carries containers' packets here, and leads them.
type rooms struct {
	secure *secure.Keeper // nil: nothing is encrypted, which cannotEncrypt says why
	ike    *ike.Keeper    // nil: nobody exchanges keys for IPsec, or who does is not told by this agent
	// cannotEncrypt is why this host has no part in encrypted networks.
	cannotEncrypt error
	plane         *plane.Plane
	naming        *naming
	groups        *multicast.Room
	egress        *hold.Keeper
	announcer     *announce.Announcer
	exposes       *exposed.Room
	clients       *sandbox.Gate
	driver        *driver.Driver // nil: this host has no Docker
	plugin        *plugin.Server
	swarm         problems.Swarm
	edge          *edge.Edge // nil: this host has Docker
}

// newAgent has nothing open.
func newAgent(cfg config.Config, version string, log *slog.Logger) *Agent {
	p, r := &place{cfg: cfg, named: cfg.Name != "", version: version, log: log, started: time.Now()}, &rooms{}
	return &Agent{place: p, rooms: r, watches: watches{helloRun: rand.Uint64() | 1}, desks: desks{place: p, rooms: r}, stopped: make(chan struct{}), gone: make(chan struct{})}
}

func (p *place) self() cluster.NodeID { return p.member.Self() }

// snapshot is for what is given it before there is a replica.
func (p *place) snapshot() *cluster.Snapshot { return p.replica.Snapshot() }

// nodes are all hosts.
func (p *place) nodes() []api.Node { return p.member.Nodes(p.snapshot()) }

// Call asks another host's agent, for what is given it before there is gossip.
func (p *place) Call(ctx context.Context, node, method string, body []byte) ([]byte, error) {
	return p.gossip.Call(ctx, node, method, body)
}

// GCPercent is how much garbage the agent lets come together, in percent of what is in
// use (runtime/debug.SetGCPercent), unless GOGC says otherwise: it shares its host with
// containers and does little most of the time, so memory is dearer than processors.
const GCPercent = 50

// gcPercent is GCPercent; 0: GOGC says otherwise.
func gcPercent() int {
	if os.Getenv("GOGC") != "" {
		return 0
	}
	return GCPercent
}

// Run runs an agent until ctx ends (nil) or it cannot go on (the error says why).
// On return the switch still forwards, so that the next agent takes over without
// a packet lost. When the host's underlay changes, the agent begins anew, and when the
// cluster has forgotten this host, as a new one. deputy is the command that runs [Deputise].
func Run(ctx context.Context, cfg config.Config, version string, deputy []string, log *slog.Logger) error {
	if percent := gcPercent(); percent > 0 {
		debug.SetGCPercent(percent)
	}
	defer sockets.Sweep(cfg)
	err := lives(ctx, cfg, version, deputy, log)
	if err == nil || ctx.Err() == nil {
		return err
	}
	// Whatever was under way when it was told to stop did not come to its end.
	log.Info("the agent is stopped while it starts, or before all had ended", "err", err)
	return nil
}

// Deputise answers Docker at the agent's socket until an agent comes, if none is there again.
func Deputise(ctx context.Context, path string) error {
	return standin.Deputise(ctx, path, plane.AnyVeth)
}

// lives are one life of the agent after the other.
func lives(ctx context.Context, cfg config.Config, version string, deputy []string, log *slog.Logger) error {
	// First of all the sockets: Docker kills a plugin that has none 9.5 s after its start. They
	// stay while one life of the agent follows the other: who calls then waits.
	open, err := sockets.Make(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		if open.Succeeded() {
			standin.Leave(deputy, plane.AnyVeth, log)
		}
	}()
	defer open.Close()
	for {
		err := run(ctx, cfg, version, log, open)
		if !slices.ContainsFunc(again, func(e error) bool { return errors.Is(err, e) }) {
			return err
		}
	}
}

// errLeft ends the agent's tasks: this host has left.
var errLeft = errors.New("this host has left the cluster")

// again are the errors upon which the agent begins anew.
var again = []error{watch.ErrMoved, watch.ErrRenamed, membership.ErrForgotten, errLeft, idle.ErrWanted, plane.ErrRival}

func run(ctx context.Context, cfg config.Config, version string, log *slog.Logger, open sockets.Open) error {
	a := newAgent(cfg, version, log)
	a.sockets, a.docker = open, engineOf(cfg)
	a.desks.openMetrics(a.facts)
	var err error
	if a.installed, err = installed.Find(a.cfg, a.docker, a.log); err != nil {
		return err
	}
	if rested, err := idle.IfLeft(ctx, idle.Config{Settings: cfg, Version: version, Log: log, Installed: a.installed, Ready: func() { ready(log) }}, open); rested || err != nil {
		return err
	}
	err = a.open(ctx)
	defer a.close()
	if err != nil {
		return err
	}
	open.Served.Store(true)
	err = a.serve(ctx, open.Own.Lend())
	if errors.Is(err, plane.ErrRival) {
		err = errors.Join(err, a.plane.HandOver(context.WithoutCancel(ctx)))
	}
	return err
}

// serve runs all tasks. The API outlives the others, to say how a leave ended; then the
// error is errLeft.
func (a *Agent) serve(ctx context.Context, own net.Listener) error {
	all, ctx := errgroup.WithContext(ctx)
	work, stop := context.WithCancel(ctx)
	defer stop()
	a.stopWork = stop
	all.Go(func() error { return sockets.Serve(ctx, a.cfg, own, a.handlers(), a.log) })
	all.Go(func() error {
		defer close(a.stopped)
		return a.tasks().Run(work)
	})
	all.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-a.gone:
			return errLeft
		}
	})
	return all.Wait()
}

// ready lets those begin that wait for this agent: systemd holds Docker back so long.
func ready(log *slog.Logger) {
	if err := socket.Ready(); err != nil {
		log.Warn("systemd may take this agent for one that does not start", "err", err)
	}
}
