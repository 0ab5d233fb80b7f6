package fastpath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/grapevine-net/grapevine/host/bypass"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// Config says between which devices packets are carried.
type Config struct {
	Tunnel string // the VXLAN device, a collect-metadata one
	// TunnelMTU is a device whose MTU is the largest inner packet: Tunnel itself, or
	// another one where that has none of its own.
	TunnelMTU string
	Gateway   string // the host's own leg; none: all to and from it is the switch's
	Leg       string // its name, whatever Gateway is
	// Prefix and Device name the host's ends of containers' veths: all begin with
	// Prefix; Device is the one of an endpoint.
	Prefix string
	Device func(endpointID string) string
	// InnerPrefix and Inner name the interfaces by which the switch delivers to containers, and Port is its own one of the
	// tunnel; no Inner: of endpoints with rules nothing is carried.
	InnerPrefix string
	Inner       func(endpointID string) string
	Port        string
	Underlay    Underlay
	// Source is what the tunnel's packets are sent from; invalid: as the kernel chooses, which
	// has to be if it does not know link.TunnelSource.
	Source netip.Addr
	// Judge says whether this host lets pass, unchanged, all packets that would be direct: StartJudged asks it.
	Judge func(bypass.Traffic) error
	// Ports are those by which a bridge sends that is the NIC, as Judge has found it. nil: none are known.
	Ports func() bypass.Ports
	Log   *slog.Logger // nil: slog.Default()
}

// Path is this host's fast path, in the network namespace of the threads that call it.
// Its methods may be called concurrently.
type Path struct {
	cfg Config
	log *slog.Logger

	mu       sync.Mutex
	on       bool
	direct   bool
	judged   bool         // direct only while cfg.Judge says nil
	peers    []netip.Addr // of which it was asked
	said     string       // of what it said
	objs     *bpfObjects  // nil: not loaded yet
	tables   tables
	held     *pipeline.Input   // whose ranges the tables hold; nil: not known
	config   configValue       // as the last pass wants it
	word     word              // as it is
	attached map[string]uint32 // device name -> index of those with our program
	noting   uint32            // index of the gateway's interface where what it is sent is noted
	trouble  error
	quiet    bool // nothing is to be noted
	lull     lull
	swept    time.Time
	deaf     error // why nothing is noted of what rules let through
	rests    error // why nothing is direct though it is to be
	ways     ways
	bare     bares
	inside   insides
	secure   secured
}

// New returns a Path that is off and does nothing.
func New(cfg Config) *Path {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Path{cfg: cfg, log: cfg.Log, attached: map[string]uint32{}, ways: ways{ports: map[portKey]uint32{}}}
}

// Names of the programs' filters.
const (
	endpointProgram = bpfProgGvEndpoint
	tunnelProgram   = bpfProgGvTunnel
	gatewayProgram  = bpfProgGvGateway
	underlayProgram = bpfProgGvUnderlay
)

// AtNIC is the name of the program at the NIC.
const AtNIC = underlayProgram

// Start loads the programs, with the maps of those that a former agent attached, and
// switches the path on: it carries from the next Narrow and Widen on, or goes on
// carrying what it did. Direct says that packets between hosts pass by the VXLAN device.
func (p *Path) Start(direct bool) error { return p.start(direct, false) }

// StartJudged is Start, with packets between hosts direct only while Config.Judge has nothing against it. They are so
// until Withdraw, and no longer than this process lives.
func (p *Path) StartJudged() error { return p.start(true, true) }

func (p *Path) start(direct, judged bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.load(); err != nil {
		return err
	}
	p.on, p.direct, p.judged, p.quiet, p.secure = true, direct, judged, false, secured{}
	return nil
}

