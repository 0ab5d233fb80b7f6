package overlay

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/worlds"
)

// enforcer makes one pipeline.Policy after the other, of one host. The zero value has made none. It is
// made anew only when something of what policies are about has changed; where there are none it is zero.
type enforcer struct {
	world    worlds.Follower
	compiler *policy.Compiler // nil: there are no policies
	epochs   *epochs
	told     *told // nil: nothing by name
	slots    *slots
	compiled policy.Compiled
	out      pipeline.Policy
	guarded  map[string]bool // endpoints
	rejects  bool            // a rule does
	ripe     time.Time       // when the first of the guards is young no more; zero: none is
}

// follow returns what the switch is to enforce. It reports whether that may be another policy than the last one. there
// says which endpoints the switch knows already.
func (p *enforcer) follow(snap *cluster.Snapshot, self cluster.NodeID, there func(endpoint string) bool) (out pipeline.Policy, changed bool) {
	w, changed := p.world.Follow(snap, self)
	answers, more := p.told.at(snap, self, time.Now())
	if changed = changed || !p.ripe.IsZero() && !time.Now().Before(p.ripe); !changed {
		if !more {
			return p.out, false
		}
		before := p.out.Openings
		p.open(answers)
		return p.out, !reflect.DeepEqual(before, p.out.Openings)
	}
	p.out, p.guarded, p.rejects, p.ripe = pipeline.Policy{}, nil, false, time.Time{}
	if p.epochs == nil {
		p.epochs = &epochs{}
	}
	var c policy.Compiled
	if len(w.Policies) > 0 {
		if p.compiler == nil {
			p.compiler = policy.NewCompiler()
		}
		p.compiler.Sync(w.World)
		c = p.compiler.Compile()
	} else {
		p.compiler = nil
	}
	p.compiled = c
	named := c.Named()
	p.told.name(named)
	p.epochs.drop(c.Guards)
	if len(c.Guards) == 0 {
		return p.out, true
	}
	p.guarded = make(map[string]bool, len(c.Guards))
	for _, g := range c.Guards {
		e, known := cluster.Get[cluster.Endpoint](snap, g.Endpoint)
		n, has := cluster.Get[cluster.Network](snap, e.Network)
		if !known || !has || len(g.Addrs) == 0 || !g.Ingress && !g.Egress {
			continue // without a network it has no port either
		}
		guard := pipeline.Guard{
			Endpoint: g.Endpoint, Addrs: g.Addrs, LinkLocal: linkLocals(e, n), VNID: n.VNID, Ingress: g.Ingress, Egress: g.Egress,
		}
		guard.Named = len(named[g.Endpoint]) > 0
		until := p.epochs.youth(g, there, time.Now())
		if guard.Young = !until.IsZero(); guard.Young && (p.ripe.IsZero() || until.Before(p.ripe)) {
			p.ripe = until
		}
		if g.Ingress {
			guard.IngressEpoch = p.epochs.of(g, pipeline.Ingress, g.IngressPrint, until)
		}
		if g.Egress {
			guard.EgressEpoch = p.epochs.of(g, pipeline.Egress, g.EgressPrint, until)
		}
		p.out.Guards = append(p.out.Guards, guard)
		p.guarded[g.Endpoint] = true
	}
	for _, cl := range c.Classes {
		p.out.Classes = append(p.out.Classes, pipeline.Class{ID: cl.ID, Addrs: cl.Addrs, Ranges: cl.Ranges})
	}
	for _, r := range c.Rules {
		p.out.Rules = append(p.out.Rules, pipelineRule(r))
		p.rejects = p.rejects || r.Action == policy.Reject
	}
	p.slots.give(p.out.Rules)
	p.open(answers)
	return p.out, true
}

// open makes openings of what endpoints were told.
func (p *enforcer) open(answers []policy.Answer) {
	p.out.Openings = nil
	named := map[string]bool{}
	for _, g := range p.out.Guards {
		named[g.Endpoint] = g.Named && g.Egress
	}
	for _, o := range p.compiled.Openings(answers) {
		p.out.Openings = append(p.out.Openings, pipeline.Opening{
			Rule: o.Rule, Priority: o.Priority, Action: actions[o.Action], From: o.From, To: o.To, Past: o.Past, Named: named[o.Endpoint], AnyPort: o.AnyPort, Ports: pipelinePorts(o.Ports),
		})
	}
}

