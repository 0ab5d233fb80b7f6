package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/service/expose"
)

// reconciler does one pass after another. It belongs to the loop's goroutine.
type reconciler struct {
	cfg Config
	log *slog.Logger

	// What is known of the switch; good while nobody else changes it and no step fails.
	known bool
	// The flows that were there at the start stay until a pass has begun with a snapshot
	// that is as new as they are (Config.CaughtUp).
	behind bool
	ports  map[string]ovs.Port
	tunnel string // the tunnel's port

	// What was planned and compiled last: most changes of a snapshot are other hosts'
	// endpoints, of which no flow speaks.
	plans    plans
	compiler pipeline.Compiler
	flows    []pipeline.Flow            // that are in place
	read     time.Time                  // when they were read last
	silent   func(since time.Time) bool // events.silent; nil: nobody listens

	deferred bool // ports wait for InPlace (Config.Settled)

	touched time.Time // when we changed ports last: the switch will tell us so

	vteps      map[uint32]netip.Addr
	gateway    gateway.Config  // as it was set last
	gatewayFor *topology       // what it was set for; nil: it is not
	fronts     []uint16        // ports that this host is to have for the outside
	reached    <-chan struct{} // as Config.Reach.Watch was then
	gatewayMTU int             // as the switch was told

	crowds func() []pipeline.Crowd                     // nil: there are none
	tracks func(context.Context) (can bool, err error) // see Overlay.tracks; nil: it can
	told   *told                                       // nil: nothing by name

	liberal bool // Config.Liberal was done
	fresh   bool // the switch remembers nothing of flows of before: see freshen

	narrowed bool // flows have changed that may forbid something: see narrowing

	again   []string // the bundle applied last
	repeats int      // how often it was applied before
	logged  string
}

// reconcile makes the switch what snap says. result.err says why flows are not in
// place; the error, what else is to be tried again. Containers' traffic comes
// first: neither a tunnel nor a gateway that fails keeps local flows from their place.
func (r *reconciler) reconcile(ctx context.Context, snap *cluster.Snapshot, why reason, detached map[string]bool) (result, error) {
	if !r.known {
		why = max(why, theirs)
	}
	r.deferred = false
	res := result{rev: snap.Rev(), problems: map[string]error{}}
	tunnelErr, err := r.switchPorts(ctx, snap, why, detached, res.problems)
	portErr := brokenPorts(r.ports)
	var madeGateway bool
	if err == nil {
		madeGateway, err = r.gatewayPort(ctx, snap.GatewayMTU(r.cfg.MTU), why == everything && r.lostGateway())
	}
	if err == nil {
		err = r.switchFlows(ctx, snap, why, &res)
	}
	if err == nil && r.cfg.InPlace != nil {
		err = r.cfg.InPlace(ctx)
	}
	if r.known = err == nil; r.known && r.deferred && r.cfg.Settled() {
		return r.reconcile(ctx, snap, everything, detached)
	}
	if err != nil {
		res.err = fmt.Errorf("reconcile the switch: %w", err)
		res.rest = tunnelErr
		if !errors.Is(err, errBehind) {
			r.report(ctx, errors.Join(res.err, tunnelErr))
		}
		return res, tunnelErr
	}
	res.rest = errors.Join(tunnelErr, portErr, r.ensureGateway(ctx, snap, res.input, madeGateway || why == everything))
	r.report(ctx, res.rest)
	return res, res.rest
}

// report logs what is wrong, once. At the end of the agent everything fails.
func (r *reconciler) report(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == r.logged:
	case err == nil:
		r.log.Info("overlay is whole again")
	default:
		r.log.Warn("overlay is not as it should be, trying again", "error", err)
	}
	r.logged = text
}

