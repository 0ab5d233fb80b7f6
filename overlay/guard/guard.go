// Package guard keeps what may enter and leave the overlay by this host (package host/filter) in
// step with the cluster and with Docker's bridges, and owns that this host forwards.
package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/filter"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/pulse"
)

// Source is where snapshots come from (package replica). The channel is closed at the change
// after the call; it is taken before the snapshot.
type Source interface {
	Snapshot() *cluster.Snapshot
	Watch() <-chan struct{}
}

// Reach knows which addresses lead to containers from this host, and nowhere else, and from which ranges others are taken.
// Watch's channel is closed when Ours would say something else of the same snapshot; it is taken before.
type Reach interface {
	Watch() <-chan struct{}
	Ours(*cluster.Snapshot) (containers, ranges []netip.Prefix)
}

// Config is what a Guard works with.
type Config struct {
	Self     cluster.NodeID
	Own      []uint16     // ports of this host's VXLAN, 0 if it has GRE instead, and agent
	VTEPs    []netip.Addr // where this host is, and behind NAT where that leads to
	Underlay string       // the interface
	Encrypts bool         // VXLAN goes by link.WireGuard and by nothing else
	Networks bool         // that of encrypted networks does, where there are any
	Options  bool         // what comes from other hosts could have options, and has none
	IPsec    bool         // VXLAN goes by IPsec, and by nothing else but link.WireGuard
	Names    []uint16     // ports of the resolver
	// Open are what of subnets the outside is let into, at this host's containers' own addresses.
	Open func(*cluster.Snapshot) []netip.Prefix
	// Exposed are the ports that this host has for the outside as others do, until Expose is called; nil: none.
	Exposed func(*cluster.Snapshot) []uint16
	Run     string // the directory of the notes
	State   string // the directory of what outlives a boot; "": nothing is to be known after one
	Source  Source
	Reach   Reach
	NAT     *nat.NAT
	Log     *slog.Logger
}

// Guard is the one who sets the rules and turns forwarding on and off.
type Guard struct {
	cfg Config
	notes
	nat   *nat.NAT
	log   *slog.Logger
	poke  chan struct{} // capacity 1: bridges may have changed
	begun chan struct{} // closed when the rules are set for the first time, or cannot be

	mu     sync.Mutex
	filter *filter.Filter // nil: it could not be opened yet
	failed error
	heard  bool // what Docker has is known
	docker []bridge
	served []nat.Source

	told       bool // what follows was said
	exposed    []uint16
	containers []netip.Prefix
	gateways   []netip.Addr

	set     atomic.Pointer[set]      // what Set came to last, for who is not to wait
	nowhere gateway.Nowhere          // the routes beside the rules
	boot    *string                  // what the note for the next boot has; nil: not known yet
	closed  atomic.Pointer[[]string] // of docker, those of internal networks
	named   atomic.Pointer[[]string] // the names of docker
}

// notes are the guard's: what Forbid did, for which interfaces, and what Docker has told of its bridges.
type notes struct {
	run                          string
	forwarding, learning, memory *note
}

func notesIn(run string) notes {
	in := func(name string) *note { return &note{file: filepath.Join(run, name)} }
	return notes{run, in("forwarding"), in("accept-ra"), in("bridges")}
}

// keep puts back the run directory and the notes in it.
func (n notes) keep() error {
	// In the plugin it is a link, and what that leads to may be gone, too.
	if to, err := os.Readlink(n.run); err == nil {
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
	}
	var errs []error
	for _, one := range n.all() {
		errs = append(errs, one.keep())
	}
	return errors.Join(errs...)
}

func (n notes) all() []*note { return []*note{n.forwarding, n.learning, n.memory} }

// bridge is one of Docker's own.
type bridge struct {
	name     string
	internal bool
}