// Stop switches the path off: every packet goes to the switch, without one being lost,
// and the programs are gone, also those of a former agent. What takes packets without headers, which others may still send, stays until BareLinger is over.
func (p *Path) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on, p.direct, p.judged, p.secure = false, false, false, secured{}
	if err := errors.Join((Headerless{p}).linger(), (Inside{p}).quiet()); err != nil {
		return err
	}
	names, err := interfaces(p.cfg.Prefix)
	if err != nil {
		return err
	}
	errs := []error{p.leaveUnderlays("")}
	for name := range names {
		errs = append(errs, link.DetachTC(name, link.Ingress, endpointProgram))
	}
	errs = append(errs, link.DetachTC(p.cfg.Tunnel, link.Ingress, tunnelProgram), p.leaveGateway(), p.cfg.unlisten())
	p.unload()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("switch the fast path off: %w", err)
	}
	return nil
}

// On says whether the path is switched on, and what keeps it from carrying all that it
// could; nil: nothing does.
func (p *Path) On() (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.on, p.trouble
}

// Direct says what keeps packets between hosts from being direct, where they are to be.
func (p *Path) Direct() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rests == nil && p.config.Judged != 0 && p.word.void() {
		return bypass.ErrLooking
	}
	return p.rests
}

// Close lets go of the programs and maps; attached as they are, they go on.
func (p *Path) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unload()
	return nil
}

func (p *Path) unload() {
	if p.objs != nil {
		p.word.use(nil)
		_ = p.objs.Close()
	}
	p.objs, p.tables, p.held, p.config, p.attached, p.noting = nil, tables{}, nil, configValue{}, map[string]uint32{}, 0
	p.trouble, p.rests, p.deaf, p.ways = nil, nil, nil, ways{ports: map[portKey]uint32{}}
	p.bare = bares{ends: p.bare.ends}
	p.inside.close()
	p.inside = insides{}
}

// Narrow is called before the flows become those of in: what the path carries from now
// on is carried in the same way by both. An error says that flows must not change,
// since the path cannot be kept from what would be wrong then.
func (p *Path) Narrow(_ context.Context, in pipeline.Input) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	Secure{p}.begin(in)
	if !p.on || p.objs == nil { // closed: a pass may still be on its way
		return nil
	}
	in = Secure{p}.part(in)
	devices, err := interfaces(p.cfg.Prefix)
	if err == nil && p.tables.held.Locals == nil {
		if err = p.tables.read(); err == nil {
			p.config, err = p.word.read() // of a former agent
		}
	}
	if err == nil {
		err = p.tables.void(in)
	}
	if err == nil && p.config.Gateway != 0 && p.config.gate() != gateOf(in) {
		closed := p.config
		closed.Gateway = 0
		err = p.configure(closed)
	}
	if err == nil {
		devices, err = p.cfg.endpoints(in, devices)
	}
	if err == nil {
		if here := (Contents{Locals: localsOf(in, devices), Groups: groupsOf(in, devices)}); holds(p.held, in) {
			err = p.tables.writeLocals(Between(p.tables.held, here))
		} else {
			p.held, here.Ranges = nil, rangesOf(in)
			err = p.tables.write(Between(p.tables.held, here))
		}
	}
	return p.failed(err)
}

// Widen is called when the flows are those of in: all that the path can carry of them,
// it carries from now on.
func (p *Path) Widen(_ context.Context, in pipeline.Input) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on || p.tables.held.Locals == nil {
		return nil
	}
	err := p.widen(Secure{p}.part(in))
	if err == nil {
		p.say(nil)
		return nil
	}
	return p.failed(err)
}

