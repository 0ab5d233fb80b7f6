package fastpath

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// The programs that note what the switch lets through, where it sends it.
const (
	noteLocalProgram  = bpfProgGvNoteLocal
	noteTunnelProgram = bpfProgGvNoteTunnel
)

// known is what the maps of settled connections hold, but for these. An entry counts while its generation is that of the map.
type known struct {
	generation uint32
	rules      map[uint16]uint32 // slot -> rule
}

// ruleCounter is struct rule_counter of bpf/fastpath.c.
type ruleCounter struct {
	Packets, Bytes    uint64
	Began, BeganBytes uint64
	Rule, _           uint32
}

// readKnown is read of what is known.
func (t *tables) readKnown() error {
	now := known{rules: map[uint16]uint32{}}
	if err := t.generation.Lookup(uint32(0), &now.generation); err != nil {
		return fmt.Errorf("read the fast path's generation of rules: %w", err)
	}
	now.generation &^= resting // of an agent that was killed then
	if now.generation == 0 {   // no slot was ever given
		t.known = now
		return nil
	}
	for slot := uint32(1); slot <= pipeline.MaxSlot; slot++ {
		var cpus []ruleCounter
		if err := t.rules.Lookup(slot, &cpus); err != nil {
			return fmt.Errorf("read counter %d of a rule of the fast path: %w", slot, err)
		}
		if cpus[0].Rule != 0 {
			now.rules[uint16(slot)] = cpus[0].Rule
		}
	}
	t.known = now
	return nil
}

// void lets nothing count any more that was noted before the flows are those of in, then takes slots from rules that are gone, and
// gives some to those of in: what still counts by one that another rule had is not carried any more.
func (t *tables) void(in pipeline.Input) error {
	if t.known.rules == nil {
		if err := t.readKnown(); err != nil {
			return err
		}
	}
	// Numbers begin again: what was granted by them long ago must not count. Of none it is not known whether an agent was killed here.
	if in.Generation != 0 && (t.known.generation > uint32(in.Generation) || t.known.generation == 0) {
		if err := t.put(t.generation, currentPlace, uint32(0)); err != nil {
			return fmt.Errorf("end all generations of rules in the fast path: %w", err)
		}
		t.known.generation = 0
		if err := t.ungrant(); err != nil {
			return err
		}
	}
	if in.Generation != 0 && t.known.generation != uint32(in.Generation) {
		if err := t.rest(); err != nil {
			return err
		}
		if err := t.put(t.generation, currentPlace, uint32(in.Generation)); err != nil {
			return fmt.Errorf("begin a generation of rules in the fast path: %w", err)
		}
		t.known.generation = uint32(in.Generation)
	}
	has := map[uint16]uint32{}
	for _, r := range in.Policy.Rules {
		has[r.Slot] = r.ID
	}
	for _, slot := range slices.Sorted(maps.Keys(t.known.rules)) {
		if rule := t.known.rules[slot]; has[slot] != rule || t.begun[rule] {
			if err := t.countFor(slot, 0); err != nil {
				return fmt.Errorf("take counter %d of a rule of the fast path: %w", slot, err)
			}
		}
	}
	t.begun = nil
	if in.Generation == 0 {
		return nil
	}
	for _, r := range in.Policy.Rules {
		if r.Slot == 0 || t.known.rules[r.Slot] == r.ID {
			continue
		}
		if err := t.countFor(r.Slot, r.ID); err != nil {
			return fmt.Errorf("begin to count for rule %q in the fast path: %w", r.Label, err)
		}
	}
	return nil
}

// resting is, with the generation, that nothing begins without the switch; restFor is for how long, which is as long as it takes to answer
// a first packet in a local network.
const (
	resting = uint32(1) << 16
	restFor = 20 * time.Millisecond
)

// rest lets what has just begun without the switch be answered, before the generation is over by which it began: the switch knows nothing
// of it, and has no way for an answer to a first packet that it has not seen.
func (t *tables) rest() error {
	began, err := t.began()
	if err != nil || t.known.generation == 0 || began == t.rested {
		return err
	}
	if err := t.put(t.generation, currentPlace, t.known.generation|resting); err != nil {
		return fmt.Errorf("have connections begin by the switch: %w", err)
	}
	time.Sleep(restFor)
	t.rested, err = t.began()
	return err
}

// began counts the connections that have begun without the switch.
func (t *tables) began() (uint32, error) {
	var all seats
	if err := t.seats.Lookup(uint32(ownShares), &all); err != nil {
		return 0, fmt.Errorf("read how many connections the fast path began: %w", err)
	}
	return all.Began, nil
}

// countFor has a slot count for a rule, from nothing; 0: for none.
func (t *tables) countFor(slot uint16, rule uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	fresh := make([]ruleCounter, cpus)
	for i := range fresh {
		fresh[i].Rule = rule
	}
	if err := t.put(t.rules, uint32(slot), fresh); err != nil {
		return err
	}
	if t.known.rules[slot] = rule; rule == 0 {
		delete(t.known.rules, slot)
	}
	return nil
}

// tallySettled adds what was carried of connections that rules let through.
func (t *tables) tallySettled(out *pipeline.Tally) error {
	out.Rules, out.Begun = map[uint32]pipeline.Count{}, map[uint32]pipeline.Count{}
	for slot, rule := range t.known.rules {
		var cpus []ruleCounter
		if err := t.rules.Lookup(uint32(slot), &cpus); err != nil {
			return fmt.Errorf("read counter %d of a rule of the fast path: %w", slot, err)
		}
		sum, begun := out.Rules[rule], out.Begun[rule]
		for _, c := range cpus {
			sum.Packets, sum.Bytes = sum.Packets+c.Packets, sum.Bytes+c.Bytes
			begun.Packets, begun.Bytes = begun.Packets+c.Began, begun.Bytes+c.BeganBytes
		}
		out.Rules[rule], out.Begun[rule] = sum, begun
	}
	for i := range out.Settled {
		n, err := t.counter(uint32(slotSettled + i))
		if err != nil {
			return err
		}
		others, err := t.counter(uint32(slotOthers + i))
		if err != nil {
			return err
		}
		out.Settled[i] = pipeline.Settled{Egress: n.sent(), Containers: n.received(), Gateway: others.sent(), Ingress: others.received()}
	}
	return nil
}

