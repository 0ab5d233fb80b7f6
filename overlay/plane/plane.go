// Package plane is the data plane of one host put together: which Open vSwitch, the datapath, the
// encapsulation, the gateway, the fast path, published ports, and what is set on the host for them.
package plane

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/lan"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/portreserve"
	"github.com/grapevine-net/grapevine/host/proxy"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/overlay"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/guard"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/overlay/reject"
	"github.com/grapevine-net/grapevine/overlay/secure"
	"github.com/grapevine-net/grapevine/overlay/tunnel"
	"github.com/grapevine-net/grapevine/service/expose"
)

// Source is where snapshots come from (package replica).
type Source interface {
	overlay.Source
	// CaughtUp returns a channel that is closed when another host has told what it knows.
	CaughtUp() <-chan struct{}
}

// Names are what the resolver needs of the gateway.
type Names struct {
	Ports []uint16
	Rules []nat.Rule
	Hear  func(context.Context) // returns when the resolver hears the gateway
}

// Reach is what this host reaches by itself, and by the overlay.
type Reach interface {
	overlay.Reach
	guard.Reach
}

// Config is what a Plane works with.
type Config struct {
	Settings config.Config
	Switch   Switch
	Self     cluster.NodeID
	Underlay link.Underlay
	Secure   *secure.Keeper // encrypts what goes to other hosts, or what encrypted networks send; nil: nothing does
	Cannot   error          // why, if Secure is nil
	// Exchanges says with whom another program has exchanged keys for IPsec; nil, "": with nobody that is known.
	Exchanges func() string
	Source    Source
	Reach     Reach
	State     store.File
	Names     Names
	Egress    Egress
	// Tell writes this host's record of what it sends and takes without headers; nil takes it away.
	Tell func(cluster.Body) error
	// Call asks another host's agent.
	Call func(ctx context.Context, node, method string, body []byte) ([]byte, error)
	// Unheard is overlay.Config's.
	Unheard func(*cluster.Snapshot) map[string][]cluster.NodeID
	// Heeds says which exposed ports this host answers; nil: all.
	Heeds func(expose.Exposure) bool
	Log   *slog.Logger
}

// Egress holds addresses from which networks reach the outside (package egress/hold).
type Egress interface {
	// Begin comes before the first flow changes: serve declares by which addresses subnets leave, placed returns when
	// the switch heeds what Leads says.
	Begin(serve func([]nat.Source) error, placed func(context.Context) error)
	// Leads reports whether this host is ready to be the way out of an egress for a subnet.
	Leads(name string, subnet netip.Prefix) bool
	Run(context.Context) error
}

// Plane is this host's Open vSwitch and the overlay in it.
type Plane struct {
	cfg   Config
	posed posed
	Switch
	tunnel   *tunnel.Tunnel // nil: the kernel datapath has its own
	gateway  *gateway.Gateway
	nat      *nat.NAT
	guard    *guard.Guard
	held     portreserve.Sockets // of published ports
	proxy    *proxy.Server
	overlay  *overlay.Overlay
	rejects  *reject.Desk
	fast     *fastPath
	bare     *bare
	bound    bool // programs say from which address VXLAN packets are sent
	log      *slog.Logger
	slow     sync.Once
	told     <-chan struct{} // closed when another host has told what it knows
	caughtUp chan struct{}   // closed then too, or after catchUpPatience
	heard    chan struct{}   // the same, also on a host that takes itself for a new one, as one that had written nothing yet does
}

// noEgress holds nothing.
type noEgress struct{}

func (noEgress) Begin(func([]nat.Source) error, func(context.Context) error) {}
func (noEgress) Leads(string, netip.Prefix) bool                             { return false }
func (noEgress) Run(context.Context) error                                   { return nil }

// catchUpPatience is for how long a switch that forwards is left as it is, until another host
// has told what this one may have forgotten. It is long enough to open a few streams where
// packets are lost. It is no longer, since without another host new containers wait for it.
const catchUpPatience = 3 * time.Second

