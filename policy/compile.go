package policy

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

// compilation is one pass over what a Compiler holds.
type compilation struct {
	of    *Compiler
	rules []*rule
	made  []*rule // by make, list after list
	used  int     // of the compiler's room for rules
}

// scratch is what a compilation needs no longer when it is done, and the next one can have.
type scratch struct {
	rules, made []*rule
	same        map[string]span // of NetworkPolicies, by their texts
	named       []*class
	order       []ranked
	numbers     numbers
}

// span are rules that a compilation has made.
type span struct{ first, end uint32 }

// ranked is a rule on its way to its place among all.
type ranked struct {
	place uint64 // what comes before its text
	*rule
}

// numbers are those that something has. The zero value is none.
type numbers struct {
	table []uint32 // 0: nothing there; a number is at its place or behind, where others are
}

// reset takes all away, and makes room for so many.
func (u *numbers) reset(room int) {
	size := 1 << bits.Len(uint(2*room+1))
	if len(u.table) < size {
		u.table = make([]uint32, size)
	} else {
		clear(u.table)
	}
}

// add says whether the number is new.
func (u *numbers) add(number uint32) bool {
	mask := uint32(len(u.table) - 1)
	for at := number & mask; ; at = (at + 1) & mask {
		switch u.table[at] {
		case number:
			return false
		case 0:
			u.table[at] = number
			return true
		}
	}
}

// roomStep is how many rules get memory at once. It stays with the compiler: a change makes no garbage of them.
const roomStep = 256

// rule has a rule in the compiler's room, until it compiles again.
func (c *compilation) rule(r rule) *rule {
	if c.used == len(c.of.room)*roomStep {
		c.of.room = append(c.of.room, new([roomStep]rule))
	}
	at := &c.of.room[c.used/roomStep][c.used%roomStep]
	c.used++
	*at = r
	return at
}

// rule is a rule of a policy, or several equal ones, on its way to the switch.
type rule struct {
	CompiledRule
	text     string // what makes it this rule
	hash     uint64 // of the text
	subjects []*class
	peers    []*class
}

// printed is what of a rule the prints of its subjects are made of.
type printed struct {
	Direction
	hash            uint64 // of all but its peers
	subjects, peers []*class
}

// called makes it another rule than the one of the same text.
func (r *rule) called(also string) {
	r.text += also
	r.hash = hash(r.text)
}

// Compile makes of the world as it is now what this host's switch enforces. It is the same whatever
// the world was before. What comes of it is not to be changed: it may come again.
func (of *Compiler) Compile() Compiled {
	of.settle()
	moved := of.moved
	of.moved = nil
	c := compilation{of: of, rules: slices.Grow(of.scratch.rules[:0], len(of.chosen.list)), made: slices.Grow(of.scratch.made[:0], len(of.chosen.list))}
	if of.last != nil {
		if len(moved) > 0 {
			c.refill(moved)
		}
		return *of.last
	}
	for _, cl := range c.of.classes {
		cl.isolated, cl.denied = [3]bool{}, [3]bool{}
	}
	for _, d := range []Direction{Ingress, Egress} {
		c.direction(d)
	}
	out := c.output()
	of.scratch.rules, of.scratch.made = emptied(c.rules), emptied(c.made)
	of.last = &out
	return out
}

// emptied is a list whose room is kept, and nothing that was in it.
func emptied[T any](list []T) []T {
	clear(list)
	return list[:0]
}

// refill says who is in classes now, where nothing else has changed: the rules stay.
func (c *compilation) refill(moved []*class) {
	out := *c.of.last
	out.Classes = slices.Clone(out.Classes)
	for _, cl := range moved {
		if cl.compiled != nil || !cl.named {
			continue
		}
		cl.compile()
		if i, ok := slices.BinarySearchFunc(out.Classes, cl.id, func(has Class, id uint32) int { return cmp.Compare(has.ID, id) }); ok {
			out.Classes[i] = *cl.compiled
			out.Classes[i].ID = cl.id
		}
	}
	c.print(0)
	out.Guards = c.guards()
	c.of.last = &out
}