// New sets nothing yet, but reads what a former Guard has noted.
func New(cfg Config) *Guard {
	cfg.VTEPs = addressesOf(cfg.VTEPs...)
	g := &Guard{cfg: cfg, notes: notesIn(cfg.Run), nat: cfg.NAT, log: cfg.Log, poke: make(chan struct{}, 1), begun: make(chan struct{})}
	for _, family := range g.noted() {
		g.nat.Forbidden(family == family6)
	}
	g.knows(g.remembered())
	return g
}

// addressesOf are those of all that say where somebody is.
func addressesOf(all ...netip.Addr) (out []netip.Addr) {
	for _, a := range all {
		if a = a.Unmap().WithZone(""); a.IsValid() && !a.IsUnspecified() {
			out = append(out, a)
		}
	}
	return out
}

// remember notes what Docker has told, for an agent that begins while Docker does not answer:
// only Docker knows which of its bridges are of internal networks.
func (g *Guard) remember(all []bridge) error {
	var b strings.Builder
	for _, x := range all {
		fmt.Fprintf(&b, "%s %t\n", x.name, x.internal)
	}
	return g.memory.set(b.String())
}

func (g *Guard) remembered() (all []bridge) {
	for line := range strings.Lines(g.memory.get()) {
		var b bridge
		if n, _ := fmt.Sscan(line, &b.name, &b.internal); n == 2 {
			all = append(all, b)
		}
	}
	return all
}

// set is what came of a Set.
type set struct {
	filter *filter.Filter // nil: it could not be opened
	failed error
}

func (g *Guard) last() set {
	if s := g.set.Load(); s != nil {
		return *s
	}
	return set{}
}

// Set has the rules in place when it returns nil. It waits for the lock of iptables where there is
// no nftables.
func (g *Guard) Set() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer func() { g.set.Store(&set{g.filter, g.failed}) }()
	if g.filter == nil {
		if g.filter, g.failed = filter.Open(g.log); g.failed != nil {
			return g.failed
		}
	}
	cfg, err := g.config()
	if err == nil {
		g.shut(cfg)
		err = g.filter.Set(cfg)
	}
	if err == nil {
		g.noteForBoot(cfg)
	}
	g.failed = err
	return err
}

// shut has what is for encrypted networks' containers lead nowhere where it does not lead to gv0, beside the rules, which others may
// remove. Those hold without it. The lock is held.
func (g *Guard) shut(cfg filter.Config) {
	if cfg.Encrypted == "" {
		cfg.Cluster = nil
	}
	before := g.nowhere.Failed()
	if err := g.nowhere.Set(cfg.Cluster); err != nil && before == nil {
		g.log.Warn("rules alone keep what is for encrypted networks from the host's other routes", "err", err)
	}
}

// Nowhere is what the gateway is to look after with its own routes.
func (g *Guard) Nowhere() *gateway.Nowhere { return &g.nowhere }

// Serve declares by which addresses subnets reach the outside here: nothing of them leaves with another one when it
// returns nil, or from the first Set on.
func (g *Guard) Serve(sources []nat.Source) error {
	g.mu.Lock()
	g.served = slices.Clone(sources)
	g.mu.Unlock()
	if g.set.Load() == nil {
		return nil
	}
	return g.Set()
}

// Expose declares by which ports of this host its containers, in these ranges, do not leave, and by which addresses they
// know this host, from the next Set on.
func (g *Guard) Expose(ports []uint16, containers, gateways []netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told, g.exposed, g.containers, g.gateways = true, slices.Clone(ports), slices.Clone(containers), nil
	for _, p := range gateways {
		g.gateways = append(g.gateways, p.Addr())
	}
}

// Closed reports whether an interface, by its index, is a bridge of an internal network of Docker's,
// as far as Docker has told. It does not block.
func (g *Guard) Closed(index int) bool {
	return slices.Contains(*g.closed.Load(), link.NameOf(index))
}

// IsDockers reports whether an interface, by its index, is a bridge of Docker's, as far as Docker has told. It does not
// block: who asks opens names to containers, and Set may wait for iptables' lock.
func (g *Guard) IsDockers(index int) bool {
	name := link.NameOf(index)
	return link.IsDockers(name) || slices.Contains(*g.named.Load(), name)
}

