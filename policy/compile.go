package policy

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Compile makes of the world what this host's switch enforces: the rules whose subjects have a local
// endpoint, and the classes that those name.
func (w World) Compile() Compiled {
	c := compilation{networks: knownNetworks(w.Networks), sets: map[string]*set{}}
	c.sort(w.Endpoints, w.Ranges)
	c.choose(w.Policies)
	c.classify()
	for _, d := range []Direction{Ingress, Egress} {
		c.direction(d)
	}
	return c.output()
}

// compilation is a world on its way to what the switch enforces.
type compilation struct {
	networks known
	kinds    []*kind
	sets     map[string]*set // that rules with local subjects name, by their text
	policies []*chosen
	names    map[string]bool // of ports that these rules name
	classes  []*class
	rules    []*rule
}

// kind are all endpoints of equal labels and ports on one network.
type kind struct {
	Endpoint // one of them
	local    bool
	members  []*Endpoint
	ranges   []netip.Prefix
	class    *class
	selected []membership // by its class's sets
}

// set is a Set with the kinds that it selects.
type set struct {
	Set
	text string
	hash uint64
}

type membership struct {
	set *set
	t   truth
}

// chosen is a policy with local subjects.
type chosen struct {
	*Policy
	subject *set
}

// class are the kinds that no rule tells apart.
type class struct {
	id       uint32
	hash     uint64
	local    bool
	kinds    []*kind
	selected map[*set]truth
	isolated [3]bool // by direction
	denied   [3]bool // a rule of a tier denies something
	print    [3]uint64
}

// rule is a rule of a policy, or several equal ones, on its way to the switch.
type rule struct {
	CompiledRule
	text     string // what makes it this rule
	policies int
	subjects []*class
	peers    []*class
}

func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		_, _ = h.Write([]byte(p))
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

func (s Selector) text(b *strings.Builder) {
	for _, r := range s {
		fmt.Fprintf(b, "%q %d %q;", r.Key, r.Op, r.Values)
	}
}

func (s Set) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q/", s.Network)
	s.Networks.text(&b)
	b.WriteByte('/')
	s.Endpoints.text(&b)
	return b.String()
}

// sort puts endpoints into kinds.
func (c *compilation) sort(endpoints []Endpoint, ranges []Range) {
	byText := map[string]*kind{}
	add := func(e Endpoint) *kind {
		var b strings.Builder
		fmt.Fprintf(&b, "%q %t", e.Network, e.Known)
		for _, k := range sortedKeys(e.Labels) {
			fmt.Fprintf(&b, " %q=%q", k, e.Labels[k])
		}
		for _, k := range sortedKeys(e.Ports) {
			fmt.Fprintf(&b, " %q:%d/%d", k, e.Ports[k].Port, e.Ports[k].Proto)
		}
		k := byText[b.String()]
		if k == nil {
			k = &kind{Endpoint: e}
			byText[b.String()] = k
			c.kinds = append(c.kinds, k)
		}
		return k
	}
	for i := range endpoints {
		k := add(endpoints[i])
		k.members = append(k.members, &endpoints[i])
		k.local = k.local || endpoints[i].Local
	}
	for _, r := range ranges {
		k := add(Endpoint{Network: r.Network})
		k.ranges = append(k.ranges, r.Prefix)
	}
}

// choose finds the policies that may have local subjects, and the sets and names that they name.
func (c *compilation) choose(policies []Policy) {
	c.names = map[string]bool{}
	for i := range policies {
		p := &policies[i]
		if !slices.ContainsFunc(c.kinds, func(k *kind) bool { return k.local && p.Subject.matches(&k.Endpoint, c.networks) != no }) {
			continue
		}
		c.policies = append(c.policies, &chosen{p, c.set(p.Subject)})
		for _, d := range []Direction{Ingress, Egress} {
			for _, r := range p.rules(d) {
				for _, s := range r.Peers {
					c.set(s)
				}
				for _, p := range r.Ports {
					if p.Name != "" {
						c.names[p.Name] = true
					}
				}
			}
		}
	}
	slices.SortFunc(c.policies, func(a, b *chosen) int { return comparePrecedence(a.Policy, b.Policy) })
}

func (c *compilation) set(s Set) *set {
	text := s.text()
	if c.sets[text] == nil {
		c.sets[text] = &set{s, text, hash(text)}
	}
	return c.sets[text]
}