// print makes the classes' prints, of the rules about them. Others is that of endpoints in others' ranges.
func (c *compilation) print(others uint64) {
	for _, cl := range c.of.classes {
		cl.prints = [3]uint64{}
	}
	for i := range c.of.printed {
		r := &c.of.printed[i]
		h := r.hash
		for _, cl := range r.peers {
			h += mix(cl.hash + cl.print)
			if len(cl.compiled.Ranges) > 0 {
				h += others
			}
		}
		h = mix(h)
		for _, cl := range r.subjects {
			cl.prints[r.Direction] += h
		}
	}
}

// free is a number made of a hash that nothing else has.
func (u *numbers) free(hash uint64) uint32 {
	const all = 1<<31 - 1 // with the bit above a rule may have another in its place
	id := uint32(hash^hash>>32) & all
	for id == 0 || !u.add(id) {
		id = (id + 1) & all
	}
	return id
}

// atLeast are the classes that a set selects so certainly: one list for all rules, not to be changed.
func (s *selected) atLeast(least truth) []*class {
	if least == maybe {
		return s.classes
	}
	return s.classes[:s.certain:s.certain]
}

// direction makes the rules of a direction.
func (c *compilation) direction(d Direction) {
	first := len(c.rules)
	for _, p := range c.of.chosen.list {
		if p.isolates(d) {
			for _, cl := range p.subject.subject.classes {
				cl.isolated[d] = true
			}
		}
	}
	c.tier(d, Admin, PriorityAdmin, priorityEnd)
	same := c.of.scratch.same
	for _, p := range c.of.chosen.list {
		if !p.isolates(d) {
			continue
		}
		for _, src := range p.rules[d] {
			if others, ok := same[src.text]; ok {
				for _, r := range c.made[others.first:others.end] {
					r.Also = append(r.Also, src.label)
				}
				continue
			}
			at := len(c.made)
			made := c.make(p, src, d, yes)
			for _, r := range made {
				r.Action, r.Priority = Accept, PriorityNetworkPolicy
			}
			same[src.text] = span{uint32(at), uint32(len(c.made))}
			c.rules = append(c.rules, made...)
		}
	}
	clear(same)
	c.tier(d, Baseline, PriorityBaseline, PriorityNetworkPolicy)
	// What policies accept and nothing denies needs no guard, and no rule.
	guarded := func(cl *class) bool { return cl.isolated[d] || cl.denied[d] }
	rest := &rule{CompiledRule: CompiledRule{Direction: d, Priority: PriorityDefault, Action: Accept, AnyPeer: true, AnyPort: true, Label: "not isolated, " + d.String()}}
	rest.called("rest")
	for _, cl := range c.of.classes {
		if cl.denied[d] && !cl.isolated[d] {
			rest.subjects = append(rest.subjects, cl)
		}
	}
	c.rules = append(c.rules, rest)
	c.rules = append(c.rules[:first], slices.DeleteFunc(c.rules[first:], func(r *rule) bool {
		r.subjects = kept(r.subjects, guarded)
		return len(r.subjects) == 0
	})...)
}

// kept are the classes that may stay. The list itself is another rule's as well.
func kept(list []*class, stays func(*class) bool) (rest []*class) {
	first := slices.IndexFunc(list, func(cl *class) bool { return !stays(cl) })
	if first < 0 {
		return list
	}
	rest = slices.Clone(list[:first])
	for _, cl := range list[first:] {
		if stays(cl) {
			rest = append(rest, cl)
		}
	}
	return rest
}

// levels is how many priorities apart rules of one action are: the four actions take turns.
const levels = 4