// Slots are those of rules that the programs found count by, which a former agent left.
func (p *Path) Slots() map[uint32]uint16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[uint32]uint16{}
	if p.objs != nil && (p.tables.known.rules != nil || p.tables.readKnown() == nil) {
		for slot, rule := range p.tables.known.rules {
			out[rule] = slot
		}
	}
	return out
}

// Begin has counters of rules begin with the next Narrow, as the switch's do.
func (p *Path) Begin(rules map[uint32]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tables.begun = rules
}

// Settle makes ready to note what the switch lets through by rules, and returns the generation of those in force; 0: nothing is to
// be noted, and of endpoints with rules nothing is carried. Bare are the endpoints at which nothing notes, and so nothing would take
// marks off, and pipeline.AtGateway if it is so at the gateway.
func (p *Path) Settle(in pipeline.Input) (generation uint16, bare map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on || p.quiet || p.objs == nil || p.cfg.Inner == nil {
		return 0, nil
	}
	bare, err := p.listen(in)
	if err != nil {
		if p.deaf == nil || p.deaf.Error() != err.Error() {
			p.log.Warn("the switch carries all of containers with policies", "error", err)
		}
		p.deaf = err
		return 0, nil
	}
	p.deaf = nil
	return uint16(max(1, p.tables.known.generation)), bare // 0: none was ever begun
}

// Unsettle has Settle say that nothing is to be noted, until Start: what leaves the switch bears no marks any more when the
// programs that take them off go.
func (p *Path) Unsettle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quiet = true
}

// listen puts the programs that note where they belong, and returns those, as Settle does, that have no such place.
func (p *Path) listen(in pipeline.Input) (bare map[string]bool, err error) {
	if p.tables.known.rules == nil {
		if err := p.tables.readKnown(); err != nil {
			return nil, err
		}
	}
	present, err := interfaces(p.cfg.InnerPrefix)
	if err != nil {
		return nil, err
	}
	bare = map[string]bool{}
	for _, port := range in.Ports {
		name := p.cfg.Inner(port.Endpoint)
		index := present[name]
		if index == 0 { // it has been there since an older version of the agent, or is just going
			bare[port.Endpoint] = true
			continue
		}
		if p.attached[name] == index {
			continue
		}
		switch err := link.AttachTC(name, link.Ingress, link.First, p.objs.GvNoteLocal, noteLocalProgram); {
		case errors.Is(err, link.ErrNotFound):
			bare[port.Endpoint] = true
			continue
		case err != nil:
			return nil, err
		}
		p.attached[name] = index
	}
	if err := listenAtGateway(p, in, bare); err != nil {
		return nil, err
	}
	if in.TunnelPort == 0 {
		return bare, nil
	}
	l, err := link.Get(p.cfg.Port)
	if err != nil {
		return nil, err
	}
	if index := uint32(l.Index); p.attached[l.Name] != index {
		if err := link.AttachTC(l.Name, link.Egress, link.First, p.objs.GvNoteTunnel, noteTunnelProgram); err != nil {
			return nil, err
		}
		p.attached[l.Name] = index
	}
	return bare, nil
}

// listenAtGateway is listen for the gateway.
func listenAtGateway(p *Path, in pipeline.Input, bare map[string]bool) error {
	if in.GatewayPort == 0 {
		return nil
	}
	bare[pipeline.AtGateway] = true
	if p.cfg.Gateway == "" {
		return nil
	}
	l, err := link.Get(p.cfg.Gateway)
	if err == nil && p.noting != uint32(l.Index) {
		err = link.AttachTC(l.Name, link.Ingress, link.First, p.objs.GvNoteLocal, noteLocalProgram)
	}
	if errors.Is(err, link.ErrNotFound) {
		return nil // Open vSwitch is making it anew
	}
	if err != nil {
		return err
	}
	p.noting = uint32(l.Index)
	delete(bare, pipeline.AtGateway)
	return nil
}

// inFlight is for how long a packet that the flows of before have marked may be on its way.
const inFlight = 2 * time.Second

// lull is a time without rules. Then the programs that note are not needed, and go: by a later pass than that which ended the rules,
// so that a mark on its way is still taken off.
type lull struct {
	away  bool      // they are, for all that is known of a former agent's
	since time.Time // zero: there are rules
}

// over reports whether they are to go now.
func (l *lull) over(ruled bool, now time.Time) bool {
	switch {
	case ruled:
		*l = lull{}
	case l.away:
	case l.since.IsZero():
		l.since = now
	case now.Sub(l.since) >= inFlight:
		l.away = true
		return true
	}
	return false
}

// unlisten takes the programs that note away.
func (c Config) unlisten() error {
	if c.Inner == nil {
		return nil
	}
	present, err := interfaces(c.InnerPrefix)
	errs := []error{err, link.DetachTC(c.Port, link.Egress, noteTunnelProgram)}
	for name := range maps.Keys(present) {
		errs = append(errs, link.DetachTC(name, link.Ingress, noteLocalProgram))
	}
	if c.Gateway != "" {
		errs = append(errs, link.DetachTC(c.Gateway, link.Ingress, noteLocalProgram))
	}
	return errors.Join(errs...)
}
