package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/dns"
	"github.com/grapevine-net/grapevine/host/capability"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/portreserve"
	"github.com/grapevine-net/grapevine/host/proxy"
	"github.com/grapevine-net/grapevine/overlay"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/guard"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/overlay/tunnel"
)

// bridgeName is our bridge in whichever Open vSwitch is used.
const bridgeName = "gvbr0"

// vswitch is this host's Open vSwitch and the overlay in it.
type vswitch struct {
	bridge   *ovs.Bridge
	embedded *ovs.Embedded  // nil: the host's own daemons
	tunnel   *tunnel.Tunnel // nil: the kernel datapath has its own
	gateway  *gateway.Gateway
	nat      *nat.NAT
	guard    *guard.Guard
	held     portreserve.Sockets // of published ports
	proxy    *proxy.Server
	overlay  *overlay.Overlay
	fast     *fastPath
	bound    bool // programs say from which address VXLAN packets are sent
	log      *slog.Logger
	slow     sync.Once
	told     <-chan struct{} // closed when another host has told what it knows
	caughtUp chan struct{}   // closed then too, or after catchUpPatience
}

// catchUpPatience is how long a switch that forwards is left as it is until another host has
// told what this one may have forgotten: long enough to open a few streams where packets are
// lost, and no longer, since new containers wait for it where there is no other host.
const catchUpPatience = 3 * time.Second

// newVSwitch chooses the Open vSwitch; nothing is made yet.
func newVSwitch(ctx context.Context, cfg config.Config, datapath ovs.Datapath, log *slog.Logger) (*vswitch, error) {
	v := &vswitch{nat: nat.New(), log: log, caughtUp: make(chan struct{})}
	stateDir := filepath.Join(cfg.State, "ovs")
	instance := ovs.NewInstance(ovs.DefaultSocket)
	embedded, err := chooseEmbedded(ctx, cfg.OVS, instance, stateDir)
	if err != nil {
		return nil, err
	}
	if embedded {
		major, minor, err := ovs.Version(ctx)
		if err != nil {
			return nil, fmt.Errorf("start Open vSwitch: %w; install it (openvswitch-switch)", err)
		}
		v.embedded = &ovs.Embedded{
			RunDir: filepath.Join(cfg.Run, "ovs"), StateDir: stateDir, Datapath: datapath,
			UserspaceTSO: major > 3 || major == 3 && minor >= 5, Host: ovs.NewInstance(ovs.DefaultSocket), Log: log,
		}
		instance = v.embedded.Instance()
	}
	v.bridge = &ovs.Bridge{Instance: instance, Name: bridgeName, Datapath: datapath}
	return v, nil
}

// mayRun says what is the matter if the agent may not do what it has to: at once, and not by
// whatever fails first.
func (a *Agent) mayRun(datapath ovs.Datapath) error {
	set, err := capability.Effective()
	if err != nil {
		return err
	}
	lacking, err := set.Check(datapath == ovs.Userspace)
	for _, c := range lacking {
		a.log.Warn("the agent lacks a capability, and works without what needs it", "capability", c.Name, "needs", c.Why)
	}
	return err
}

func chooseDatapath(ctx context.Context, want string) (ovs.Datapath, error) {
	found := ovs.DetectDatapath(ctx)
	switch {
	case want == "auto":
		return found, nil
	case want == "kernel" && found != ovs.Kernel:
		return "", errors.New("this kernel has no openvswitch module: install it, or set GRAPEVINE_DATAPATH=userspace (slower)")
	}
	return ovs.Datapath(want), nil
}