// classify puts kinds into classes: those that the same sets select, and that call the ports which
// rules name the same.
func (c *compilation) classify() {
	sets := slices.SortedFunc(maps.Values(c.sets), func(a, b *set) int { return cmp.Compare(a.text, b.text) })
	byText := map[string]*class{}
	for _, k := range c.kinds {
		var text strings.Builder
		selected := map[*set]truth{}
		for _, s := range sets {
			if t := s.matches(&k.Endpoint, c.networks); t != no {
				selected[s] = t
				fmt.Fprintf(&text, "%d %s\n", t, s.text)
			}
		}
		if len(selected) == 0 {
			continue
		}
		for _, name := range sortedKeys(c.names) {
			if p, ok := k.Ports[name]; ok {
				fmt.Fprintf(&text, "%q %d/%d\n", name, p.Port, p.Proto)
			}
		}
		fmt.Fprint(&text, k.Known)
		cl := byText[text.String()]
		if cl == nil {
			cl = &class{hash: hash(text.String()), selected: selected}
			byText[text.String()] = cl
			c.classes = append(c.classes, cl)
		}
		k.class = cl
		cl.kinds = append(cl.kinds, k)
		cl.local = cl.local || k.local
	}
	slices.SortFunc(c.classes, func(a, b *class) int { return cmp.Compare(a.hash, b.hash) })
	used := map[uint32]bool{}
	for _, cl := range c.classes {
		cl.id = free(used, cl.hash)
	}
}

// free is a number made of a hash that nothing else has.
func free(used map[uint32]bool, hash uint64) uint32 {
	id := uint32(hash ^ hash>>32)
	for id == 0 || used[id] {
		id++
	}
	used[id] = true
	return id
}

// having are the classes that a set selects, at least so certainly; only those with local endpoints
// if that is asked.
func (c *compilation) having(s *set, least truth, local bool) (list []*class) {
	for _, cl := range c.classes {
		if cl.selected[s] >= least && (cl.local || !local) {
			list = append(list, cl)
		}
	}
	return list
}

// direction makes the rules of a direction.
func (c *compilation) direction(d Direction) {
	first := len(c.rules)
	for _, p := range c.policies {
		if p.isolates(d) {
			for _, cl := range c.having(p.subject, maybe, true) {
				cl.isolated[d] = true
			}
		}
	}
	c.tier(d, Admin, PriorityAdmin, priorityEnd, func(*class) bool { return true })
	same := map[string]*rule{}
	for _, p := range c.policies {
		if !p.isolates(d) {
			continue
		}
		for i := range p.rules(d) {
			for _, r := range c.make(p, d, i, yes) {
				r.Action, r.Priority = Accept, PriorityNetworkPolicy
				if other := same[r.text]; other != nil {
					other.policies++
					continue
				}
				same[r.text] = r
				c.rules = append(c.rules, r)
			}
		}
	}
	c.tier(d, Baseline, PriorityBaseline, PriorityNetworkPolicy, func(cl *class) bool { return !cl.isolated[d] })
	// What policies accept and nothing denies needs no guard, and no rule.
	guarded := func(cl *class) bool { return cl.isolated[d] || cl.denied[d] }
	rest := &rule{CompiledRule: CompiledRule{Direction: d, Priority: PriorityDefault, Action: Accept, AnyPeer: true, AnyPort: true, Label: "not isolated, " + d.String()}, text: "rest"}
	for _, cl := range c.classes {
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
	for _, cl := range list {
		if stays(cl) {
			rest = append(rest, cl)
		}
	}
	return rest
}

// levels is how many priorities apart rules of one action are: the four actions take turns.
const levels = 4

// tier makes the rules of a tier's policies, the last one first: each is above what it must precede.
func (c *compilation) tier(d Direction, t Tier, base, end int, has func(*class) bool) {
	var made []*rule // of this tier
	top := map[*class]int{}
	add := func(r *rule, a Action) {
		r.subjects = kept(r.subjects, has)
		if len(r.subjects) == 0 {
			return
		}
		level := int(a - Accept)
		for _, cl := range r.subjects {
			if below, ok := top[cl]; ok {
				for level < below {
					level += levels
				}
			}
		}
		r.Action, r.Priority = a, base+level
		for _, cl := range r.subjects {
			top[cl] = level
			cl.denied[d] = cl.denied[d] || a != Accept
		}
		made = append(made, r)
	}
	for _, p := range slices.Backward(c.policies) {
		if p.Kind != ClusterNetworkPolicy || p.Tier != t {
			continue
		}
		for i := len(p.rules(d)) - 1; i >= 0; i-- {
			certain, possible := c.make(p, d, i, yes), c.make(p, d, i, maybe)
			switch action := p.rules(d)[i].Action; {
			case action == Pass && t == Admin:
				unsure := slices.DeleteFunc(possible, func(r *rule) bool { return r.within(certain) })
				if len(unsure) == 0 && !overlapAny(certain, made) {
					continue // there is nothing to pass by
				}
				for _, r := range unsure {
					r.text += " unsure"
					r.Label += " (unsure)"
					add(r, Drop)
				}
				for _, r := range certain {
					add(r, Pass)
				}
			case action == Accept || action == Pass: // behind Baseline everything is accepted
				for _, r := range certain {
					add(r, Accept)
				}
			default:
				for _, r := range possible {
					add(r, action)
				}
			}
		}
	}
	c.rules = append(c.rules, c.bounded(made, base, end)...)
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
		(a.AnyPeer || b.AnyPeer || len(a.Blocks) > 0 || len(b.Blocks) > 0 ||
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
		return slices.Equal(r.subjects, o.subjects) && slices.Equal(r.peers, o.peers) && slices.Equal(r.Blocks, o.Blocks) && slices.Equal(r.Ports, o.Ports)
	})
}