// knows takes over which bridges Docker has; the lock is held, or nobody else has the guard.
func (g *Guard) knows(all []bridge) {
	var closed, named []string
	for _, b := range all {
		named = append(named, b.name)
		if b.internal {
			closed = append(closed, b.name)
		}
	}
	g.docker = all
	g.closed.Store(&closed)
	g.named.Store(&named)
}

// InPlace reports whether there are rules, if not the newest.
func (g *Guard) InPlace() bool {
	f := g.last().filter
	return f != nil && f.InPlace()
}

// Strict reports whether the rules that are there let VXLAN leave and come encrypted only. It does not block.
func (g *Guard) Strict() bool {
	f := g.last().filter
	return f != nil && f.Strict(link.WireGuard)
}

// ByIPsec reports whether the rules that are there let VXLAN leave and come by IPsec only. It does not block.
func (g *Guard) ByIPsec() bool {
	f := g.last().filter
	return f != nil && f.ByIPsec()
}

// Refused is what rules have dropped so that nothing passes in the clear, with another address than an egress's, by an exposed port, or with an address of the cluster's. It waits for rules that are being set.
func (g *Guard) Refused() []filter.Refused {
	return g.refused((*filter.Filter).Refused)
}

// Posed is that of who has a gateway's address by another program's NAT, alone.
func (g *Guard) Posed() []filter.Refused {
	return g.refused(func(f *filter.Filter) ([]filter.Refused, error) { return f.RefusedBy(filter.Posing) })
}

func (g *Guard) refused(ask func(*filter.Filter) ([]filter.Refused, error)) []filter.Refused {
	f := g.last().filter
	if f == nil {
		return nil
	}
	list, err := ask(f)
	if err != nil {
		g.log.Debug("ask what was dropped in the clear", "err", err)
	}
	return list
}

// config is what the rules are to be; the lock is held.
func (g *Guard) config() (filter.Config, error) {
	snap := g.cfg.Source.Snapshot()
	cfg := filter.Config{
		Interface: gateway.Port, Internal: snap.Closed(g.cfg.Self), Hosts: pipeline.HostRanges, Ports: slices.DeleteFunc(slices.Clone(g.cfg.Own), none),
		Own: g.cfg.VTEPs, VXLAN: g.cfg.Own[0], VXLANs: slices.DeleteFunc([]uint16{g.cfg.Own[0]}, none), GRE: g.cfg.Own[0] == 0, Names: g.cfg.Names, Served: g.served, IPsec: g.cfg.IPsec, NoOptions: g.cfg.Options, Open: g.cfg.Open(snap),
		Exposed: g.exposed, Inside: g.containers, Gateways: g.gateways,
	}
	ours, ranges := g.cfg.Reach.Ours(snap)
	if !g.told { // an agent of before may have left a table, by which containers call published ports and leave meanwhile
		cfg.Inside, cfg.Gateways = slices.Concat(ours, ranges), gatewaysOf(snap, ours)
		if g.cfg.Exposed != nil {
			cfg.Exposed = g.cfg.Exposed(snap)
		}
	}
	cfg.Claimed = without(ours, gateway.TakenBefore(ours, g.cfg.Underlay))
	if g.cfg.Encrypts {
		cfg.Encrypted, cfg.Second, cfg.Secure = link.WireGuard, link.WireGuard2, cluster.SecureRange
		cfg.Cluster, cfg.Ranges = ours, ranges
	}
	if g.cfg.Networks && snap.Encrypted() {
		cfg.Encrypted, cfg.Second, cfg.Secure, cfg.Partly = link.WireGuard, link.WireGuard2, cluster.SecureRange, true
		cfg.Cluster, cfg.Ranges = ofEncrypted(snap, ours), ranges
		cfg.Own = append(slices.Clone(cfg.Own), cluster.SecureVTEP(g.cfg.Self))
	}
	for n := range cluster.All[cluster.Node](snap) {
		if n.ID == g.cfg.Self {
			continue
		}
		cfg.VTEPs = append(cfg.VTEPs, addressesOf(n.Tunnel(), n.Address(), n.Gossip.Addr())...)
		if inside := cluster.SecureVTEP(n.ID); cfg.Partly && inside.IsValid() {
			cfg.VTEPs = append(cfg.VTEPs, inside)
		}
		cfg.Behind = append(cfg.Behind, addressesOf(n.Bind)...)
		cfg.GRE = cfg.GRE || !n.Encapsulation().Ports()
		if n.VXLANPort != 0 {
			cfg.VXLANs = append(cfg.VXLANs, n.VXLANPort)
		}
		for _, p := range []uint16{n.VXLANPort, n.Gossip.Port()} {
			if p != 0 {
				cfg.Ports = append(cfg.Ports, p)
			}
		}
	}
	served := nat.Narrowest(g.served)
	for _, b := range egress.Bound(snap, g.cfg.Self) {
		i := slices.IndexFunc(served, func(s nat.Source) bool {
			return s.Subnet.Bits() <= b.Prefix.Bits() && s.Subnet.Contains(b.Prefix.Addr())
		})
		if i < 0 || !slices.Contains(b.Addrs, served[i].Address) {
			cfg.Elsewhere = append(cfg.Elsewhere, b.Prefix)
		}
	}
	now, err := survey()
	if err != nil {
		return cfg, err
	}
	for _, b := range append(g.bridges(now), g.docker...) {
		cfg.Bridges = append(cfg.Bridges, b.name)
		if b.internal {
			cfg.Closed = append(cfg.Closed, b.name)
		}
	}
	cfg.Guests = g.guests(now, cfg.Bridges)
	cfg.Beside = now.addressesOn(cfg.Bridges)
	return cfg, nil
}