// tier makes the rules of a tier's policies, the last one first: each is above what it must precede.
func (c *compilation) tier(d Direction, t Tier, base, end int) {
	first := len(c.rules) // of this tier
	for _, cl := range c.of.classes {
		cl.top = 0
	}
	add := func(r *rule, a Action) {
		if t == Baseline {
			r.subjects = kept(r.subjects, func(cl *class) bool { return !cl.isolated[d] })
		}
		if len(r.subjects) == 0 {
			return
		}
		level := int(a - Accept)
		for _, cl := range r.subjects {
			for level < cl.top {
				level += levels
			}
		}
		r.Action, r.Priority = a, base+level
		for _, cl := range r.subjects {
			cl.top = level
			cl.denied[d] = cl.denied[d] || a != Accept
		}
		c.rules = append(c.rules, r)
	}
	for _, p := range slices.Backward(c.of.chosen.list) {
		if !p.Kind.tiered() || p.Tier != t {
			continue
		}
		for _, src := range slices.Backward(p.rules[d]) {
			switch action := src.action; {
			case action == Pass && t == Admin:
				certain := c.make(p, src, d, yes)
				unsure := slices.DeleteFunc(c.make(p, src, d, maybe), func(r *rule) bool { return r.within(certain) })
				if len(unsure) == 0 && !overlapAny(certain, c.rules[first:]) {
					continue // there is nothing to pass by
				}
				for _, r := range unsure {
					r.called(" unsure")
					r.Label += " (unsure)"
					add(r, Drop)
				}
				for _, r := range certain {
					add(r, Pass)
				}
			case action == Reject:
				// Who may not be meant waits until that is known: to be refused is for good.
				certain := c.make(p, src, d, yes)
				for _, r := range c.make(p, src, d, maybe) {
					if !r.within(certain) {
						r.called(" unsure")
						r.Label += " (unsure)"
						add(r, Drop)
					}
				}
				for _, r := range certain {
					add(r, Reject)
				}
			case action == Accept || action == Pass: // behind Baseline everything is accepted
				for _, r := range c.make(p, src, d, yes) {
					add(r, Accept)
				}
			default:
				for _, r := range c.make(p, src, d, maybe) {
					add(r, action)
				}
			}
		}
	}
	c.rules = c.rules[:first+len(c.bounded(c.rules[first:], base, end))]
}

// bounded sees to it that no rule is at a priority which the tier has not: of what is above its end
// only that remains which denies.
func (c *compilation) bounded(made []*rule, base, end int) []*rule {
	last := end - levels - (end-levels-base)%levels
	return slices.DeleteFunc(made, func(r *rule) bool {
		if r.Priority < last {
			return false
		}
		if r.Action == Accept {
			return true
		}
		if r.Action == Pass {
			r.Action = Drop
		}
		r.Priority = last + int(r.Action-Accept)
		return false
	})
}

// overlap says whether there may be a packet that both rules match.
func overlap(a, b *rule) bool {
	return slices.ContainsFunc(a.subjects, func(cl *class) bool { return slices.Contains(b.subjects, cl) }) &&
		(a.AnyPeer || b.AnyPeer || len(a.Blocks)+len(a.Domains) > 0 || len(b.Blocks)+len(b.Domains) > 0 ||
			slices.ContainsFunc(a.peers, func(cl *class) bool { return slices.Contains(b.peers, cl) })) &&
		(a.AnyPort || b.AnyPort || slices.ContainsFunc(a.Ports, func(p PortRange) bool {
			return slices.ContainsFunc(b.Ports, func(q PortRange) bool {
				return (p.Proto == q.Proto || p.Proto == 0 || q.Proto == 0) && p.From <= q.To && q.From <= p.To
			})
		}))
}

func overlapAny(some, others []*rule) bool {
	return slices.ContainsFunc(some, func(a *rule) bool {
		return slices.ContainsFunc(others, func(b *rule) bool { return overlap(a, b) })
	})
}

// within says whether one of the rules is the same.
func (r *rule) within(list []*rule) bool {
	return slices.ContainsFunc(list, func(o *rule) bool {
		return slices.Equal(r.subjects, o.subjects) && slices.Equal(r.peers, o.peers) && slices.Equal(r.Blocks, o.Blocks) && slices.Equal(r.Domains, o.Domains) && slices.Equal(r.Ports, o.Ports)
	})
}