// make makes a rule of a policy: several, if what ports are called differs between destinations, or
// none, if it matches nothing. It matches what is at least so certain.
func (c *compilation) make(p *chosen, d Direction, i int, least truth) (list []*rule) {
	src := &p.rules(d)[i]
	base := rule{CompiledRule: CompiledRule{
		Direction: d, AnyPeer: src.AnyPeer, AnyPort: src.AnyPort, Label: p.ref(d, i).String(),
	}, policies: 1}
	base.subjects = c.having(p.subject, least, true)
	var text strings.Builder
	fmt.Fprintf(&text, "%d %s any=%t %t\n", d, p.subject.text, src.AnyPeer, src.AnyPort)
	if p.Kind == ClusterNetworkPolicy {
		fmt.Fprintf(&text, "%q %d\n", p.Name, i)
	}
	if !src.AnyPeer {
		for _, s := range src.Peers {
			set := c.set(s)
			fmt.Fprintf(&text, "%s\n", set.text)
			for _, cl := range c.having(set, least, false) {
				if !slices.Contains(base.peers, cl) {
					base.peers = append(base.peers, cl)
				}
			}
		}
		for _, b := range src.Blocks {
			base.Blocks = append(base.Blocks, b.prefixes()...)
		}
		slices.SortFunc(base.Blocks, comparePrefix)
		base.Blocks = slices.Compact(base.Blocks)
		fmt.Fprintln(&text, base.Blocks)
	}
	named := false
	if !src.AnyPort {
		for _, port := range src.Ports {
			fmt.Fprintf(&text, "%d %q %d-%d\n", port.Proto, port.Name, port.From, port.To)
			if port.Name != "" {
				named = true
				continue
			}
			base.Ports = append(base.Ports, PortRange{port.Proto, port.From, port.To})
		}
	}
	base.text = text.String()
	add := func(r rule) {
		if len(r.subjects) > 0 && (r.AnyPeer || len(r.peers)+len(r.Blocks) > 0) && (r.AnyPort || len(r.Ports) > 0) {
			r.Ports = compactPorts(r.Ports)
			list = append(list, &r)
		}
	}
	add(base)
	if named {
		c.named(base, src, least, add)
	}
	return list
}