// gatewaysOf are the gateways' addresses in these subnets.
func gatewaysOf(snap *cluster.Snapshot, subnets []netip.Prefix) (list []netip.Addr) {
	for s := range cluster.All[cluster.Subnet](snap) {
		if s.Gateway.IsValid() && slices.Contains(subnets, s.Prefix) {
			list = append(list, s.Gateway)
		}
	}
	return list
}

// none is no port.
func none(port uint16) bool { return port == 0 }

// without leaves out what rules of somebody else's lead elsewhere: who is there reaches this host by them, an administrator
// perhaps, and status names them.
func without(all []netip.Prefix, taken []gateway.Taken) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool {
		return slices.ContainsFunc(taken, func(t gateway.Taken) bool { return slices.Contains(t.Subnets, p) })
	})
}

// ofEncrypted leaves of containers' addresses those of encrypted networks, and those from which hosts speak to containers.
func ofEncrypted(snap *cluster.Snapshot, all []netip.Prefix) (out []netip.Prefix) {
	clear := map[netip.Prefix]bool{}
	for s := range cluster.All[cluster.Subnet](snap) {
		n, _ := cluster.Get[cluster.Network](snap, s.Network)
		clear[s.Prefix] = !n.Encrypted()
	}
	for _, p := range all {
		if !clear[p] {
			out = append(out, p)
		}
	}
	return out
}

// interfaces are this host's, and those of them with a route to everywhere.
type interfaces struct {
	all   []netlink.Link
	addrs []netlink.Addr
	world map[int]bool
}

func survey() (now interfaces, err error) {
	if now.all, err = link.Dump(netlink.LinkList); err != nil {
		return now, fmt.Errorf("list this host's interfaces: %w", err)
	}
	if now.addrs, err = link.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) }); err != nil {
		return now, fmt.Errorf("list this host's addresses: %w", err)
	}
	now.world, err = defaultRoutes()
	return now, err
}