func (p *Path) widen(in pipeline.Input) error {
	p.word.ask() // what is heard from here on makes void all that is read
	if err := p.withdrawFor(in); err != nil {
		return err
	}
	if err := p.tables.forget(nil); err != nil {
		return err
	}
	devices, err := interfaces(p.cfg.Prefix)
	if err != nil {
		return err
	}
	endpoints, err := p.cfg.endpoints(in, devices)
	if err != nil {
		return err
	}
	if here := (Contents{Locals: localsOf(in, endpoints), Groups: groupsOf(in, endpoints)}); holds(p.held, in) {
		if err := p.tables.writeLocals(here); err != nil {
			return err
		}
	} else {
		p.held, here.Ranges = nil, rangesOf(in)
		if err := p.tables.write(here); err != nil {
			return err
		}
		ranges := routed(in)
		p.held = &ranges
	}
	present := map[string]uint32{}
	config := p.config // what is not used stays: a packet on its way may still read it
	config.On, config.Tunnel, config.TunnelMTU, config.Underlay, config.Judged = carriesOn, 0, 0, 0, 0
	if p.secure.only {
		config.On |= carriesSecure
	}
	config.Source, config.Unsummed = addressOf(p.cfg.Source), 0
	if !p.cfg.Underlay.Encap.Summed() {
		config.Unsummed = 1
	}
	if in.TunnelPort != 0 { // a host without its tunnel has its own containers still
		tunnel, err := link.Get(p.cfg.Tunnel)
		if err != nil {
			return err
		}
		mtu, err := link.Get(p.cfg.TunnelMTU)
		if err != nil {
			return err
		}
		config.Tunnel, config.TunnelMTU = uint32(tunnel.Index), uint32(mtu.Index)
		if !p.secure.only {
			present[p.cfg.Tunnel] = config.Tunnel
		}
	}
	config.Gateway = 0
	gateway, err := p.cfg.gateway(in, p.log)
	if err != nil {
		return err
	}
	if gateway != 0 {
		config.open(gateOf(in), gateway)
		present[p.cfg.Gateway] = gateway
	}
	p.sayDirect(p.directly(in, &config))
	if nic := config.nic(); nic != 0 {
		present[p.cfg.Underlay.Device] = nic
	}
	if err := p.configure(config); err != nil {
		return err
	}
	if config.nic() == 0 {
		if err := p.leave(p.cfg.Underlay.Device); err != nil {
			return err
		}
	}
	for _, port := range in.Ports {
		if name := p.cfg.Device(port.Endpoint); devices[name] != 0 && (Secure{p}).attends(port) {
			present[name] = devices[name]
		}
	}
	if gateway == 0 {
		if err := p.leaveGateway(); err != nil {
			return err
		}
	}
	for name, index := range present {
		if err := p.attach(name, index); err != nil {
			return err
		}
	}
	if in.Generation != 0 {
		listening, err := interfaces(p.cfg.InnerPrefix)
		if err != nil {
			return err
		}
		maps.Copy(present, listening)
		present[p.cfg.Port] = p.attached[p.cfg.Port]
	}
	for name := range p.attached {
		if present[name] == 0 {
			delete(p.attached, name)
		}
	}
	if p.lull.over(in.Generation != 0, time.Now()) {
		p.noting = 0
		return errors.Join(p.cfg.unlisten(), p.tables.ungrant())
	}
	if in.Generation != 0 && time.Since(p.swept) >= sweepEvery {
		p.swept = time.Now()
		return p.tables.sweep(clock())
	}
	return nil
}

// holds reports whether the tables, which hold those of held, hold the ranges of in: most passes change none.
func holds(held *pipeline.Input, in pipeline.Input) bool { return held != nil && sameRanges(*held, in) }

// failed stops the programs, since what they know may be wrong; the next pass begins
// with what the maps really hold.
func (p *Path) failed(err error) error {
	if err == nil {
		return nil
	}
	p.say(err)
	p.tables.held, p.held, p.tables.known = Contents{}, nil, known{}
	off := p.config
	off.On = 0
	if stopErr := p.configure(off); stopErr != nil {
		return errors.Join(err, stopErr)
	}
	return nil
}

// say notes and logs trouble, once.
func (p *Path) say(err error) {
	switch {
	case err != nil && (p.trouble == nil || p.trouble.Error() != err.Error()):
		p.log.Warn("the fast path rests, the switch carries all", "error", err)
	case err == nil && p.trouble != nil:
		p.log.Info("the fast path carries again")
	}
	p.trouble = err
}

func (p *Path) configure(c configValue) error {
	if err := p.word.write(c, p.tables.put); err != nil {
		return fmt.Errorf("configure the fast path: %w", err)
	}
	p.config = c
	return nil
}