// make makes a rule of a policy's: several, if what ports are called differs between destinations,
// or none, if it matches nothing. It matches what is at least so certain.
func (c *compilation) make(p *entry, src *prepared, d Direction, least truth) []*rule {
	base := rule{CompiledRule: CompiledRule{
		Direction: d, AnyPeer: src.AnyPeer, Blocks: src.blocks, Domains: src.domains, AnyPort: src.AnyPort, Ports: src.ranges, Label: src.label,
	}, text: src.text, hash: src.hash}
	if base.subjects = p.subject.subject.atLeast(least); len(base.subjects) == 0 {
		return nil
	}
	if len(src.peers) == 1 {
		base.peers = src.peers[0].peer.atLeast(least)
	} else if len(src.peers) > 1 {
		for _, s := range src.peers {
			base.peers = append(base.peers, s.peer.atLeast(least)...)
		}
		slices.SortFunc(base.peers, func(a, b *class) int { return cmp.Compare(a.hash, b.hash) })
		base.peers = slices.Compact(base.peers)
	}
	add := func(r rule) {
		if len(r.subjects) > 0 && (r.AnyPeer || len(r.peers)+len(r.Blocks)+len(r.Domains) > 0) && (r.AnyPort || len(r.Ports) > 0) {
			c.made = append(c.made, c.rule(r))
		}
	}
	first := len(c.made)
	add(base)
	if src.named {
		c.named(base, src, least, add)
	}
	return c.made[first:len(c.made):len(c.made)]
}

// named adds rules for the ports of a rule that have a name, one for each thing that it stands for.
func (c *compilation) named(base rule, src *prepared, least truth, add func(rule)) {
	found := map[PortRange]*rule{}
	// at are the rules for what the rule's names may stand for at a destination.
	at := func(k *kind, do func(r *rule)) {
		for _, p := range src.Ports {
			if p.Name == "" {
				continue
			}
			if ports, t := p.resolved(k.Endpoint); t >= least {
				if found[ports] == nil {
					found[ports] = &rule{}
				}
				do(found[ports])
			}
		}
	}
	if base.Direction == Ingress {
		for _, cl := range base.subjects {
			at(cl.kinds[0], func(r *rule) { r.subjects = append(r.subjects, cl) })
		}
	} else {
		for _, cl := range base.peers {
			at(cl.kinds[0], func(r *rule) { r.peers = append(r.peers, cl) })
		}
		if base.AnyPeer || len(base.Blocks) > 0 {
			// Only endpoints have names of ports, and these may be of no class.
			for k := range c.of.ported {
				at(k, func(r *rule) { r.Blocks = append(r.Blocks, base.inBlocks(k)...) })
			}
		}
	}
	for _, ports := range slices.SortedFunc(maps.Keys(found), comparePorts) {
		one := base
		one.Ports = []PortRange{ports}
		one.called(fmt.Sprintln("named", ports))
		if r := found[ports]; base.Direction == Ingress {
			one.subjects = slices.Compact(r.subjects) // two names may stand for the same
		} else {
			slices.SortFunc(r.Blocks, comparePrefix)
			one.AnyPeer, one.peers, one.Blocks, one.Domains = false, slices.Compact(r.peers), slices.Compact(r.Blocks), nil
		}
		add(one)
	}
}

// inBlocks are the addresses of a kind that are in the rule's blocks, or all if any peer will do.
func (r *rule) inBlocks(k *kind) (list []netip.Prefix) {
	in := func(p netip.Prefix) {
		if r.AnyPeer {
			list = append(list, p)
			return
		}
		for _, b := range r.Blocks {
			if b.Overlaps(p) {
				if b.Bits() > p.Bits() {
					list = append(list, b)
				} else {
					list = append(list, p)
				}
			}
		}
	}
	for _, e := range k.members {
		for _, a := range e.Addrs {
			in(netip.PrefixFrom(a, a.BitLen()))
		}
		for _, p := range e.ranges {
			in(p)
		}
	}
	return list
}