// New puts the parts together; nothing is made on the host yet.
func New(c Config) (_ *Plane, err error) {
	if c.Egress == nil {
		c.Egress = noEgress{}
	}
	p := &Plane{cfg: c, Switch: c.Switch, nat: nat.New(), log: c.Log, caughtUp: make(chan struct{}), heard: make(chan struct{}), rejects: reject.New(gateway.Port, c.Log)}
	s := c.Settings
	p.gateway = gateway.New(string(c.Self))
	p.gateway.Edge = s.Edge()
	wire := p.cfg.wire()
	p.guard = guard.New(guard.Config{
		Self: c.Self, Own: []uint16{s.VXLANPort, s.Port}, VTEPs: []netip.Addr{wire.Addr, s.Bind}, Underlay: c.Underlay.Interface, Options: s.Encapsulation().Options(), Encrypts: c.Secure.All(), Networks: c.Secure != nil && !c.Secure.All(), IPsec: s.NeedsIPsec(),
		Names: c.Names.Ports, Run: s.Run, State: s.State, Source: c.Source, Reach: c.Reach, NAT: p.nat, Open: c.opened, Log: c.Log,
		Exposed: func(snap *cluster.Snapshot) []uint16 { return overlay.Fronts(expose.All(snap), c.Heeds) },
	})
	if s.Run != "" {
		if err := TablesIn(s.Run).Note(); err != nil {
			c.Log.Warn("empty tables of iptables may be left when grapevine is removed", "error", err)
		}
	}
	if p.proxy, err = proxy.New(&p.held, strangers(c.Source, c.Self, p.guard.Closed), c.Log); err != nil {
		return nil, err
	}
	p.gateway.BeforeForwarding, p.gateway.WithoutIPv6, p.gateway.Nowhere = p.guard.Forbid, p.guard.WithoutIPv6, p.guard.Nowhere()
	source := c.vxlanSource()
	forPrograms := source
	var why error
	if p.bound, why = link.TunnelSource(); !p.bound {
		c.Log.Info("this kernel chooses the source of VXLAN packets by the route (it takes no other before Linux 5.19)", "err", why)
		forPrograms = netip.Addr{}
	}
	sealed := seal{c.Secure, p.guard, c.Log}
	cfg := overlay.Config{
		Self: c.Self, Bridge: p.Bridge, Mode: pipeline.Metadata,
		Tunnel:    overlay.KernelTunnel{Bridge: p.Bridge, Kind: s.Encapsulation(), UDPPort: s.VXLANPort, V6: wire.Addr.Unmap().Is6(), Source: source, Inside: sealed.opened, InsideAddr: cluster.SecureVTEP(c.Self)},
		Gateway:   natGateway{p.gateway, p.guard, p.nat, c.Names, c.Source, c.opened},
		VXLANPort: s.VXLANPort, GossipPort: s.Port, MTU: wire.MTU, Reach: c.Reach,
		CaughtUp: p.caughtUp, Answers: p.Answers, CannotTrack: p.Bridge.CannotTrack, Epochs: epochs{c.State}, Told: told{c.State}, Near: p.near, Egress: c.Egress.Leads, Heeds: c.Heeds, Unheard: c.Unheard, Room: connectionRoom, Rejects: p.rejects.Set, Log: c.Log,
	}
	p.told = c.Source.CaughtUp()
	if c.Source.Snapshot().Ring().Len() == 0 {
		// A new host has forgotten nothing: what its switch has is of a former one, whose
		// addresses may be other hosts' by now.
		told := make(chan struct{})
		close(told)
		p.told = told
	}
	if s.Edge() {
		cfg.Reaches = s.Reaches
	}
	cfg.Links = p.linkGuard()
	if p.Embedded != nil {
		cfg.InPlace, cfg.Settled = p.Embedded.FlowsInPlace, p.Embedded.Settled
		cfg.Liberal = p.Bridge.IgnoreSequences // of the agent's own Open vSwitch
	}
	cfg.InPlace = p.endSecure(cfg.InPlace)
	if p.Bridge.Datapath == ovs.Userspace {
		p.tunnel = tunnel.New(tunnel.Config{Kind: s.Encapsulation(), UDPPort: s.VXLANPort, V6: wire.Addr.Unmap().Is6(), MTU: max(p.InnerMTU(), cluster.MinMTU6), TSO: p.tso(), Source: forPrograms})
		cfg.Tunnel, cfg.Mode = p.tunnel, pipeline.HeaderBits
		cfg.Opened = p.growBuffers
	}
	if !p.cfg.Secure.All() {
		cfg.Sealed = sealed.closed
	}
	if p.cfg.Secure.All() || s.NeedsIPsec() {
		cfg.Tunnel = secureTunnel{cfg.Tunnel, p}
	}
	p.fast = p.newFastPath(forPrograms)
	p.bare = &bare{p: p, wake: make(chan struct{}, 1)}
	if c.Secure != nil && s.Encapsulation().Mark() == "" { // what is to be judged by the switch comes to it in VXLAN
		c.Secure.GoThrough(throughOf(p))
	}
	p.fast.more = p.bare.status
	cfg.Fast = p.fast.path
	if p.overlay, err = overlay.New(cfg, c.Source); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	c.Egress.Begin(func(s []nat.Source) error { return serve(p.guard, p.nat, s) }, p.overlay.Pass)
	return p, nil
}

