package overlay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// FlowInfo is a flow of the switch, for people.
type FlowInfo struct {
	pipeline.Flow
	Stage          string
	Object         string // what the flow is there for; empty: the stage itself
	Packets, Bytes uint64
}

// Foreign counts the tunnel packets that were dropped since no host of the cluster sent them.
func (o *Overlay) Foreign(ctx context.Context) (packets uint64, err error) {
	if packets, err = o.cfg.Tunnel.Foreign(ctx); err != nil {
		return 0, err
	}
	flows, err := o.cfg.Bridge.DumpFlows(ctx, pipeline.Foreign())
	for _, f := range flows {
		packets += f.Packets
	}
	return packets, err
}

// Flows reads the switch's flows, in pipeline order, with their counters: of packets in
// the switch, of those that the fast path carried past it, and of those that the tunnel did not let in.
func (o *Overlay) Flows(ctx context.Context) ([]FlowInfo, error) {
	dump, err := o.cfg.Bridge.DumpFlows(ctx)
	if err != nil {
		return nil, err
	}
	var passed pipeline.Tally
	if o.cfg.Fast != nil {
		if passed, err = o.cfg.Fast.Tally(); err != nil {
			return nil, err
		}
	}
	foreign, err := o.cfg.Tunnel.Foreign(ctx)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	in := o.last.input
	o.mu.Unlock()
	flows := make([]pipeline.Flow, len(dump))
	for i, f := range dump {
		flows[i] = pipelineFlow(f)
	}
	names, credit := pipeline.NewNames(in), pipeline.Credit(in, flows, passed)
	out := make([]FlowInfo, len(flows))
	for i, f := range flows {
		out[i] = FlowInfo{
			Flow: f, Stage: pipeline.Stage(f.Table).String(), Object: names.Describe(f.Cookie),
			Packets: dump[i].Packets + credit[i].Packets, Bytes: dump[i].Bytes + credit[i].Bytes,
		}
		if pipeline.IsForeign(f.Cookie) {
			out[i].Packets += foreign
		}
	}
	return out, nil
}

// Teardown removes the bridge with its ports and flows. Run must have returned.
func (o *Overlay) Teardown(ctx context.Context) error {
	if err := o.cfg.Bridge.Delete(ctx); err != nil {
		return fmt.Errorf("tear the overlay down: %w", err)
	}
	return nil
}

// isDetached copies what Detach was called for, without endpoints whose record is gone.
func (o *Overlay) isDetached(snap *cluster.Snapshot) map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make(map[string]bool, len(o.detached))
	for id := range o.detached {
		if _, there := cluster.Get[cluster.Endpoint](snap, id); !there {
			delete(o.detached, id)
			continue
		}
		out[id] = true
	}
	return out
}

// Problems says what keeps the switch from being as the cluster's state wants it:
// the errors of the last pass, and the endpoints for which there are no flows, but for those of
// which more is known.
func (o *Overlay) Problems(known ...string) (list []error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last.err != nil {
		list = append(list, o.last.err)
	}
	if o.last.rest != nil {
		list = append(list, o.last.rest)
	}
	for _, what := range o.missing {
		list = append(list, fmt.Errorf("%s; it is being put back", what))
	}
	if err := o.repairs.problem(time.Now()); err != nil {
		list = append(list, err)
	}
	for _, id := range slices.Sorted(maps.Keys(o.last.problems)) {
		if !slices.Contains(known, id) {
			list = append(list, fmt.Errorf("endpoint %.12s: %w", id, o.last.problems[id]))
		}
	}
	return list
}
