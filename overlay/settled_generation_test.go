package overlay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// settlingPath is a fast path that keeps a generation as the maps do, and looks at the switch's in each call.
type settlingPath struct {
	h     *host
	mu    sync.Mutex
	now   uint16 // 0: none was begun
	odd   []string
	seen  int               // generations
	fail  bool              // Narrow fails, when it has noted another generation
	kept  map[uint32]uint16 // rule -> slot
	begun map[uint32]bool   // rules
	bare  map[string]bool
}

func (p *settlingPath) Begin(rules map[uint32]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.begun, rules)
}

// begins says that the counters of these rules began, and no others.
func (p *settlingPath) begins(t *testing.T, what string, rules map[uint32]uint16) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if want, got := slices.Sorted(maps.Keys(rules)), slices.Sorted(maps.Keys(p.begun)); !slices.Equal(got, want) {
		t.Errorf("%s: the counters of rules %d begin, want %d", what, got, want)
	}
	clear(p.begun)
}

func (p *settlingPath) Settle(pipeline.Input) (uint16, map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(1, p.now), p.bare
}
func (p *settlingPath) Slots() map[uint32]uint16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.kept)
}
func (p *settlingPath) Tally() (pipeline.Tally, error) {
	return pipeline.Tally{Rules: map[uint32]pipeline.Count{}}, nil
}

var written = regexp.MustCompile(`load:(0x[0-9a-f]+)->NXM_NX_REG14\[0\.\.15\]`)

// policy is what the switch settles connections by: the flows, but for the generation in them, and that.
func (p *settlingPath) policy(ctx context.Context) (flows []string, generation uint16) {
	dump, err := p.h.bridge.DumpFlows(ctx)
	if err != nil && ctx.Err() == nil {
		p.h.t.Error(err)
	}
	for _, f := range dump {
		if f.Table < uint8(pipeline.Conntrack) || f.Table >= uint8(pipeline.Output) || f.Table >= uint8(pipeline.Service) && f.Table < uint8(pipeline.IngressPolicy) {
			continue
		}
		if m := written.FindStringSubmatch(f.Actions); m != nil {
			n, _ := strconv.ParseUint(m[1], 0, 16)
			generation = uint16(n)
		}
		flows = append(flows, pipeline.Flow{Table: f.Table, Priority: f.Priority, Match: f.Match, Actions: written.ReplaceAllString(f.Actions, "")}.String())
	}
	slices.Sort(flows)
	return flows, generation
}

