package overlay

import (
	"context"
	"maps"
	"slices"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// settle notes in in the generation of the rules which the switch has, if the fast path is to carry connections that they let
// through; else 0.
func (r *reconciler) settle(ctx context.Context, in *pipeline.Input, why reason) {
	var bare map[string]bool
	in.Generation, bare = r.generation(ctx, *in, why)
	if path, can := r.cfg.Fast.(owner); can && in.Generation != 0 {
		var err error
		if in.Secret, err = path.Secret(); err != nil {
			r.log.Warn("connections that the fast path carries may end when policies change", "error", err)
		}
	}
	in.GatewayBare = bare[pipeline.AtGateway]
	if len(bare) == 0 {
		return
	}
	in.Ports = slices.Clone(in.Ports) // which are the plan's
	for i := range in.Ports {
		in.Ports[i].Bare = bare[in.Ports[i].Endpoint]
	}
}

func (r *reconciler) generation(ctx context.Context, in pipeline.Input, why reason) (generation uint16, bare map[string]bool) {
	path, can := r.cfg.Fast.(settler)
	if !can || r.cfg.Liberal == nil || in.Tunnel != pipeline.HeaderBits || len(in.Policy.Guards) == 0 {
		return 0, nil
	}
	if why >= theirs || !r.liberal {
		// A switch that has begun anew does not know it any more.
		err := r.cfg.Liberal(ctx)
		if r.liberal = err == nil; !r.liberal {
			r.log.Warn("the switch carries all of containers with policies", "error", err)
			return 0, nil
		}
	}
	return path.Settle(in)
}

// nextGeneration begins another generation with changes, and returns the flows and changes with it. The fast path hears of it in
// Narrow, before the flows change: from then on nothing counts that was noted before, and what is noted until the flows change. So it
// is none that these write, which may be another than the fast path's: maps begin empty beside flows that are there.
func (r *reconciler) nextGeneration(in *pipeline.Input, have []pipeline.Flow, changes pipeline.Changes) ([]pipeline.Flow, pipeline.Changes, error) {
	in.Generation = pipeline.NextGeneration(in.Generation, have)
	want, more, err := r.compiler.Compile(*in)
	return want, changes.Then(more), err
}

// slots are where the fast path counts what rules let through: each has its own as long as it is there.
type slots struct {
	of   map[uint32]uint16 // by rule
	free []uint16          // that were another's: the longest unused first
	next uint16
}

// slots begins with those of a former agent.
func (r *reconciler) slots() *slots {
	s := &slots{of: map[uint32]uint16{}, next: 1}
	path, can := r.cfg.Fast.(settler)
	if !can {
		return s
	}
	maps.Copy(s.of, path.Slots())
	taken := map[uint16]bool{}
	for _, slot := range s.of {
		taken[slot] = true
		s.next = max(s.next, slot+1)
	}
	for slot := uint16(1); slot < s.next; slot++ {
		if !taken[slot] {
			s.free = append(s.free, slot)
		}
	}
	return s
}

// give gives slots to rules that let something through. Where there are more than slots, the last get none.
func (s *slots) give(rules []pipeline.PolicyRule) {
	if s == nil {
		return
	}
	there := map[uint32]bool{}
	for _, r := range rules {
		there[r.ID] = r.Action == pipeline.Accept
	}
	for _, id := range slices.Sorted(maps.Keys(s.of)) {
		if !there[id] {
			s.free = append(s.free, s.of[id])
			delete(s.of, id)
		}
	}
	for i := range rules {
		r := &rules[i]
		if r.Action != pipeline.Accept {
			continue
		}
		slot, has := s.of[r.ID]
		switch {
		case has:
		case s.next <= pipeline.MaxSlot: // one that nothing can be counted by any more
			slot, s.next = s.next, s.next+1
		case len(s.free) > 0:
			slot, s.free = s.free[0], s.free[1:]
		default:
			continue
		}
		s.of[r.ID], r.Slot = slot, slot
	}
}