func comparePorts(a, b PortRange) int {
	return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
}

// compactPorts sorts ranges and joins those of a protocol that overlap or touch.
func compactPorts(ports []PortRange) []PortRange {
	ports = slices.SortedFunc(slices.Values(ports), comparePorts)
	var list []PortRange
	for _, p := range ports {
		if n := len(list) - 1; n >= 0 && list[n].Proto == p.Proto && int(p.From) <= int(list[n].To)+1 {
			list[n].To = max(list[n].To, p.To)
			continue
		}
		list = append(list, p)
	}
	return list
}

// sort puts the rules in order: by direction, the highest priority first, and by their texts.
func (c *compilation) sort() {
	order := slices.Grow(c.of.scratch.order[:0], len(c.rules))
	for _, r := range c.rules {
		order = append(order, ranked{uint64(r.Direction)<<32 | uint64(math.MaxInt32-r.Priority), r})
	}
	slices.SortFunc(order, func(a, b ranked) int {
		if a.place != b.place {
			return cmp.Compare(a.place, b.place)
		}
		return strings.Compare(a.text, b.text)
	})
	for i, r := range order {
		c.rules[i] = r.rule
	}
	c.of.scratch.order = emptied(order)
}

// output names what the switch is given.
func (c *compilation) output() (out Compiled) {
	c.sort()
	out.Classes = c.members()
	others := c.others(&out)
	used := &c.of.scratch.numbers
	used.reset(len(c.rules))
	named := 0
	for _, r := range c.rules {
		named += len(r.subjects) + len(r.peers)
	}
	names := make([]uint32, 0, named) // one list of all numbers: what a rule has is a part of it
	ids := func(classes []*class) []uint32 {
		first := len(names)
		for _, cl := range classes {
			names = append(names, cl.id)
		}
		list := names[first:len(names):len(names)]
		slices.Sort(list)
		return list
	}
	out.Rules, c.of.printed = make([]CompiledRule, 0, len(c.rules)), slices.Grow(emptied(c.of.printed), len(c.rules))
	for _, r := range c.rules {
		h := r.hash + mix(uint64(r.Action))
		r.ID = used.free(h)
		if len(r.Also) > 0 {
			r.Label += fmt.Sprintf(" +%d", len(r.Also))
		}
		h += mix(uint64(r.Priority))
		for _, b := range r.Blocks {
			h += hashPrefix(b)
		}
		r.Subjects, r.Peers = ids(r.subjects), ids(r.peers)
		out.Rules = append(out.Rules, r.CompiledRule)
		c.of.printed = append(c.of.printed, printed{r.Direction, h, r.subjects, r.peers})
	}
	for i := range c.used { // what rules name may go before the next ones are made
		c.of.room[i/roomStep][i%roomStep] = rule{}
	}
	c.of.room = c.of.room[:min(len(c.of.room), c.used/roomStep+1)]
	c.print(others)
	out.Guards = c.guards()
	return out
}