// interfaces are those whose names begin so, name to index.
func interfaces(prefix string) (map[string]uint32, error) {
	list, err := link.List(prefix)
	if err != nil {
		return nil, err
	}
	out := make(map[string]uint32, len(list))
	for _, l := range list {
		out[l.Name] = uint32(l.Index)
	}
	return out, nil
}

// endpoints are the devices by endpoint, but for those that somebody shapes: redirect_peer passes
// the qdisc of the host's end by, the switch does not.
func (c Config) endpoints(in pipeline.Input, devices map[string]uint32) (map[string]uint32, error) {
	shaped, err := link.Shapers()
	if err != nil {
		return nil, err
	}
	out := make(map[string]uint32, len(in.Ports))
	for _, port := range in.Ports {
		if index := devices[c.Device(port.Endpoint)]; shaped[int(index)] == "" {
			out[port.Endpoint] = index
		}
	}
	return out, nil
}

// attach puts the right program at the device, in place of a former agent's.
func (p *Path) attach(name string, index uint32) error {
	if p.attached[name] == index {
		return nil
	}
	var err error
	switch name {
	case p.cfg.Tunnel:
		err = link.AttachTC(name, link.Ingress, link.First, p.objs.GvTunnel, tunnelProgram)
	case p.cfg.Gateway:
		// Behind others' programs, which see all of it so.
		err = link.AttachTC(name, link.Egress, link.Last, p.objs.GvGateway, gatewayProgram)
	case p.cfg.Underlay.Device:
		err = link.AttachTCX(name, link.Ingress, p.objs.GvUnderlay, underlayProgram)
	default:
		err = link.AttachTC(name, link.Ingress, link.First, p.objs.GvEndpoint, endpointProgram)
	}
	if err != nil {
		return err
	}
	p.attached[name] = index
	return nil
}

// load brings the programs and maps into the kernel, and attaches them where a former
// agent's are.
func (p *Path) load() error {
	if p.objs != nil {
		return nil
	}
	link.RaiseMemlock()
	spec, err := loadBpf()
	if err != nil {
		return fmt.Errorf("read the fast path's programs: %w", err)
	}
	devices, err := interfaces(p.cfg.Prefix)
	if err != nil {
		return err
	}
	old, running, err := p.adopt(spec, devices)
	if err != nil {
		return err
	}
	defer func() {
		for _, m := range old {
			_ = m.Close()
		}
	}()
	if err := errors.Join((Headerless{p}).adoptInto(spec, old), (Inside{p}).adoptInto(spec, old)); err != nil {
		return err
	}
	objs := new(bpfObjects)
	if err := spec.LoadAndAssign(objs, &ebpf.CollectionOptions{MapReplacements: old}); err != nil {
		return fmt.Errorf("load the fast path's programs (needs Linux 5.12 with CONFIG_BPF_SYSCALL, and CAP_BPF and CAP_NET_ADMIN): %w", err)
	}
	for slot, prog := range map[uint32]*ebpf.Program{heldDeliver: objs.GvDeliver, heldLeave: objs.GvAgain, heldAgain: objs.GvEndpoint} {
		if err := put(objs.GvHeld, slot, prog); err != nil {
			return errors.Join(fmt.Errorf("hold the programs that carry from and to the gateway: %w", err), objs.Close())
		}
	}
	p.objs = objs
	p.inside.close()
	p.inside = insides{}
	p.word.use(objs)
	p.tables = tables{config: objs.GvConfig, locals: objs.GvLocals, ranges: objs.GvRanges, groups: objs.GvGroups, counters: objs.GvFpCounters, settled: objs.GvSettled, generation: objs.GvGeneration, rules: objs.GvRules, own: objs.GvOwn, granted: objs.GvGranted, seats: objs.GvSeats, swept: objs.GvSwept}
	for name, index := range running {
		if err := p.attach(name, index); err != nil {
			return err
		}
	}
	return errors.Join(p.leaveUnderlays(p.cfg.Underlay.Device), Headerless{p}.leaveNICs(p.cfg.Underlay.Device)) // of a former agent with another NIC
}