var actions = map[policy.Action]pipeline.Action{
	policy.Accept: pipeline.Accept, policy.Drop: pipeline.Drop, policy.Reject: pipeline.Reject, policy.Pass: pipeline.Pass,
}

func pipelineRule(r policy.CompiledRule) pipeline.PolicyRule {
	out := pipeline.PolicyRule{
		ID: r.ID, Direction: pipeline.Ingress, Priority: r.Priority, Subjects: r.Subjects, AnyPeer: r.AnyPeer, Peers: r.Peers,
		Blocks: r.Blocks, AnyPort: r.AnyPort, Label: r.Label, Also: r.Also,
	}
	if r.Direction == policy.Egress {
		out.Direction = pipeline.Egress
	}
	out.Action, out.Ports = actions[r.Action], pipelinePorts(r.Ports)
	return out
}

func pipelinePorts(ports []policy.PortRange) (out []pipeline.PortRange) {
	for _, q := range ports {
		out = append(out, pipeline.PortRange{Proto: q.Proto, From: q.From, To: q.To})
	}
	return out
}

// Enforces reports whether the switch can enforce policies, or else what it lacks for that. It waits until that is known;
// if it is not in time, it is neither.
func (o *Overlay) Enforces(ctx context.Context) (can bool, lacks string) {
	if !closed(o.asked) {
		select {
		case <-o.asked:
		case <-ctx.Done():
			return false, ""
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lacking == "", o.lacking
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// tracks asks the switch, once, whether it can enforce policies.
func (o *Overlay) tracks(ctx context.Context) (can bool, err error) {
	if closed(o.asked) {
		can, _ = o.Enforces(ctx)
		return can, nil
	}
	var lacks []string
	if o.cfg.CannotTrack != nil {
		lacks, err = o.cfg.CannotTrack(ctx)
		switch {
		case err != nil && strings.Contains(err.Error(), "not a valid command"):
			lacks = []string{"a newer Open vSwitch"}
		case err != nil: // to go on as if it could not would take rules away that are in force
			return false, err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lacking = strings.Join(lacks, ", ")
	close(o.asked)
	if o.lacking != "" {
		o.log.Info("the switch cannot enforce policies", "lacks", o.lacking)
	}
	return o.lacking == "", nil
}

func anyPolicy(snap *cluster.Snapshot) bool {
	for n := range cluster.All[cluster.Network](snap) {
		if n.Isolated() || n.Labelled {
			return true
		}
	}
	for range cluster.PoliciesOf(snap).InForce() {
		return true
	}
	for e := range cluster.All[cluster.Endpoint](snap) {
		if e.Awaited {
			return true
		}
	}
	return false
}

// Epochs is where the epochs of rules are kept over restarts of the agent.
type Epochs interface {
	Load() ([]Epoch, error)
	// Save makes these durable beside those of other addresses and directions, and removes those that are gone.
	Save(list, gone []Epoch) error
}

// Epoch is the number under which the switch has let connections of an address through, in one direction, by
// rules with this print. The next rules get the next number: one that had let something through that these do
// not comes again only after all the others.
type Epoch struct {
	Addr      netip.Addr
	Direction pipeline.Direction
	Print     uint64
	Number    uint16
	Past      bool // there are no rules now
	// Young: until when who called whom is not known, since these are the first rules of who had talked before.
	Young time.Time
}

// youth is how long rules are young: conntrack forgets a datagram's connection sooner, on either datapath, and so does the NAT by
// which somebody outside might go on with one.
const youth = 3 * time.Minute

// maxPast is how many numbers of addresses are kept that have no rules. Behind that go the lowest ones.
const maxPast = 1024

// highFloor is from which number on the floor is the lowest again: millions of containers later.
const highFloor = 0xff00

// epochs numbers the rules of guards. They are kept by address, which is what the switch's connections have:
// an endpoint that gets the address of a former one goes on where that one ended.
type epochs struct {
	store   Epochs // nil: none
	known   map[epochKey]Epoch
	unsaved map[epochKey]Epoch // part of known, and the floor
	gone    map[epochKey]Epoch // what is on the disk, and not known any more
	failed  error              // why they are unsaved
	// floor is no lower than any number that is not known any more: of an address of which nothing is
	// known the first number is higher. On the disk it is that of no address.
	floor uint16
}

type epochKey struct {
	addr netip.Addr
	dir  pipeline.Direction
}

// load reads what an agent before this one left.
func (e *epochs) load() error {
	list, err := e.store.Load()
	for _, one := range list {
		if one.Addr.IsValid() {
			e.note(one)
		} else {
			e.floor = one.Number
		}
	}
	clear(e.unsaved)
	return err
}

func (e *epochs) note(one Epoch) {
	if e.known == nil {
		e.known, e.unsaved = map[epochKey]Epoch{}, map[epochKey]Epoch{}
	}
	at := epochKey{one.Addr, one.Direction}
	e.known[at], e.unsaved[at] = one, one
	delete(e.gone, at)
}

// youth is until when the rules of a guard are young, or zero; there is whether the endpoint was there before them.
func (e *epochs) youth(g policy.Guard, there func(endpoint string) bool, now time.Time) (until time.Time) {
	first := true
	for _, a := range g.Addrs {
		for _, d := range []pipeline.Direction{pipeline.Ingress, pipeline.Egress} {
			one, known := e.known[epochKey{a, d}]
			if known && !one.Past {
				if first = false; one.Young.After(until) {
					until = one.Young
				}
			}
		}
	}
	end := now.Add(youth)
	switch {
	case first && there(g.Endpoint):
		return end
	case !until.After(now):
		return time.Time{}
	case until.After(end): // the clock was set back
		return end
	}
	return until
}

// of is the epoch of a guard in a direction: the same as long as the rules are.
func (e *epochs) of(g policy.Guard, d pipeline.Direction, print uint64, young time.Time) uint16 {
	number, same := uint16(0), true
	for i, a := range g.Addrs {
		was, known := e.known[epochKey{a, d}]
		same = same && known && !was.Past && was.Print == print && (i == 0 || was.Number == number)
		number = max(number, was.Number)
	}
	if same {
		return number
	}
	number = max(number, e.floor)
	// Later than that of each of its addresses. Behind the last number comes the first, unless one of them has it.
	for taken := true; taken; {
		if number++; number == 0 {
			number = 1
		}
		taken = slices.ContainsFunc(g.Addrs, func(a netip.Addr) bool { return e.known[epochKey{a, d}].Number == number })
	}
	for _, a := range g.Addrs {
		e.note(Epoch{Addr: a, Direction: d, Print: print, Number: number, Young: young})
	}
	return number
}

// drop notes that what is not guarded any more has no rules: it is judged anew when it has some again.
func (e *epochs) drop(guards []policy.Guard) {
	if len(e.known) == 0 {
		return
	}
	guarded := map[epochKey]bool{}
	for _, g := range guards {
		for _, a := range g.Addrs {
			if g.Ingress {
				guarded[epochKey{a, pipeline.Ingress}] = true
			}
			if g.Egress {
				guarded[epochKey{a, pipeline.Egress}] = true
			}
		}
	}
	for at, one := range e.known {
		if !guarded[at] && !one.Past {
			one.Past = true
			e.note(one)
		}
	}
	e.forget()
}

// forget lets half of the numbers go that have no rules, if there are too many: containers come and go, and each may have
// had an address of its own.
func (e *epochs) forget() {
	var past []epochKey
	for at, one := range e.known {
		if one.Past {
			past = append(past, at)
		}
	}
	if len(past) <= maxPast {
		return
	}
	slices.SortFunc(past, func(a, b epochKey) int { return cmp.Compare(e.known[a].Number, e.known[b].Number) })
	if e.gone == nil {
		e.gone = map[epochKey]Epoch{}
	}
	for _, at := range past[:len(past)-maxPast/2] {
		e.floor = max(e.floor, e.known[at].Number)
		e.gone[at] = e.known[at]
		delete(e.known, at)
		delete(e.unsaved, at)
	}
	if e.floor >= highFloor {
		e.floor = 0
	}
	e.unsaved[epochKey{}] = Epoch{Number: e.floor}
}

// save makes the epochs durable: before the switch has them, or an agent that is started anew may give the
// same number to other rules. Where that fails, as on a full disk, they are in force all the same, and are tried again.
func (e *epochs) save() error {
	if e == nil || e.store == nil || len(e.unsaved) == 0 {
		return nil
	}
	list := slices.SortedFunc(maps.Values(e.unsaved), func(a, b Epoch) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Direction, b.Direction))
	})
	if e.failed = e.store.Save(list, slices.Collect(maps.Values(e.gone))); e.failed == nil {
		clear(e.unsaved)
		clear(e.gone)
	}
	return e.failed
}