// chooseEmbedded reports whether the agent is to run Open vSwitch itself. A host
// that once did goes on, so that its switch is found again whatever starts first.
func chooseEmbedded(ctx context.Context, want string, host *ovs.Instance, stateDir string) (bool, error) {
	if want == "embedded" {
		return true, nil
	}
	if _, err := os.Stat(stateDir); err == nil && want == "auto" {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	err := host.Ping(ctx)
	if err != nil && want == "host" {
		return false, fmt.Errorf("the host's Open vSwitch: %w; start it, or set GRAPEVINE_OVS=embedded", err)
	}
	return err != nil, nil
}

// encapsulation is what VXLAN adds to an IP packet over IPv4: the inner Ethernet
// header, VXLAN, UDP and IPv4 (RFC 7348); IPv6's header has twenty bytes more.
const encapsulation = 14 + 8 + 8 + 20

// innerMTU is the MTU of containers' interfaces.
func (a *Agent) innerMTU() int {
	if a.underlay.Addr.Is6() {
		return a.underlay.MTU - encapsulation - 20
	}
	return a.underlay.MTU - encapsulation
}

// openSwitch makes the switch, whose gateway has the given rules as well.
func (a *Agent) openSwitch(ctx context.Context, datapath ovs.Datapath, rules []nat.Rule) (err error) {
	log := a.log.With("room", "overlay")
	v, err := newVSwitch(ctx, a.cfg, datapath, log)
	if err != nil {
		return err
	}
	if v.proxy, err = proxy.New(&v.held, a.internalClients(), log); err != nil {
		return err
	}
	a.vswitch = v
	v.gateway = gateway.New(string(a.self()))
	v.guard = guard.New(guard.Config{
		Self: a.self(), Own: []uint16{a.cfg.VXLANPort, a.cfg.Port}, VTEPs: []netip.Addr{a.underlay.Addr, a.cfg.Bind}, Underlay: a.underlay.Interface,
		Names: []uint16{53, dns.DefaultPort}, Run: a.cfg.Run, Source: a.replica, NAT: v.nat, Log: log,
	})
	v.gateway.BeforeForwarding, v.gateway.WithoutIPv6 = v.guard.Forbid, v.guard.WithoutIPv6
	source := a.vxlanSource()
	forPrograms := source
	var why error
	if v.bound, why = link.TunnelSource(); !v.bound {
		log.Info("this kernel chooses the source of VXLAN packets by the route (it takes no other before Linux 5.19)", "err", why)
		forPrograms = netip.Addr{}
	}
	cfg := overlay.Config{
		Self: a.self(), Bridge: v.bridge, Mode: pipeline.Metadata,
		Tunnel:    overlay.KernelTunnel{Bridge: v.bridge, UDPPort: a.cfg.VXLANPort, Source: source},
		Gateway:   natGateway{v.gateway, v.guard, v.nat, rules, func() []netip.Prefix { return a.replica.Snapshot().InternalSubnets() }, a.names.Hear},
		VXLANPort: a.cfg.VXLANPort, GossipPort: a.cfg.Port, MTU: a.underlay.MTU, Reach: a.reached,
		CaughtUp: v.caughtUp, Log: log,
	}
	v.told = a.replica.CaughtUp()
	if a.replica.Snapshot().Ring().Len() == 0 {
		// A new host has forgotten nothing: what its switch has is of a former one, whose
		// addresses may be other hosts' by now.
		told := make(chan struct{})
		close(told)
		v.told = told
	}
	cfg.Links = v.linkGuard()
	v.adoptLinks()
	if v.embedded != nil {
		cfg.InPlace, cfg.Settled = v.embedded.FlowsInPlace, v.embedded.Settled
	}
	if v.bridge.Datapath == ovs.Userspace {
		v.tunnel = tunnel.New(tunnel.Config{UDPPort: a.cfg.VXLANPort, MTU: a.innerMTU(), TSO: v.embedded != nil && v.embedded.UserspaceTSO, Source: forPrograms})
		cfg.Tunnel, cfg.Mode = v.tunnel, pipeline.HeaderBits
		cfg.Opened = v.growBuffers
	}
	v.fast = v.newFastPath(a.cfg.VXLANPort, a.underlay, forPrograms)
	v.fast.set(a.cfg.FastPath)
	cfg.Fast = v.fast.path
	v.overlay, err = overlay.New(cfg, a.replica)
	return err
}

// growBuffers gives the sockets by which the switch reads interfaces more room.
// Without it everything works, but slower: trouble is logged once.
func (v *vswitch) growBuffers() {
	text, err := os.ReadFile(filepath.Join(v.bridge.RunDir, "ovs-vswitchd.pid"))
	if err == nil {
		var pid int
		if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			err = link.GrowBuffers(pid)
		}
	}
	if err != nil {
		v.slow.Do(func() { v.log.Warn("the switch's packet sockets stay small, which costs throughput", "err", err) })
	}
}

// choosesSource says whether the kernel chooses by the route from which address VXLAN packets are
// sent. Open vSwitch tells the kernel's own datapath.
func (v *vswitch) choosesSource() bool {
	on, _ := v.fast.path.On()
	return !v.bound && (on || v.bridge.Datapath == ovs.Userspace)
}

func (v *vswitch) datapath() ovs.Datapath { return v.bridge.Datapath }

// kernelCounters is nil with the userspace datapath, and while there is none in the kernel.
func (v *vswitch) kernelCounters() *api.KernelDatapath {
	if v.bridge.Datapath != ovs.Kernel {
		return nil
	}
	c, err := ovs.KernelCounters()
	if err != nil {
		return nil // the problems tell of a switch that is down
	}
	return (*api.KernelDatapath)(&c)
}