// Adopt prepares what is there for this switch, which may be another one than it was made for:
// containers' interfaces, and the programs of the fast path. It comes before Run.
func (p *Plane) Adopt() {
	p.beginSecure()
	p.adoptLinks()
	p.fast.set(p.cfg.Settings.FastPath)
}

// InnerMTU is the largest IP packet that the underlay carries for containers.
func (p *Plane) InnerMTU() int {
	return p.cfg.wire().MTU - p.cfg.Settings.Encapsulation().Overhead(p.cfg.wire().Addr)
}

// wire is what VXLAN goes by: the underlay, or what encrypts.
func (c Config) wire() link.Underlay { return Wire(c.Underlay, c.Secure) }

// Wire is what VXLAN goes by: the underlay, or what encrypts.
func Wire(underlay link.Underlay, k *secure.Keeper) link.Underlay {
	if k.All() {
		return k.Wire()
	}
	return underlay
}

// Overlay is the loop that keeps the switch.
func (p *Plane) Overlay() *overlay.Overlay { return p.overlay }

// Guard says what may pass the gateway, and heeds Docker's bridges.
func (p *Plane) Guard() *guard.Guard { return p.guard }

// Published are what holds published ports and leads them to containers, for the driver.
func (p *Plane) Published() (*portreserve.Sockets, *nat.NAT, *proxy.Server) {
	return &p.held, p.nat, p.proxy
}

// growBuffers gives the sockets by which the switch reads interfaces more room.
// Without it everything works, but slower: trouble is logged once.
func (p *Plane) growBuffers() {
	text, err := os.ReadFile(filepath.Join(p.Bridge.RunDir, "ovs-vswitchd.pid"))
	if err == nil {
		var pid int
		if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			err = link.GrowBuffers(pid)
		}
	}
	if err != nil {
		p.slow.Do(func() { p.log.Warn("the switch's packet sockets stay small, which costs throughput", "err", err) })
	}
}

// choosesSource says whether the kernel chooses by the route from which address VXLAN packets are
// sent. Open vSwitch tells the kernel's own datapath.
func (p *Plane) choosesSource() bool {
	on := p.fast.sends()
	if p.Bridge.Datapath == ovs.Kernel && (seal{p.cfg.Secure, p.guard, p.log}).open() {
		return true
	}
	return !p.bound && (on || p.Bridge.Datapath == ovs.Userspace)
}