// addressesOn are the host's addresses on interfaces with these names.
func (now interfaces) addressesOn(names []string) (list []netip.Prefix) {
	on := map[int]bool{}
	for _, l := range now.all {
		on[l.Attrs().Index] = slices.Contains(names, l.Attrs().Name)
	}
	for _, a := range now.addrs {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && on[a.LinkIndex] && !addr.Unmap().IsLinkLocalUnicast() {
			ones, _ := a.Mask.Size()
			list = append(list, netip.PrefixFrom(addr.Unmap(), ones))
		}
	}
	return list
}

// bridges are this host's that are Docker's by their names, known before Docker tells of
// them. Until it has told, any other bridge may be one of its, but that to the world.
func (g *Guard) bridges(now interfaces) (out []bridge) {
	for _, l := range now.all {
		name := l.Attrs().Name
		if l.Type() == "bridge" && (link.IsDockers(name) || !g.heard && name != g.cfg.Underlay && !now.world[l.Attrs().Index]) {
			out = append(out, bridge{name: name})
		}
	}
	return out
}

// guests are the interfaces to which virtual machines and others are plugged in that are no
// containers of Docker's: bridges, taps and ends of veths of their own. The underlay and ways to
// the world are none.
func (g *Guard) guests(now interfaces, dockers []string) (names []string) {
	for _, l := range now.all {
		at := l.Attrs()
		plugged := slices.Contains([]string{"bridge", "tuntap", "veth"}, l.Type()) && at.MasterIndex == 0
		if plugged && at.Name != g.cfg.Underlay && at.Name != gateway.Port && at.Name != link.WireGuard && at.Name != link.WireGuard2 && !now.world[at.Index] && !slices.Contains(dockers, at.Name) {
			names = append(names, at.Name)
		}
	}
	return names
}

// defaultRoutes are the interfaces with a route to everywhere.
func defaultRoutes() (map[int]bool, error) {
	list, err := link.Dump(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list this host's routes: %w", err)
	}
	found := map[int]bool{}
	for _, r := range list {
		if r.Dst == nil || r.Dst.IP.IsUnspecified() {
			found[r.LinkIndex] = true
			for _, hop := range r.MultiPath {
				found[hop.LinkIndex] = true
			}
		}
	}
	return found, nil
}

// Listed is told Docker's networks.
func (g *Guard) Listed(networks []docker.Network) {
	now := bridgesOf(networks)
	g.mu.Lock()
	same := g.heard && slices.Equal(now, g.docker)
	g.knows(now)
	g.heard = true
	g.mu.Unlock()
	if same {
		return
	}
	g.look()
	var names []string
	for _, b := range now {
		names = append(names, b.name)
	}
	if err := g.remember(now); err != nil {
		g.log.Warn("remember Docker's bridges", "err", err)
	}
	if err := g.nat.Bridges(names); err != nil {
		g.log.Warn("let Docker's bridges through", "err", err)
	}
}

func bridgesOf(networks []docker.Network) (out []bridge) {
	for _, n := range networks {
		if n.Driver != "bridge" {
			continue
		}
		name := n.Options["com.docker.network.bridge.name"]
		if name == "" && len(n.ID) >= 12 {
			name = "br-" + n.ID[:12]
		}
		if name != "" && len(name) < 16 {
			out = append(out, bridge{name, n.Internal})
		}
	}
	slices.SortFunc(out, func(a, b bridge) int { return strings.Compare(a.name, b.name) })
	return out
}

// Wait returns when the rules are set for the first time, or cannot be, or ctx has ended.
func (g *Guard) Wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-g.begun:
	}
}

