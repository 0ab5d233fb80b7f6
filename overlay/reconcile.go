package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

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

	vteps  map[uint32]netip.Addr
	addrs  []netip.Prefix
	routes []netip.Prefix
	logged string
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
	r.known = err == nil
	if err != nil {
		res.err = fmt.Errorf("reconcile the switch: %w", err)
		r.report(errors.Join(res.err, tunnelErr))
		return res, tunnelErr
	}
	rest := errors.Join(tunnelErr, portErr, r.gateway(ctx, res.input, madeGateway || why == everything))
	r.report(rest)
	return res, rest
}

// report logs what is wrong, once.
func (r *reconciler) report(err error) {
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
	if err := r.cfg.Bridge.ApplyBundle(ctx, pipeline.Diff(r.flows, want).Lines()); err != nil {
		return err
	}
	r.flows = want
	res.input, res.attached = in, map[string]bool{}
	for _, p := range in.Ports {
		res.attached[p.Endpoint] = true
	}
	return r.setVTEPs(ctx, vteps, ourChange)
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

func pipelineFlow(f ovs.Flow) pipeline.Flow {
	return pipeline.Flow{Table: f.Table, Priority: f.Priority, Cookie: f.Cookie, Match: f.Match, Actions: f.Actions}
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