// switchFlows makes the flows those of snap. VTEPs are known to the tunnel before
// flows use them and forgotten after.
func (r *reconciler) switchFlows(ctx context.Context, snap *cluster.Snapshot, why reason, res *result) error {
	if r.tracks != nil {
		can, err := r.tracks(ctx)
		if err != nil && anyPolicy(snap) {
			return err
		}
		r.plans.powerless = !can
	}
	r.seal(ctx, snap)
	if r.cfg.Unheard != nil {
		r.plans.unheard = r.cfg.Unheard(snap)
	}
	in, problems := r.plans.plan(snap, r.cfg.Self, r.cfg.Mode, r.planPorts())
	in.VXLANPort, in.GRE, in.GossipPort = r.cfg.VXLANPort, r.cfg.VXLANPort == 0, r.cfg.GossipPort
	in.Exits = exitsOf(snap, r.cfg.Self, r.plans.topology, r.cfg.Egress, !r.plans.powerless, r.plans.unheard)
	if in.Own = nil; len(in.Exits) > 0 && r.cfg.Reach != nil {
		in.Own = r.cfg.Reach.Own()
	}
	exposures := expose.All(snap)
	in.Exposed = exposedOf(exposures, r.plans.topology, !r.plans.powerless)
	r.fronts = Fronts(exposures, r.cfg.Heeds)
	for _, p := range problems {
		if p.Key.Kind == cluster.KindEndpoint {
			res.problems[p.Key.ID] = p.Err
		}
		r.log.Debug("record left out of the flows", "key", p.Key, "error", p.Err)
	}
	if r.crowds != nil && len(in.Policy.Guards) > 0 {
		in.Policy.Crowds = r.crowds()
	}
	r.settle(ctx, &in, why)
	want, changes, err := r.compiler.Compile(in)
	if err != nil && len(in.Policy.Rules) > 0 {
		// Rules that the switch cannot have cut off those whom they are about, and nobody else.
		for _, g := range in.Policy.Guards {
			res.problems[g.Endpoint] = fmt.Errorf("the policies that select it come to more than a switch takes, and it is cut off until there are fewer (`grapevine policy list`): %w", err)
		}
		in.Policy.Rules, in.Policy.Openings = nil, nil
		want, changes, err = r.compiler.Compile(in)
	}
	if err != nil {
		return err
	}
	have := r.flows
	if why >= theirs && !r.sure(why) {
		if have, err = r.dump(ctx, !r.known || pipeline.AnyGroup(want)); err != nil {
			return err
		}
		changes = pipeline.Diff(have, want)
		if len(changes.Modify)+len(changes.Delete) > 0 && r.behind {
			return errors.Join(errBehind, r.planAnew()) // the epochs that it made are of no rules
		}
	}
	if in.Generation != 0 && changes.TouchPolicy() {
		if want, changes, err = r.nextGeneration(&in, have, changes); err != nil {
			return err
		}
	}
	if err := r.plans.policies.epochs.save(); err != nil {
		r.log.Warn("an agent that is started anew may take connections for allowed that are not", "error", err)
	}
	vteps := make(map[uint32]netip.Addr, len(in.VTEPs))
	for _, v := range in.VTEPs {
		vteps[v.Index] = v.Addr
	}
	before := make(map[uint32]netip.Addr, len(vteps))
	maps.Copy(before, r.vteps)
	maps.Copy(before, vteps)
	if err := r.setVTEPs(ctx, before, why); err != nil {
		return err
	}
	if why >= theirs && changes.Empty() {
		r.again = nil // what was set has stayed
	}
	if r.cfg.Rejects != nil {
		r.cfg.Rejects(in.Rejects())
	}
	if err := r.applyBeside(ctx, in, changes); err != nil {
		return err
	}
	r.flows = want
	res.input, res.attached = in, map[string]bool{}
	for _, p := range in.Ports {
		res.attached[p.Endpoint] = true
	}
	return r.setVTEPs(ctx, vteps, ourChange)
}

// seal asks, before anything of an encrypted network has a way, whether it can go in the clear. The tunnel, which may be
// bound to this host's address outside, is made ready for those inside.
func (r *reconciler) seal(ctx context.Context, snap *cluster.Snapshot) {
	was := r.plans.exposed
	r.plans.exposed = r.cfg.Sealed != nil && !(snap.Encrypted() && r.cfg.Sealed())
	if !was || r.plans.exposed || r.tunnel == "" {
		return
	}
	if err := r.ensureTunnel(ctx); err != nil {
		r.log.Warn("encrypted networks have no way to other hosts yet", "error", err)
		r.plans.exposed = true
	}
}

// planAnew forgets what was planned, but for the epochs on the disk.
func (r *reconciler) planAnew() error {
	r.plans = plans{policies: enforcer{epochs: &epochs{store: r.cfg.Epochs}, told: r.told, slots: r.slots()}, reaches: r.cfg.Reaches}
	if r.cfg.Epochs == nil {
		return nil
	}
	return r.plans.policies.epochs.load()
}

// errBehind says that this host may know less than whoever made the flows.
var errBehind = errors.New("its flows are of another state of the cluster than this host has on its disk; waiting for another host to say which is newer")

// caughtUp notes whether a snapshot that is taken now is as new as the flows are.
func (r *reconciler) caughtUp() {
	select {
	case <-r.cfg.CaughtUp:
		r.behind = false
	default:
	}
}