func (g *Guard) look() {
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

// guardPause is the least time between two settings of the rules for the cluster's sake.
const guardPause = 100 * time.Millisecond

// Run keeps the rules until ctx ends.
func (g *Guard) Run(ctx context.Context) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { g.watchBridges(ctx); return nil })
	tasks.Go(func() error {
		for ; ctx.Err() == nil; sleepOr(ctx, pulse.Wait(time.Second), nil) {
			if err := g.notes.keep(); err != nil {
				g.log.Warn("put back what somebody has removed from the run directory", "err", err)
			}
		}
		return ctx.Err()
	})
	tasks.Go(func() error {
		news := link.NewNews(link.LinkChange, link.AddrChange, link.RouteChange, link.RuleChange) // what Set reads of the host
		defer news.Close()
		for first := true; ctx.Err() == nil; first = false {
			changed := g.cfg.Source.Watch()
			reached := g.cfg.Reach.Watch()
			news.Any(time.Now())
			err := g.Set()
			if err != nil {
				g.log.Warn("what may enter and leave the overlay", "err", err)
			}
			if first { // Docker waits for this, and would for ever
				close(g.begun)
			}
			for waits := true; waits; {
				waits = false
				select {
				case <-ctx.Done():
				case <-g.poke:
				case <-reached:
				case <-changed:
					sleepOr(ctx, guardPause, g.poke)
				case <-pulse.After(5 * time.Second):
					waits = err == nil && !news.Any(time.Now())
				}
			}
		}
		return ctx.Err()
	})
	tasks.Go(func() error {
		for ctx.Err() == nil {
			g.mu.Lock()
			f := g.filter
			g.mu.Unlock()
			if f != nil {
				return f.Run(ctx)
			}
			sleepOr(ctx, guardPause, nil)
		}
		return ctx.Err()
	})
	return tasks.Wait()
}

func sleepOr(ctx context.Context, d time.Duration, poke <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-poke:
	case <-time.After(d):
	}
}

// watchBridges pokes when a bridge comes or goes.
func (g *Guard) watchBridges(ctx context.Context) {
	for ctx.Err() == nil {
		updates := make(chan netlink.LinkUpdate)
		err := netlink.LinkSubscribeWithOptions(updates, ctx.Done(), netlink.LinkSubscribeOptions{ErrorCallback: func(error) {}})
		if err != nil {
			g.log.Debug("watch this host's bridges", "err", err)
		} else {
			for u := range updates {
				if t := u.Type(); t == "bridge" || t == "tuntap" {
					g.look()
				}
			}
		}
		g.look()
		sleepOr(ctx, time.Second, nil)
	}
}

// Problems are for status. It does not block.
func (g *Guard) Problems() (list []api.Problem) {
	if g == nil {
		return nil // the switch was not made
	}
	last := g.last()
	err, f := last.failed, last.filter
	if err == nil && f != nil {
		err = f.Trouble()
	}
	if shut := g.nowhere.Failed(); shut != nil {
		list = append(list, api.Problem{
			Code: api.GuardFails,
			What: "rules of nftables alone keep what is for encrypted networks from leaving in the clear, not the unreachable routes beside them: " + shut.Error(),
			Do:   "nothing leaves in the clear while these rules are there; mend what is in the way of the routes, and the agent sets them by itself",
		})
	}
	if err == nil {
		return list
	}
	p := api.Problem{
		Code: api.GuardFails,
		What: "the rules of what may enter and leave the overlay are not what they should be: " + err.Error(),
		Do:   "until then what was allowed before stays so; the agent goes on trying",
	}
	if f == nil || !f.InPlace() {
		p.Do = "until then " + gateway.Port + " stays down: containers reach no outside and no published port. Load the kernel module nf_tables, or give the agent CAP_NET_ADMIN"
	}
	return append(list, p)
}

const (
	family4 = "4"
	family6 = "6"
)

// Forbid is called before the agent turns this host's forwarding on. Whoever turns it on sees
// to it that the host is no open router. Docker does so too, but not if it finds forwarding on.
// learning are interfaces that are to go on learning from routers, which is noted as well.
func (g *Guard) Forbid(v6 bool, learning []string) error {
	if err := g.nat.Forbid(v6); err != nil {
		return err
	}
	family := family4
	if v6 {
		family = family6
	}
	err := g.forwarding.set(lines(append(g.noted(), family)))
	if err == nil && len(learning) > 0 {
		err = g.learning.set(lines(append(strings.Fields(g.learning.get()), learning...)))
	}
	if err != nil {
		return fmt.Errorf("note that it was this agent who turned forwarding on: %w", err)
	}
	return nil
}

