package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/internal/ovs"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// reconciler does one pass after another. It belongs to the loop's goroutine.
type reconciler struct {
	cfg Config
	log *slog.Logger

	// What is known of the switch; good while nobody else changes it and no step fails.
	known  bool
	ports  map[string]ovs.Port
	flows  []pipeline.Flow
	tunnel string // the tunnel's port

	touched time.Time // when we changed it last

	vteps  map[uint32]netip.Addr
	addrs  []netip.Prefix
	routes []netip.Prefix

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
	res := result{rev: snap.Rev(), problems: map[string]error{}}
	tunnelErr, err := r.switchPorts(ctx, snap, why, detached, res.problems)
	portErr := brokenPorts(r.ports)
	var madeGateway bool
	if err == nil {
		madeGateway, err = r.gatewayPort(ctx)
	}
	if err == nil {
		err = r.switchFlows(ctx, snap, why, &res)
	}
	if err == nil && r.cfg.InPlace != nil {
		err = r.cfg.InPlace(ctx)
	}
	r.known = err == nil
	if err != nil {
		res.err = fmt.Errorf("reconcile the switch: %w", err)
		res.rest = tunnelErr
		r.report(ctx, errors.Join(res.err, tunnelErr))
		return res, tunnelErr
	}
	res.rest = errors.Join(tunnelErr, portErr, r.gateway(ctx, res.input, madeGateway || why == everything))
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
	in, problems := Plan(snap, r.cfg.Self, r.cfg.Mode, r.planPorts())
	in.VXLANPort = r.cfg.VXLANPort
	for _, p := range problems {
		if p.Key.Kind == cluster.KindEndpoint {
			res.problems[p.Key.ID] = p.Err
		}
		r.log.Debug("record left out of the flows", "key", p.Key, "error", p.Err)
	}
	want, err := pipeline.Compile(in)
	if err != nil {
		return err
	}
	if why >= theirs {
		if r.flows, err = r.dump(ctx); err != nil {
			return err
		}
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
	changes := pipeline.Diff(r.flows, want)
	if why >= theirs && changes.Empty() {
		r.again = nil // what was set has stayed
	}
	if err := r.apply(ctx, changes); err != nil {
		return err
	}
	r.flows = want
	res.input, res.attached = in, map[string]bool{}
	for _, p := range in.Ports {
		res.attached[p.Endpoint] = true
	}
	return r.setVTEPs(ctx, vteps, ourChange)
}

// maxRepeats is how often one and the same bundle is applied in a row. After that
// somebody undoes it each time, or the switch spells a flow in another way than
// pipeline does: then it is done at the pace of retries, and said.
const maxRepeats = 5

func (r *reconciler) apply(ctx context.Context, c pipeline.Changes) error {
	if c.Empty() {
		return nil
	}
	lines := c.Lines()
	defer r.touch()
	if err := r.cfg.Bridge.ApplyBundle(ctx, lines); err != nil {
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

// touch notes that we changed the switch, just now: it will tell us so.
func (r *reconciler) touch() { r.touched = time.Now() }

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

func (r *reconciler) dump(ctx context.Context) ([]pipeline.Flow, error) {
	flows, err := r.cfg.Bridge.DumpFlows(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]pipeline.Flow, len(flows))
	for i, f := range flows {
		out[i] = pipelineFlow(f)
	}
	return out, nil
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

// gateway tells the gateway its addresses and routes, if they are new or must be
// looked at.
func (r *reconciler) gateway(ctx context.Context, in pipeline.Input, look bool) error {
	if r.cfg.Gateway == nil {
		return nil
	}
	addrs, routes := gatewayOf(in, r.cfg.CIDRs)
	if !look && slices.Equal(addrs, r.addrs) && slices.Equal(routes, r.routes) {
		return nil
	}
	if err := r.cfg.Gateway.Ensure(ctx, addrs, routes); err != nil {
		r.addrs, r.routes = nil, nil
		return fmt.Errorf("set up the gateway %s: %w", r.cfg.Gateway.PortName(), err)
	}
	r.addrs, r.routes = addrs, routes
	return nil
}

// gatewayOf is the gateway addresses, with their subnets' lengths, and what is
// routed to the gateway port: the subnets and the cluster's CIDRs. Both sorted.
func gatewayOf(in pipeline.Input, cidrs []netip.Prefix) (addrs, routes []netip.Prefix) {
	for _, s := range in.Subnets {
		if s.Gateway.IsValid() {
			addrs = append(addrs, netip.PrefixFrom(s.Gateway, s.Prefix.Bits()))
		}
		routes = append(routes, s.Prefix)
	}
	routes = append(routes, cidrs...)
	slices.SortFunc(addrs, comparePrefix)
	slices.SortFunc(routes, comparePrefix)
	return addrs, slices.Compact(routes)
}