// Run keeps daemons and flows until ctx ends, and leaves them as they are.
func (p *Plane) Run(ctx context.Context) error {
	tasks, ctx := errgroup.WithContext(ctx)
	if p.Embedded != nil {
		tasks.Go(func() error { return p.Embedded.Run(ctx) })
	}
	tasks.Go(func() error { return p.nat.Run(ctx, p.log) })
	tasks.Go(func() error { return p.guard.Run(ctx) })
	if p.cfg.Secure != nil {
		tasks.Go(func() error { return p.cfg.Secure.Run(ctx) })
	}
	tasks.Go(func() error { return p.proxy.Run(ctx) })
	tasks.Go(func() error { return p.rejects.Run(ctx) })
	tasks.Go(func() error { return p.cfg.Egress.Run(ctx) })
	tasks.Go(func() error { catchUp(ctx, p.told, p.caughtUp); return nil })
	tasks.Go(func() error { catchUp(ctx, p.cfg.Source.CaughtUp(), p.heard); return nil })
	tasks.Go(func() error { p.bare.run(ctx); return nil })
	tasks.Go(func() error { p.bare.watchArrivals(ctx); return nil })
	tasks.Go(func() error { p.posed.watch(ctx, p.guard); return nil })
	tasks.Go(func() error {
		await(ctx, 3*time.Second, p.Bridge.Ping)
		return p.overlay.Run(ctx)
	})
	if err := tasks.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// catchUp closes a channel when this host was told what others know, or has waited for that.
func catchUp(ctx context.Context, told <-chan struct{}, then chan struct{}) {
	defer close(then)
	select {
	case <-ctx.Done():
	case <-told:
	case <-time.After(catchUpPatience):
	}
}

// await gives daemons that are just being started a moment, so that the overlay
// does not begin with a complaint.
func await(ctx context.Context, limit time.Duration, answers func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for answers(ctx) != nil && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
}

// Settle returns once the switch's daemons answer, or after ten seconds: by those that are just being started nothing can be
// removed. It comes before Teardown, while Run goes on.
func (p *Plane) Settle(ctx context.Context) {
	await(ctx, 10*time.Second, func(ctx context.Context) error {
		if err := p.Bridge.Ping(ctx); err != nil {
			return err
		}
		_, err := p.Bridge.Appctl(ctx, "version")
		return err
	})
}

// Close leaves what carries packets. Run has returned. Of a nil Plane there is nothing.
func (p *Plane) Close() error {
	if p == nil {
		return nil
	}
	p.held.Close()
	p.guard.Close()
	var errs []error
	if p.fast != nil {
		errs = append(errs, p.fast.close())
	}
	if p.tunnel != nil {
		errs = append(errs, p.tunnel.Close())
	}
	return errors.Join(errs...)
}

// TablesIn notes in the agent's directory of sockets which tables of iptables there were not.
func TablesIn(run string) nat.Tables { return nat.Tables(filepath.Join(run, "iptables-tables")) }

// Teardown removes what Run leaves. Run has returned.
func (p *Plane) Teardown(ctx context.Context) error {
	_, err := lan.Purge()
	errs := []error{err, p.bare.path().Remove(), p.gateway.Remove(), p.overlay.Teardown(ctx)}
	errs = append(errs, p.nat.Remove(ctx)) // nothing leaves any more that it would translate
	if p.tunnel != nil {
		errs = append(errs, p.tunnel.Remove(ctx))
	}
	if _, err := secure.Purge(p.cfg.Settings.Run); err != nil { // also what an agent has left that encrypted
		errs = append(errs, err)
	}
	errs = append(errs, p.guard.Remove()) // gv0 is gone
	_, err = TablesIn(p.cfg.Settings.Run).Clear()
	errs = append(errs, err)
	if p.Embedded != nil {
		errs = append(errs, p.Embedded.Stop(ctx), os.RemoveAll(p.Embedded.RunDir), os.RemoveAll(p.Embedded.StateDir))
	}
	return errors.Join(append(errs, RemoveVeths())...)
}