// fresh are maps that not all have; they begin empty, but for those of Headerless and Inside.
var fresh = []string{bpfMapGvUdpFlows, bpfMapGvHeld, bpfMapGvLease, bpfMapGvPorts, bpfMapGvAgainHeld, bpfMapGvBlank, bpfMapGvBareFrom, bpfMapGvBareHosts, bpfMapGvBareCounts, bpfMapGvBarePairs, bpfMapGvInRanges, bpfMapGvInHosts, bpfMapGvInSelf, bpfMapGvInDevice, bpfMapGvInCounts}

// adopt returns the maps of attached programs that fit, and where those run. Maps come all from
// one program: they belong together.
func (p *Path) adopt(spec *ebpf.CollectionSpec, devices map[string]uint32) (map[string]*ebpf.Map, map[string]uint32, error) {
	old, running := map[string]*ebpf.Map{}, map[string]uint32{}
	look := func(name string, id ebpf.ProgramID, index uint32) error {
		if id == 0 {
			return nil
		}
		running[name] = index
		if len(old) > 0 {
			return nil
		}
		if err := link.AdoptMaps(id, spec, old); err != nil {
			return err
		}
		for _, name := range fresh {
			if m := old[name]; m != nil {
				_ = m.Close()
				delete(old, name)
			}
		}
		known := len(old)
		if old[bpfMapGvGroups] != nil { // nor all this, which is kept
			known--
		}
		if known < len(spec.Maps)-len(fresh)-1 { // of another version: none, rather than a part
			for name, m := range old {
				_ = m.Close()
				delete(old, name)
			}
		}
		return nil
	}
	if l, err := link.Get(p.cfg.Underlay.Device); err == nil {
		id, err := link.AttachedTCX(l.Name, link.Ingress, underlayProgram)
		if err == nil {
			err = look(l.Name, id, uint32(l.Index))
		}
		if err != nil {
			return nil, nil, err
		}
	}
	programs := map[string]string{}
	for name := range devices {
		programs[name] = endpointProgram
	}
	if l, err := link.Get(p.cfg.Tunnel); err == nil {
		devices = maps.Clone(devices)
		devices[l.Name], programs[l.Name] = uint32(l.Index), tunnelProgram
	}
	hooks := map[string]link.Hook{}
	if l, err := link.Get(p.cfg.Gateway); p.cfg.Gateway != "" && err == nil {
		devices = maps.Clone(devices)
		devices[l.Name], programs[l.Name], hooks[l.Name] = uint32(l.Index), gatewayProgram, link.Egress
	}
	for name, index := range devices {
		hook := link.Ingress
		if h, other := hooks[name]; other {
			hook = h
		}
		id, err := link.AttachedTC(name, hook, programs[name])
		if err == nil {
			err = look(name, id, index)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return old, running, nil
}

// ErrNoJIT says that this kernel interprets programs, which costs more than they save.
var ErrNoJIT = errors.New("this kernel has no JIT compiler for BPF, or it is off (sysctl net.core.bpf_jit_enable=1 turns it on)")

// Compiled loads the programs and says whether the kernel compiled them: nil, or ErrNoJIT,
// or why they cannot be loaded.
func (p *Path) Compiled() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.load(); err != nil {
		return err
	}
	info, err := p.objs.GvTunnel.Info()
	if err != nil {
		return fmt.Errorf("ask about the fast path's programs: %w", err)
	}
	if size, err := info.JitedSize(); err != nil || size == 0 {
		return ErrNoJIT
	}
	return nil
}

// Tally reads what the path carried, for each entry since it has been there; nothing
// while the path is off.
func (p *Path) Tally() (pipeline.Tally, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objs == nil || p.tables.held.Locals == nil {
		return pipeline.Tally{}, nil
	}
	return p.tables.tally()
}