// applyBeside changes flows while the fast path keeps to what those before and those
// after agree on.
func (r *reconciler) applyBeside(ctx context.Context, in pipeline.Input, c pipeline.Changes) error {
	if r.cfg.Fast == nil {
		return r.apply(ctx, c)
	}
	if path, can := r.cfg.Fast.(settler); can {
		path.Begin(c.Begun())
	}
	if err := r.cfg.Fast.Narrow(ctx, in); err != nil {
		return err
	}
	if err := r.apply(ctx, c); err != nil {
		return err
	}
	return r.cfg.Fast.Widen(ctx, in)
}

// maxRepeats is how often one and the same bundle is applied in a row. After that
// somebody undoes it each time, or the switch spells a flow in another way than
// pipeline does: then it is done at the pace of retries, and said.
const maxRepeats = 5

func (r *reconciler) apply(ctx context.Context, c pipeline.Changes) error {
	if c.Empty() {
		return r.freshen(ctx)
	}
	// Before the flows, lest what is looked up by them is forgotten again.
	if err := r.cfg.Bridge.ForgetConnections(ctx, pipeline.Zone, c.Tracked()...); err != nil {
		r.log.Warn("open connections of containers that have rules now may end", "error", err)
	}
	if path, can := r.cfg.Fast.(owner); can {
		if err := path.Forget(slices.Concat(c.Tracked(), c.Left())); err != nil {
			return err
		}
	}
	lines := c.Lines()
	r.fresh, r.narrowed = false, r.narrowed || c.Narrow()
	if err := r.cfg.Bridge.ApplyBundle(ctx, lines); err != nil {
		return err
	}
	if err := r.freshen(ctx); err != nil {
		return err
	}
	r.log.Debug("changed flows", "added", len(c.Add), "modified", len(c.Modify), "deleted", len(c.Delete))
	if !slices.Equal(lines, r.again) {
		r.again, r.repeats = lines, 0
		return nil
	}
	if r.repeats++; r.repeats >= maxRepeats {
		return fmt.Errorf("%d flows do not stay as they are set, the first: %q", len(lines), lines[0])
	}
	return nil
}

// freshen has the switch go by its flows, once they have changed, and by nothing that it remembers of those before.
func (r *reconciler) freshen(ctx context.Context) error {
	if r.fresh {
		return nil
	}
	if err := r.cfg.Bridge.ForgetMegaflows(ctx); err != nil {
		return err
	}
	r.fresh = true
	return nil
}

func (r *reconciler) setVTEPs(ctx context.Context, vteps map[uint32]netip.Addr, why reason) error {
	if why < everything && r.vteps != nil && maps.Equal(vteps, r.vteps) {
		return nil
	}
	if err := r.cfg.Tunnel.SetVTEPs(ctx, vteps); err != nil {
		return fmt.Errorf("tell the tunnel its VTEPs: %w", err)
	}
	r.vteps = vteps
	return nil
}

// sure reports whether the flows are as they were when they were read last, as is nearly always so when everything is looked at. To
// read them is a process each time, of what an agent at rest takes a sixteenth.
func (r *reconciler) sure(why reason) bool {
	return why == everything && r.known && r.silent != nil && r.silent(r.read) && time.Since(r.read) < reread
}

// dump reads the flows of the switch and, where there may be any, its groups: to ask for these is a process more.
func (r *reconciler) dump(ctx context.Context, grouped bool) ([]pipeline.Flow, error) {
	r.read = time.Now()
	flows, err := r.cfg.Bridge.DumpFlows(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]pipeline.Flow, len(flows))
	for i, f := range flows {
		out[i] = pipelineFlow(f)
	}
	if !grouped {
		return out, nil
	}
	groups, err := r.cfg.Bridge.DumpGroups(ctx)
	for _, g := range groups {
		out = append(out, pipeline.GroupEntry(g.ID, g.Text))
	}
	return out, err
}

// pipelineFlow leaves out the counters. A flow with timeouts or flags is none that
// pipeline would make: it gets actions that equal none.
func pipelineFlow(f ovs.Flow) pipeline.Flow {
	p := pipeline.Flow{Table: f.Table, Priority: f.Priority, Cookie: f.Cookie, Match: f.Match, Actions: f.Actions}
	if f.Attributes != "" {
		p.Actions = f.Attributes + " " + f.Actions
	}
	return p
}