// named adds rules for the ports of a rule that have a name, one for each thing that it stands for.
func (c *compilation) named(base rule, src *Rule, least truth, add func(rule)) {
	type what struct {
		subjects, peers []*class
		blocks          []netip.Prefix
	}
	found := map[PortRange]*what{}
	at := func(r PortRange) *what {
		if found[r] == nil {
			found[r] = &what{}
		}
		return found[r]
	}
	// resolve are the ranges that the rule's names may stand for at a destination.
	resolve := func(k *kind, do func(w *what)) {
		for _, p := range src.Ports {
			if p.Name == "" {
				continue
			}
			if r, t := p.resolved(&k.Endpoint); t >= least {
				do(at(r))
			}
		}
	}
	once := func(list []*class, cl *class) []*class {
		if slices.Contains(list, cl) {
			return list
		}
		return append(list, cl)
	}
	if base.Direction == Ingress {
		for _, cl := range base.subjects {
			resolve(cl.kinds[0], func(w *what) { w.subjects = once(w.subjects, cl) })
		}
	} else {
		for _, cl := range base.peers {
			resolve(cl.kinds[0], func(w *what) { w.peers = once(w.peers, cl) })
		}
		if base.AnyPeer || len(base.Blocks) > 0 {
			// Only endpoints have names of ports, and these may be of no class.
			for _, k := range c.kinds {
				resolve(k, func(w *what) { w.blocks = append(w.blocks, base.inBlocks(k)...) })
			}
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(found), comparePorts) {
		one := base
		one.Ports = []PortRange{r}
		one.text += fmt.Sprintln("named", r)
		if base.Direction == Ingress {
			one.subjects = found[r].subjects
		} else {
			one.AnyPeer, one.peers, one.Blocks = false, found[r].peers, found[r].blocks
			slices.SortFunc(one.Blocks, comparePrefix)
			one.Blocks = slices.Compact(one.Blocks)
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
	}
	for _, p := range k.ranges {
		in(p)
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

// output names what the switch is given.
func (c *compilation) output() (out Compiled) {
	slices.SortStableFunc(c.rules, func(a, b *rule) int {
		return cmp.Or(cmp.Compare(a.Direction, b.Direction), -cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.text, b.text))
	})
	named, used := map[*class]bool{}, map[uint32]bool{}
	for _, r := range c.rules {
		r.ID = free(used, hash(r.text, r.Direction.String(), r.Action.String()))
		if r.policies > 1 {
			r.Label += fmt.Sprintf(" +%d", r.policies-1)
		}
		r.Subjects, r.Peers = ids(r.subjects, named), ids(r.peers, named)
		out.Rules = append(out.Rules, r.CompiledRule)
	}
	members := map[*class]Class{}
	for _, cl := range c.classes {
		if !named[cl] {
			continue
		}
		of := Class{ID: cl.id}
		for _, k := range cl.kinds {
			for _, e := range k.members {
				of.Addrs = append(of.Addrs, e.Addrs...)
			}
			of.Ranges = append(of.Ranges, k.ranges...)
		}
		slices.SortFunc(of.Addrs, netip.Addr.Compare)
		slices.SortFunc(of.Ranges, comparePrefix)
		members[cl] = of
		out.Classes = append(out.Classes, of)
	}
	slices.SortFunc(out.Classes, func(a, b Class) int { return cmp.Compare(a.ID, b.ID) })
	c.prints(members)
	out.Guards = c.guards()
	return out
}

func ids(classes []*class, named map[*class]bool) (list []uint32) {
	for _, cl := range classes {
		named[cl] = true
		list = append(list, cl.id)
	}
	slices.Sort(list)
	return list
}

// prints hashes for each class all that judges its endpoints.
func (c *compilation) prints(members map[*class]Class) {
	of := map[*class]string{}
	for _, r := range c.rules {
		var b strings.Builder
		fmt.Fprintln(&b, r.text, r.Priority, r.Action, r.Ports, r.Blocks)
		for _, cl := range r.peers {
			if of[cl] == "" {
				of[cl] = fmt.Sprint(members[cl])
			}
			b.WriteString(of[cl])
		}
		h := hash(b.String())
		for _, cl := range r.subjects {
			cl.print[r.Direction] = cl.print[r.Direction]*31 + h
		}
	}
}

// guards are the local endpoints that rules speak about.
func (c *compilation) guards() (list []Guard) {
	for _, cl := range c.classes {
		in, out := cl.isolated[Ingress] || cl.denied[Ingress], cl.isolated[Egress] || cl.denied[Egress]
		if !in && !out {
			continue
		}
		for _, k := range cl.kinds {
			for _, e := range k.members {
				if !e.Local {
					continue
				}
				g := Guard{Endpoint: e.ID, Addrs: e.Addrs, Ingress: in, Egress: out}
				if in {
					g.IngressPrint = max(1, cl.print[Ingress])
				}
				if out {
					g.EgressPrint = max(1, cl.print[Egress])
				}
				list = append(list, g)
			}
		}
	}
	slices.SortFunc(list, func(a, b Guard) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	return list
}