func (v *vswitch) kind() string {
	if v.embedded != nil {
		return "embedded"
	}
	return "host"
}

// run keeps daemons and flows until ctx ends, and leaves them as they are.
func (v *vswitch) run(ctx context.Context) error {
	tasks, ctx := errgroup.WithContext(ctx)
	if v.embedded != nil {
		tasks.Go(func() error { return v.embedded.Run(ctx) })
	}
	tasks.Go(func() error { return v.nat.Run(ctx, v.log) })
	tasks.Go(func() error { return v.guard.Run(ctx) })
	tasks.Go(func() error { return v.proxy.Run(ctx) })
	tasks.Go(func() error { v.catchUp(ctx); return nil })
	tasks.Go(func() error {
		v.await(ctx)
		return v.overlay.Run(ctx)
	})
	if err := tasks.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// catchUp closes the channel caughtUp.
func (v *vswitch) catchUp(ctx context.Context) {
	defer close(v.caughtUp)
	select {
	case <-ctx.Done():
	case <-v.told:
	case <-time.After(catchUpPatience):
	}
}

// await gives daemons that are just being started a moment, so that the overlay
// does not begin with a complaint.
func (v *vswitch) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for v.bridge.Ping(ctx) != nil && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
}

func (v *vswitch) close() error {
	v.held.Close()
	v.guard.Close()
	var errs []error
	if v.fast != nil {
		errs = append(errs, v.fast.path.Close())
	}
	if v.tunnel != nil {
		errs = append(errs, v.tunnel.Close())
	}
	return errors.Join(errs...)
}

// teardown removes what run leaves. run has returned.
func (v *vswitch) teardown(ctx context.Context) error {
	errs := []error{v.fast.path.Stop(), v.nat.Remove(ctx), v.gateway.Remove(), v.overlay.Teardown(ctx)}
	if v.tunnel != nil {
		errs = append(errs, v.tunnel.Remove(ctx))
	}
	errs = append(errs, v.guard.Remove()) // gv0 is gone
	if v.embedded != nil {
		errs = append(errs, v.embedded.Stop(ctx), os.RemoveAll(v.embedded.RunDir), os.RemoveAll(v.embedded.StateDir))
	}
	return errors.Join(append(errs, removeVeths())...)
}

// removeVeths deletes the interfaces of containers that are still attached.
func removeVeths() error {
	var errs []error
	for _, prefix := range []string{"gv", outerPrefix} {
		list, err := link.List(prefix)
		errs = append(errs, err)
		for _, l := range list {
			if strings.HasPrefix(l.Alias, "grapevine") {
				errs = append(errs, link.Delete(l.Name))
			}
		}
	}
	return errors.Join(errs...)
}

// flows answers GET /v1/flows.
func (v *vswitch) flows(ctx context.Context) ([]api.Flow, error) {
	list, err := v.overlay.Flows(ctx)
	if err != nil {
		return nil, err
	}
	flows := []api.Flow{}
	for _, f := range list {
		flows = append(flows, api.Flow{
			Table: f.Table, Stage: f.Stage, Priority: f.Priority, Match: f.Match, Actions: f.Actions,
			Object: f.Object, Cookie: f.Cookie, Packets: f.Packets, Bytes: f.Bytes,
		})
	}
	return flows, nil
}

// hangs is the problem of a switch that runs and answers nothing for so long. Only people can tell
// whether it is busy: without ovs-vswitchd the fast path, or the kernel, carries what it knows only.
func (v *vswitch) hangs(d time.Duration) api.Problem {
	p := api.Problem{
		What: fmt.Sprintf("the switch: ovs-vswitchd has not answered within %v", d),
		Do:   "look whether it is busy (top), or hangs; systemctl restart openvswitch-switch starts it again",
	}
	if v.embedded != nil {
		p.Do = "look whether it is busy (top), or hangs; pkill -9 ovs-vswitchd ends it, and the agent starts it again"
	}
	return p
}

// problems says what keeps the switch from being as it should be.
func (v *vswitch) problems(ctx context.Context, gone unlinked) (list []api.Problem) {
	if v.embedded != nil {
		var rival *ovs.RivalError
		if errors.As(v.embedded.Rival(ctx), &rival) {
			list = append(list, api.Problem{What: "the switch: " + rival.Error(), Do: "set GRAPEVINE_OVS=host: the bridges of both are then that Open vSwitch's"})
		}
	}
	list = append(list, v.guard.Problems()...)
	for _, err := range v.overlay.Problems(gone.endpoints...) {
		list = append(list, api.Problem{What: "the switch: " + err.Error(), Do: "the agent goes on trying; its log says more"})
	}
	return append(list, v.fast.problems()...)
}