// ensureGateway tells the gateway what it is to have, if that is new or must be looked at.
func (r *reconciler) ensureGateway(ctx context.Context, snap *cluster.Snapshot, in pipeline.Input, look bool) error {
	if r.cfg.Gateway == nil {
		return nil
	}
	reached := r.watchReach()
	if !look && r.gatewayFor != nil && r.gatewayFor == r.plans.topology && reached == r.reached && slices.Equal(r.gateway.Closed, r.plans.closed) && slices.Equal(r.gateway.Exposed, r.fronts) {
		return nil
	}
	var barred map[netip.Prefix]bool
	var clear []netip.Prefix
	if r.cfg.Reach != nil {
		barred, clear = r.cfg.Reach.Judge(snap)
	}
	cfg := gatewayOf(snap, in, barred, clear, r.cfg.MTU)
	cfg.Closed, cfg.Exposed = r.plans.closed, r.fronts
	if !look && r.gatewayFor != nil && reflect.DeepEqual(cfg, r.gateway) {
		r.gatewayFor, r.reached = r.plans.topology, reached
		return nil
	}
	if err := r.cfg.Gateway.Ensure(ctx, cfg); err != nil {
		r.gatewayFor = nil
		return fmt.Errorf("set up the gateway %s: %w", r.cfg.Gateway.PortName(), err)
	}
	r.gateway, r.gatewayFor, r.reached = cfg, r.plans.topology, reached
	return nil
}

// watchReach is Config.Reach's Watch, if there is one.
func (r *reconciler) watchReach() <-chan struct{} {
	if r.cfg.Reach == nil {
		return nil
	}
	return r.cfg.Reach.Watch()
}

// gatewayOf is what the gateway port is to have: nothing of the subnets and ranges that are barred, as
// this host reaches something else there. Its lists are sorted.
func gatewayOf(snap *cluster.Snapshot, in pipeline.Input, barred map[netip.Prefix]bool, clear []netip.Prefix, underlay int) gateway.Config {
	cfg := gateway.Config{MTU: snap.GatewayMTU(underlay), MTUs: map[netip.Prefix]int{}, CIDRs: slices.Clone(clear)}
	cfg.Remote = make([]netip.Prefix, 0, len(in.Routes))
	v6 := false
	for _, s := range in.Subnets {
		if barred[s.Prefix] {
			continue
		}
		if s.Gateway.IsValid() {
			cfg.Addrs = append(cfg.Addrs, netip.PrefixFrom(s.Gateway, s.Prefix.Bits()))
		}
		cfg.Subnets = append(cfg.Subnets, s.Prefix)
		v6 = v6 || s.Prefix.Addr().Is6()
	}
	cfg.CIDRs = append(cfg.CIDRs, cfg.Subnets...)
	for _, r := range in.Routes {
		if inBarred(barred, r.Prefix) {
			continue
		}
		if r.VTEP.IsValid() {
			cfg.Remote = append(cfg.Remote, r.Prefix)
		} else {
			cfg.Own = append(cfg.Own, r.Prefix)
		}
	}
	for _, a := range in.Host {
		for _, all := range pipeline.HostRanges {
			if all.Contains(a) && (v6 || a.Is4()) && !barred[all] {
				cfg.Host = append(cfg.Host, netip.PrefixFrom(a, all.Bits()))
			}
		}
	}
	plain, encrypted, six := snap.MTU(underlay), snap.EncryptedMTU(underlay), snap.NetworksOfIPv6()
	for s := range cluster.All[cluster.Subnet](snap) {
		// As Snapshot.NetworkMTU has it, which looks at all hosts each time.
		n, ok := cluster.Get[cluster.Network](snap, s.Network)
		mtu := plain
		if ok && n.Encrypted() {
			mtu = encrypted
		}
		if n.MTU != 0 {
			mtu = min(mtu, n.MTU)
		}
		if six[s.Network] {
			mtu = max(mtu, cluster.MinMTU6)
		}
		if mtu < cfg.MTU {
			cfg.MTUs[s.Prefix] = mtu
		}
	}
	for _, list := range []*[]netip.Prefix{&cfg.Addrs, &cfg.Subnets, &cfg.CIDRs, &cfg.Remote, &cfg.Own} {
		slices.SortFunc(*list, comparePrefix)
		*list = slices.Compact(*list)
	}
	return cfg
}

// inBarred reports whether a range lies in a subnet that is barred.
func inBarred(barred map[netip.Prefix]bool, p netip.Prefix) bool {
	for s := range barred {
		if s.Bits() <= p.Bits() && s.Contains(p.Addr()) {
			return true
		}
	}
	return false
}