func lines(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return strings.Join(words, "\n") + "\n"
}

// noted are the families for which Forbid was called since the host's boot.
func (g *Guard) noted() (families []string) {
	for _, f := range strings.Fields(g.forwarding.get()) {
		if !slices.Contains(families, f) && (f == family4 || f == family6) {
			families = append(families, f)
		}
	}
	return families
}

// Remove removes the rules, and turns off what Forbid was for, unless Docker needs it: had
// it been here first, it would have left the same. gv0 is gone.
func (g *Guard) Remove() error {
	g.mu.Lock()
	f, needed := g.filter, len(g.docker) > 0
	g.mu.Unlock()
	err := g.unforbid(needed)
	if f != nil {
		err = errors.Join(err, f.Remove())
	}
	if g.cfg.State != "" {
		err = errors.Join(err, ForgetBoot(g.cfg.State))
	}
	return err
}

// unforbid takes back what Forbid was for, and does, if nobody else needs it.
func (g *Guard) unforbid(needed bool) error {
	g.heard = true // by their names, then
	if now, err := survey(); err != nil || len(g.bridges(now)) > 0 {
		needed = true
	}
	var errs []error
	for _, family := range g.noted() {
		switch {
		case family == family6:
			errs = append(errs, g.unforbid6())
		case !needed:
			errs = append(errs, gateway.StopForwarding(false), g.nat.Allow(false))
		}
	}
	for _, n := range g.all() {
		errs = append(errs, n.set(""))
	}
	return errors.Join(errs...)
}

// WithoutIPv6 is called when this host has nothing of IPv6 in the overlay (any more): what Forbid was
// for of that family is taken back.
func (g *Guard) WithoutIPv6() error {
	noted := g.noted()
	if !slices.Contains(noted, family6) {
		return nil
	}
	if err := g.unforbid6(); err != nil {
		return fmt.Errorf("turn IPv6 forwarding off again: %w", err)
	}
	_ = g.learning.set("")
	return g.forwarding.set(lines(slices.DeleteFunc(noted, func(f string) bool { return f == family6 })))
}

// unforbid6 takes back what Forbid was for of IPv6, and did, unless others have come to need it: a
// bridge of Docker's, or another one, with an address of IPv6. Docker itself turns that on for these.
func (g *Guard) unforbid6() error {
	now, err := survey()
	if err != nil {
		return err
	}
	g.mu.Lock()
	all := slices.Concat(g.bridges(now), g.docker)
	g.mu.Unlock()
	var names []string
	for _, b := range all {
		names = append(names, b.name)
	}
	for _, name := range append(names, g.guests(now, names)...) {
		if hasIPv6(name) {
			return nil
		}
	}
	return errors.Join(gateway.StopForwarding(true), gateway.Unlearn(strings.Fields(g.learning.get())), g.nat.Allow(true))
}

// hasIPv6 says whether an interface has an address of IPv6 that others may have for their router.
func hasIPv6(name string) bool {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return false
	}
	addrs, _ := link.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_V6) })
	return slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IP.IsGlobalUnicast() })
}

// Purge is Remove for an agent that is gone, with its run directory; it returns what there was.
func Purge(run string) ([]string, error) {
	gone, err := filter.Purge()
	g := &Guard{notes: notesIn(run), nat: nat.New()}
	return gone, errors.Join(err, g.unforbid(false))
}

// Close leaves the rules that are to outlive the agent. run has returned.
func (g *Guard) Close() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.filter != nil {
		g.filter.Close()
	}
}

// CanBeStrict is why nothing can be kept from passing in the clear on this host; nil: it can.
func CanBeStrict() error { return filter.CanBeStrict() }