// members numbers the classes that rules name, and says who is in them.
func (c *compilation) members() (list []Class) {
	for _, cl := range c.of.classes {
		cl.named = false
	}
	named := slices.Grow(c.of.scratch.named[:0], len(c.of.classes))
	for _, r := range c.rules {
		for _, classes := range [2][]*class{r.subjects, r.peers} {
			for _, cl := range classes {
				if !cl.named {
					cl.named = true
					named = append(named, cl)
				}
			}
		}
	}
	slices.SortFunc(named, func(a, b *class) int { return cmp.Compare(a.hash, b.hash) })
	used := &c.of.scratch.numbers
	used.reset(len(named))
	list = make([]Class, 0, len(named)+1)
	for _, cl := range named {
		cl.id = used.free(cl.hash)
		cl.compile()
		of := *cl.compiled
		of.ID = cl.id
		list = append(list, of)
	}
	c.of.scratch.named = emptied(named)
	slices.SortFunc(list, func(a, b Class) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// others adds a class of those endpoints that are in the ranges of others but in none of the classes: no rule names
// them, and by their addresses alone they would be taken for endpoints of which nothing is known. It returns the
// print of all endpoints whose addresses the ranges have: who goes leaves his to the range.
func (c *compilation) others(out *Compiled) (print uint64) {
	var rest Class
	seen := map[*network]bool{}
	for _, cl := range c.of.classes {
		if !cl.named || len(cl.compiled.Ranges) == 0 {
			continue
		}
		for _, k := range cl.kinds {
			if seen[k.network] || !slices.ContainsFunc(k.members, func(m *member) bool { return len(m.ranges) > 0 }) {
				continue
			}
			seen[k.network] = true
			for _, other := range k.network.kinds {
				for _, m := range other.members {
					if other.class == nil || !other.class.named {
						rest.Addrs = append(rest.Addrs, m.Addrs...)
					}
					for _, a := range m.Addrs {
						print += mix(hashPrefix(netip.PrefixFrom(a, a.BitLen())) + 2)
					}
				}
			}
		}
	}
	if c.of.ranged = len(seen) > 0; len(rest.Addrs) == 0 {
		return print
	}
	slices.SortFunc(rest.Addrs, netip.Addr.Compare)
	used := &c.of.scratch.numbers
	used.reset(len(out.Classes) + 1)
	for _, cl := range out.Classes {
		used.add(cl.ID)
	}
	rest.ID = used.free(hash("others"))
	out.Classes = append(out.Classes, rest)
	slices.SortFunc(out.Classes, func(a, b Class) int { return cmp.Compare(a.ID, b.ID) })
	return print
}

// compile says who is in a class, if that has changed.
func (cl *class) compile() {
	if cl.compiled != nil {
		return
	}
	cl.compiled, cl.print = &Class{}, 0
	for _, k := range cl.kinds {
		for _, m := range k.members {
			cl.compiled.Addrs = append(cl.compiled.Addrs, m.Addrs...)
			cl.compiled.Ranges = append(cl.compiled.Ranges, m.ranges...)
		}
	}
	slices.SortFunc(cl.compiled.Addrs, netip.Addr.Compare)
	slices.SortFunc(cl.compiled.Ranges, comparePrefix)
	for _, a := range cl.compiled.Addrs {
		cl.print += hashPrefix(netip.PrefixFrom(a, a.BitLen()))
	}
	for _, p := range cl.compiled.Ranges {
		cl.print += mix(hashPrefix(p) + 1)
	}
}

func hashPrefix(p netip.Prefix) uint64 {
	b := p.Addr().As16()
	h := mix(uint64(p.Bits()))
	for _, part := range [2][]byte{b[:8], b[8:]} {
		h = mix(h + binary.BigEndian.Uint64(part))
	}
	return h
}

// guarded says whether rules let in or out less than everything.
func (cl *class) guarded() bool { return cl.isolated != [3]bool{} || cl.denied != [3]bool{} }

// guards are the local endpoints that rules speak about.
func (c *compilation) guards() (list []Guard) {
	count := 0
	for _, cl := range c.of.classes {
		if cl.guarded() {
			for _, k := range cl.kinds {
				count += k.local
			}
		}
	}
	if count == 0 {
		return nil
	}
	list = make([]Guard, 0, count)
	for _, cl := range c.of.classes {
		in, out := cl.isolated[Ingress] || cl.denied[Ingress], cl.isolated[Egress] || cl.denied[Egress]
		if !cl.guarded() {
			continue
		}
		for _, k := range cl.kinds {
			for _, m := range k.members {
				if !m.Local {
					continue
				}
				g := Guard{Endpoint: m.ID, Addrs: m.Addrs, Ingress: in, Egress: out}
				if in {
					g.IngressPrint = max(1, cl.prints[Ingress])
				}
				if out {
					g.EgressPrint = max(1, cl.prints[Egress])
				}
				list = append(list, g)
			}
		}
	}
	slices.SortFunc(list, func(a, b Guard) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	return list
}