func (p *settlingPath) Narrow(ctx context.Context, in pipeline.Input) error {
	want, err := pipeline.Compile(in)
	if err != nil {
		return err
	}
	var next []string
	for _, f := range want {
		if f.Table >= uint8(pipeline.Conntrack) && f.Table < uint8(pipeline.Output) && (f.Table < uint8(pipeline.Service) || f.Table >= uint8(pipeline.IngressPolicy)) {
			f.Cookie, f.Actions = 0, written.ReplaceAllString(f.Actions, "")
			next = append(next, f.String())
		}
	}
	slices.Sort(next)
	have, generation := p.policy(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if generation != 0 && generation == in.Generation && !slices.Equal(have, next) {
		p.odd = append(p.odd, fmt.Sprintf("rules change, and their generation is %d still", generation))
	}
	began := in.Generation != 0 && in.Generation != p.now
	if began {
		p.now = in.Generation
		p.seen++
	}
	if in.Generation != 0 {
		p.kept = map[uint32]uint16{}
		for _, r := range in.Policy.Rules {
			if r.Slot != 0 {
				p.kept[r.ID] = r.Slot
			}
		}
	}
	if p.fail && began {
		p.fail = false
		return errors.New("killed here")
	}
	return nil
}

func (p *settlingPath) Widen(ctx context.Context, in pipeline.Input) error {
	_, generation := p.policy(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() == nil && (generation != in.Generation || generation != 0 && generation != p.now) {
		p.odd = append(p.odd, fmt.Sprintf("the switch writes generation %d, the input has %d, the fast path %d", generation, in.Generation, p.now))
	}
	return nil
}

func (p *settlingPath) is(t *testing.T, what string, want int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.odd) > 0 {
		t.Errorf("%s: %q", what, p.odd)
	}
	if p.seen < want || want == 0 && p.seen > 0 {
		t.Errorf("%s: %d generations, want %d", what, p.seen, want)
	}
	p.odd, p.seen = nil, 0
}

// TestGenerations: whenever rules change in the switch it writes another generation from then on, which the fast path has heard of
// before; nothing else begins one, a restarted agent neither, and what fails in between does no harm.
func TestGenerations(t *testing.T) {
	h := newHost(t)
	h.stop()
	path := &settlingPath{h: h, begun: map[uint32]bool{}}
	h.fast, h.epochs, h.liberal = path, &memory{}, func(context.Context) error { return nil }
	h.start()
	pass := func() {
		t.Helper()
		ovstest.Eventually(t, 20*time.Second, func() error { return h.Pass(t.Context()) })
	}
	h.by(other, labelled(endpoint(other, 'b', "blue", "10.128.2.7"), "app", "web"))
	e := h.container('a', "blue", "10.128.0.2", "10.128.0.1")
	pass()
	path.is(t, "without policies", 0)
	h.put(labelled(e, "app", "db"))
	h.by(third, policyOf("db", dbFromWeb))
	pass()
	path.is(t, "the first policy", 1)
	slots := path.Slots()
	if len(slots) == 0 {
		t.Error("no rule has a slot")
	}
	path.begins(t, "the first policy", slots)
	h.container('c', "red", "10.129.0.2", "10.129.0.1")
	pass()
	path.is(t, "a container that no policy is about", 0)
	h.by(other, labelled(endpoint(other, 'd', "blue", "10.128.2.8"), "app", "web"))
	pass()
	path.is(t, "another peer", 1)
	h.stop()
	h.start()
	pass()
	path.is(t, "another agent", 0)
	if got := path.Slots(); !maps.Equal(got, slots) {
		t.Errorf("slots %v were %v", got, slots)
	}
	path.begins(t, "since then", nil)
	unmarked := func(want int) {
		t.Helper()
		n := 0
		for _, f := range h.flows() {
			if strings.Contains(f, "reg14=0x10000/0x10000") && strings.HasPrefix(f, fmt.Sprint(uint8(pipeline.Output), 65)) {
				n++
			}
		}
		if n != want {
			t.Errorf("%d endpoints are sent no marks, want %d", n, want)
		}
	}
	unmarked(0)
	for _, bare := range []map[string]bool{{e.ID: true}, nil} {
		path.mu.Lock()
		path.bare = bare
		path.mu.Unlock()
		pass()
		path.is(t, "an endpoint at which nothing notes", 0)
		unmarked(len(bare))
	}
	h.stop()
	if err := h.bridge.ApplyBundle(t.Context(), []string{"delete"}); err != nil {
		t.Fatal(err)
	}
	h.start()
	pass()
	path.is(t, "a switch without flows", 1)
	path.begins(t, "a switch without flows", slots)
	// An agent whose maps begin empty, or whose maps did not hear of all generations, while the rules have changed.
	for _, behind := range []uint16{0, 1, 2} {
		h.stop()
		_, generation := path.policy(t.Context())
		path.mu.Lock()
		if behind == 0 {
			path.now = 0
		} else {
			path.now = max(generation, behind+1) - behind
		}
		path.mu.Unlock()
		h.by(other, labelled(endpoint(other, 'g'+byte(behind), "blue", fmt.Sprint("10.128.2.", 20+behind)), "app", "web"))
		h.start()
		pass()
		path.is(t, fmt.Sprintf("maps that are behind (%d)", behind), 1)
	}
	path.mu.Lock()
	path.fail = true
	path.mu.Unlock()
	h.by(other, labelled(endpoint(other, 'f', "blue", "10.128.2.9"), "app", "web"))
	pass()
	path.is(t, "a failure before the flows changed", 2)
	h.end(third, policyOf("db", dbFromWeb).Key())
	pass()
	if _, generation := path.policy(t.Context()); generation != 0 {
		t.Errorf("without policies the switch writes generation %d", generation)
	}
}

// TestSlots: a rule keeps its slot, and none has another's.
func TestSlots(t *testing.T) {
	s := &slots{of: map[uint32]uint16{}, next: 1}
	rules := func(from, to uint32) (list []pipeline.PolicyRule) {
		for id := from; id < to; id++ {
			list = append(list, pipeline.PolicyRule{ID: id, Action: pipeline.Accept})
		}
		return append(list, pipeline.PolicyRule{ID: 1 << 20, Action: pipeline.Drop})
	}
	first := rules(1, 4000)
	s.give(first)
	second := rules(2000, 9000)
	s.give(second)
	had, taken, none := map[uint32]uint16{}, map[uint16]bool{}, 0
	for _, r := range first {
		had[r.ID] = r.Slot
	}
	for _, r := range second {
		switch {
		case r.Action != pipeline.Accept && r.Slot != 0:
			t.Errorf("a rule that drops has slot %d", r.Slot)
		case r.Slot == 0:
			none++
		case r.Slot > pipeline.MaxSlot || taken[r.Slot] || had[r.ID] != 0 && had[r.ID] != r.Slot:
			t.Errorf("rule %d had slot %d and has %d", r.ID, had[r.ID], r.Slot)
		}
		taken[r.Slot] = true
	}
	if none != 1+7000-pipeline.MaxSlot {
		t.Errorf("%d rules have no slot", none)
	}
}
