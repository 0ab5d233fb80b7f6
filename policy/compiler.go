package policy

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// Compiler compiles a world that changes, for one host. What a change costs depends on what it
// changes: an endpoint is matched once for all of equal labels on its network (a kind), and only by
// the sets that rules with local subjects name. What it is given it keeps: maps and lists must stay
// as they are.
type Compiler struct {
	networks  map[string]*network
	endpoints map[string]*member
	kinds     map[string]*kind // by their text
	policies  map[Key]*entry
	sets      map[string]*set // by their text
	selectors map[string]*networkSelector
	classes   map[uint64]*class // by their hash
	ranges    []*member

	byLabel  map[label][]*kind
	unknown  []*kind           // whose labels are not all known
	ported   map[*kind]bool    // that may have names of ports
	subjects map[string][]*set // of policies, by the network that they name
	peers    map[string][]*set // of chosen policies' rules, likewise
	chosen   chosen            // policies with local subjects
	names    map[string]int    // of ports, in chosen policies
	stale    []*kind           // whose class may be another now
	idle     []*set            // that nothing may name any more; classes still may, until settled
	ranged   bool              // the last rules name ranges
	restless bool              // chosen is to be put in order
	round    int               // of Sync
	last     *Compiled         // nil: something of it has changed but who is in a class
	moved    []*class          // that have other members than in it
	printed  []printed         // the rules of it
	room     []*[roomStep]rule // where rules are made
	scratch  scratch
	text     []byte // of what is looked up
}

// NewCompiler returns a compiler of an empty world.
func NewCompiler() *Compiler {
	return &Compiler{
		networks: map[string]*network{}, endpoints: map[string]*member{}, kinds: map[string]*kind{}, policies: map[Key]*entry{}, sets: map[string]*set{},
		selectors: map[string]*networkSelector{}, classes: map[uint64]*class{}, byLabel: map[label][]*kind{}, ported: map[*kind]bool{},
		subjects: map[string][]*set{}, peers: map[string][]*set{}, names: map[string]int{}, scratch: scratch{same: map[string]span{}},
	}
}

// Compile makes of the world what this host's switch enforces: the rules whose subjects have a local
// endpoint, and the classes that those name.
func (w World) Compile() Compiled {
	c := NewCompiler()
	c.Sync(w)
	return c.Compile()
}

// Sync makes the compiler's world another one. What is the same in both, costs next to nothing, if
// it is the same in memory, and little if it is equal.
func (c *Compiler) Sync(w World) {
	c.round++
	if len(c.networks)+len(c.endpoints)+len(c.policies) == 0 { // room, since tables that grow are written several times
		c.endpoints, c.policies = make(map[string]*member, len(w.Endpoints)), make(map[Key]*entry, len(w.Policies))
		c.kinds, c.sets = make(map[string]*kind, len(w.Endpoints)/2), make(map[string]*set, len(w.Policies))
		c.stale = make([]*kind, 0, len(w.Endpoints)/2)
		c.networks, c.subjects = make(map[string]*network, len(w.Networks)), make(map[string][]*set, len(w.Networks))
	}
	for i := range w.Networks {
		c.putNetwork(&w.Networks[i]).round = c.round
	}
	for i := range w.Endpoints {
		c.putEndpoint(&w.Endpoints[i]).round = c.round
	}
	for i := range w.Policies {
		c.putPolicy(&w.Policies[i]).round = c.round
	}
	if !slices.EqualFunc(c.ranges, w.Ranges, func(m *member, r Range) bool { return m.Network == r.Network && m.ranges[0] == r.Prefix }) {
		c.SetRanges(w.Ranges)
	}
	if len(c.policies) != len(w.Policies) {
		for key, e := range c.policies {
			if e.round != c.round {
				c.DeletePolicy(key)
			}
		}
	}
	if len(c.endpoints) != len(w.Endpoints) {
		for id, m := range c.endpoints {
			if m.round != c.round {
				c.DeleteEndpoint(id)
			}
		}
	}
	if len(c.networks) != len(w.Networks) { // those that endpoints name are among them
		for name, n := range c.networks {
			if n.declared && n.round != c.round {
				c.DeleteNetwork(name)
			}
		}
	}
}

// equal says whether two descriptions of an endpoint are.
func (e *Endpoint) equal(other *Endpoint) bool {
	return e.ID == other.ID && e.Network == other.Network && e.Host == other.Host && e.Local == other.Local && e.Known == other.Known &&
		slices.Equal(e.Addrs, other.Addrs) && equalMaps(e.Labels, other.Labels) && equalMaps(e.Ports, other.Ports)
}

// equalMaps looks at the maps' contents only if they are two.
func equalMaps[V comparable](a, b map[string]V) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer() || maps.Equal(a, b)
}

// equal says whether two policies are: at once, if their parts are the same in memory.
func (p *Policy) equal(other *Policy) bool {
	same := p.Key == other.Key && p.Author == other.Author && p.Version == other.Version && p.Tier == other.Tier && p.Priority == other.Priority &&
		p.IsolatesIngress == other.IsolatesIngress && p.IsolatesEgress == other.IsolatesEgress && p.Subject.Network == other.Subject.Network
	return same && (sameSlice(p.Ingress, other.Ingress) && sameSlice(p.Egress, other.Egress) && sameSlice(p.Subject.Networks, other.Subject.Networks) &&
		sameSlice(p.Subject.Endpoints, other.Subject.Endpoints) || reflect.DeepEqual(p, other))
}

func sameSlice[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

type label struct{ key, value string }

// network is a network that is known, or that endpoints name.
type network struct {
	name     string
	labels   labels
	declared bool
	kinds    []*kind
	round    int
}

// member is an endpoint, or a range of them.
type member struct {
	Endpoint
	ranges []netip.Prefix
	kind   *kind
	round  int
}

// kind are all endpoints of equal labels and ports on one network.
type kind struct {
	*Endpoint // one of them, for what is the same of all
	text      string
	network   *network
	members   []*member
	local     int // so many are here
	class     *class
	stale     bool
	// subject are the sets of policies that select it, if it is here; peer those of chosen rules.
	subject, peer []membership
}

type membership struct {
	set *set
	t   truth
}

// set is a Set, and what it selects in its two parts: as the subject of policies, and among the
// peers of chosen policies' rules.
type set struct {
	Set
	text          string
	hash          uint64
	selector      *networkSelector // if it names no network
	policies      []*entry         // whose subject it is
	refs          int              // by rules
	subject, peer selected
}

// selected are the kinds that a set selects in one of its parts, and once settled their classes: those first that it selects for certain.
type selected struct {
	kinds   []*kind
	classes []*class
	certain int // so many of them
}

func (s *selected) add(cl *class, t truth) {
	s.classes = append(s.classes, cl)
	if t == yes {
		last := len(s.classes) - 1
		s.classes[s.certain], s.classes[last] = s.classes[last], s.classes[s.certain]
		s.certain++
	}
}

func (s *selected) remove(cl *class) {
	i := slices.Index(s.classes, cl)
	if i < 0 {
		return
	}
	if i < s.certain { // the last of these takes its place
		s.certain--
		s.classes[i] = s.classes[s.certain]
		i = s.certain
	}
	last := len(s.classes) - 1
	s.classes[i], s.classes[last] = s.classes[last], nil
	s.classes = s.classes[:last]
}

// networkSelector is a selector of networks, and what it selects.
type networkSelector struct {
	Selector
	truth map[*network]truth // no is not there
}

// entry is a policy.
type entry struct {
	Policy
	subject        *set
	rules          [3][]*prepared // by direction, if it is chosen
	chosen, listed bool
	round          int
}

// class are the kinds that no rule tells apart.
type class struct {
	hash          uint64
	kinds         []*kind
	subject, peer []membership
	compiled      *Class // nil: to be made again
	print         uint64 // of the addresses

	id       uint32 // these, of the compilation that runs
	named    bool
	top      int // the level of the last rule of a tier about it
	isolated [3]bool
	denied   [3]bool
	prints   [3]uint64
}

// PutNetwork adds a network, or says its labels anew.
func (c *Compiler) PutNetwork(n Network) { c.putNetwork(&n) }

func (c *Compiler) putNetwork(n *Network) *network {
	own := c.network(n.Name)
	if own.declared && equalMaps(own.labels.have, n.Labels) {
		return own
	}
	own.declared, own.labels = true, labels{n.Labels, true, n.Name}
	c.relabelled(own)
	return own
}

// DeleteNetwork removes a network. What endpoints still name it, its labels are not known.
func (c *Compiler) DeleteNetwork(name string) {
	n, ok := c.networks[name]
	if !ok || !n.declared {
		return
	}
	n.declared, n.labels = false, labels{network: name}
	c.relabelled(n)
	c.dropNetwork(n)
}

func (c *Compiler) network(name string) *network {
	n, ok := c.networks[name]
	if !ok {
		n = &network{name: name, labels: labels{network: name}}
		c.networks[name] = n
		for _, s := range c.selectors {
			s.match(n)
		}
	}
	return n
}

func (c *Compiler) dropNetwork(n *network) {
	if n.declared || len(n.kinds) > 0 {
		return
	}
	delete(c.networks, n.name)
	for _, s := range c.selectors {
		delete(s.truth, n)
	}
}

func (s *networkSelector) match(n *network) {
	delete(s.truth, n)
	if t := s.matches(n.labels); t != no {
		s.truth[n] = t
	}
}

// relabelled matches what is on a network once more.
func (c *Compiler) relabelled(n *network) {
	for _, s := range c.selectors {
		s.match(n)
	}
	for _, k := range slices.Clone(n.kinds) {
		c.unmatch(k)
		c.match(k)
	}
}

// PutEndpoint adds an endpoint, or says anew what it is.
func (c *Compiler) PutEndpoint(e Endpoint) { c.putEndpoint(&e) }

func (c *Compiler) putEndpoint(e *Endpoint) *member {
	old, ok := c.endpoints[e.ID]
	if ok && old.equal(e) {
		return old
	}
	m := &member{Endpoint: *e}
	c.endpoints[e.ID] = m
	c.enter(m)
	if ok {
		c.leave(old) // now that the new one is there: a kind that stays is not matched twice
	}
	return m
}

// DeleteEndpoint removes an endpoint.
func (c *Compiler) DeleteEndpoint(id string) {
	if m, ok := c.endpoints[id]; ok {
		delete(c.endpoints, id)
		c.leave(m)
	}
}

// SetRanges says which ranges there are.
func (c *Compiler) SetRanges(ranges []Range) {
	for _, m := range c.ranges {
		c.leave(m)
	}
	c.ranges = nil
	for _, r := range ranges {
		m := &member{Endpoint: Endpoint{Network: r.Network}, ranges: []netip.Prefix{r.Prefix}}
		c.ranges = append(c.ranges, m)
		c.enter(m)
	}
}

// enter puts an endpoint into its kind.
func (c *Compiler) enter(m *member) {
	c.text = appendKind(c.text[:0], &m.Endpoint)
	k, ok := c.kinds[string(c.text)]
	if !ok {
		text := string(c.text)
		k = &kind{Endpoint: &m.Endpoint, text: text, network: c.network(m.Network)}
		c.kinds[text] = k
		c.index(k)
	}
	m.kind = k
	k.members = append(k.members, m)
	c.changed(k, m)
	if m.Local {
		k.local++
	}
	switch {
	case !ok:
		c.match(k)
	case m.Local && k.local == 1:
		c.matchSubjects(k)
	}
}

// leave takes an endpoint out of its kind.
func (c *Compiler) leave(m *member) {
	k := m.kind
	k.members = without1(k.members, m)
	c.changed(k, m)
	if m.Local {
		k.local--
	}
	switch {
	case len(k.members) == 0:
		c.unmatch(k)
		delete(c.kinds, k.text)
		c.unindex(k)
		c.dropNetwork(k.network)
	case m.Local && k.local == 0:
		c.unmatchSubjects(k)
	}
}

// changed says that a kind has other members than it had: these came, or went.
func (c *Compiler) changed(k *kind, members ...*member) {
	if k.class != nil {
		if k.class.compiled = nil; c.last != nil {
			c.moved = append(c.moved, k.class)
		}
	}
	// Rules may name addresses: those of names of ports, and of what is in no class.
	if c.ranged || c.ported[k] && len(c.names) > 0 || slices.ContainsFunc(members, func(m *member) bool { return len(m.ranges) > 0 }) {
		c.last = nil
	}
}

// without1 is a list without one of its elements, in another order.
func without1[T comparable](list []T, x T) []T {
	i := slices.Index(list, x)
	if i < 0 {
		return list
	}
	last := len(list) - 1
	list[i] = list[last]
	var zero T
	list[last] = zero
	return list[:last]
}

func appendKind(b []byte, e *Endpoint) []byte {
	b = appendText(b, e.Network)
	if e.Known {
		b = append(b, 1)
	}
	for _, k := range sortedKeys(e.Labels) {
		b = appendText(appendText(b, k), e.Labels[k])
	}
	b = append(b, 0xff)
	for _, k := range sortedKeys(e.Ports) {
		b = append(appendText(b, k), e.Ports[k].Proto, byte(e.Ports[k].Port>>8), byte(e.Ports[k].Port))
	}
	return b
}

// appendText appends a text so that no two lists of texts are the same.
func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))+2), s...)
}

// index makes a kind to be found.
func (c *Compiler) index(k *kind) {
	k.network.kinds = append(k.network.kinds, k)
	if k.Known {
		for key, value := range k.Labels {
			l := label{key, value}
			c.byLabel[l] = append(c.byLabel[l], k)
		}
	} else {
		c.unknown = append(c.unknown, k)
	}
	if !k.Known || len(k.Ports) > 0 {
		c.ported[k] = true
	}
}

func (c *Compiler) unindex(k *kind) {
	k.network.kinds = without1(k.network.kinds, k)
	if k.Known {
		for key, value := range k.Labels {
			l := label{key, value}
			if c.byLabel[l] = without1(c.byLabel[l], k); len(c.byLabel[l]) == 0 {
				delete(c.byLabel, l)
			}
		}
	} else {
		c.unknown = without1(c.unknown, k)
	}
	delete(c.ported, k)
}

// each calls for each kind that a set selects, or may.
func (c *Compiler) each(s *set, do func(k *kind, t truth)) {
	var room, other [8][]*kind
	pools, size := room[:0], 0
	if s.selector == nil {
		if n, ok := c.networks[s.Network]; ok {
			pools, size = append(pools, n.kinds), len(n.kinds)
		}
	} else {
		for n := range s.selector.truth {
			pools, size = append(pools, n.kinds), size+len(n.kinds)
		}
	}
	for i := range s.Endpoints {
		if r := &s.Endpoints[i]; r.Op == In {
			with, n := append(other[:0], c.unknown), len(c.unknown)
			for _, v := range r.Values {
				kinds := c.byLabel[label{r.Key, v}]
				with, n = append(with, kinds), n+len(kinds)
			}
			if n < size {
				pools, size = append(room[:0], with...), n
			}
		}
	}
	for _, pool := range pools {
		for _, k := range pool {
			if t := s.of(k); t != no {
				do(k, t)
			}
		}
	}
}

// of says whether a set selects a kind.
func (s *set) of(k *kind) truth {
	result := yes
	switch {
	case s.selector != nil:
		result = s.selector.truth[k.network]
	case s.Network != k.Network:
		result = no
	}
	if result == no {
		return no
	}
	return min(result, s.Endpoints.matches(labels{have: k.Labels, all: k.Known}))
}

// match finds the sets that select a kind.
func (c *Compiler) match(k *kind) {
	for _, name := range [2]string{k.Network, ""} {
		for _, s := range c.peers[name] {
			if t := s.of(k); t != no {
				c.selectPeer(s, k, t)
			}
		}
	}
	if k.local > 0 {
		c.matchSubjects(k)
	}
}

func (c *Compiler) unmatch(k *kind) {
	c.unmatchSubjects(k)
	for _, m := range k.peer {
		m.set.peer.kinds = without1(m.set.peer.kinds, k)
	}
	k.peer = nil
	c.mark(k)
}

func (c *Compiler) selectPeer(s *set, k *kind, t truth) {
	if slices.ContainsFunc(k.peer, func(m membership) bool { return m.set == s }) {
		return // found when it was chosen for this very kind
	}
	k.peer = append(k.peer, membership{s, t})
	s.peer.kinds = append(s.peer.kinds, k)
	c.mark(k)
}

func (c *Compiler) selectSubject(s *set, k *kind, t truth) {
	k.subject = append(k.subject, membership{s, t})
	s.subject.kinds = append(s.subject.kinds, k)
	c.mark(k)
}

// matchSubjects finds the policies whose subject a kind is: those that had none here are chosen.
func (c *Compiler) matchSubjects(k *kind) {
	for _, name := range [2]string{k.Network, ""} {
		for _, s := range c.subjects[name] {
			if t := s.of(k); t != no {
				c.selectSubject(s, k, t)
				if len(s.subject.kinds) == 1 {
					c.chooseAll(s)
				}
			}
		}
	}
}

func (c *Compiler) chooseAll(s *set) {
	for _, p := range s.policies {
		c.choose(p)
	}
}

func (c *Compiler) unmatchSubjects(k *kind) {
	for _, m := range k.subject {
		m.set.subject.kinds = without1(m.set.subject.kinds, k)
		if len(m.set.subject.kinds) == 0 {
			for _, p := range m.set.policies {
				c.unchoose(p)
			}
		}
	}
	k.subject = nil
	c.mark(k)
}

// mark says that a kind's class may be another than it was.
func (c *Compiler) mark(k *kind) {
	if !k.stale {
		k.stale = true
		c.stale = append(c.stale, k)
	}
}

// settle does what changes have put off: classes, and the order of policies.
func (c *Compiler) settle() {
	for _, k := range c.stale {
		k.stale = false
		c.classify(k)
	}
	c.stale = nil
	for _, s := range c.idle {
		if len(s.policies) == 0 && s.refs == 0 {
			delete(c.sets, s.text)
		}
	}
	c.idle = nil
	if c.restless {
		c.restless, c.last = false, nil
		c.chosen.order()
	}
}

// chosen are policies, in their order once settled.
type chosen struct {
	list    []*entry
	ordered int // so many of them are, the others came since
}

// order puts them in their order: those that came are at the end of the list.
func (c *chosen) order() {
	gone := func(e *entry) bool {
		e.listed = e.chosen
		return !e.chosen
	}
	came := slices.DeleteFunc(slices.Clone(c.list[c.ordered:]), gone)
	c.list = slices.DeleteFunc(c.list[:c.ordered], gone)
	compare := func(a, b *entry) int { return comparePrecedence(&a.Policy, &b.Policy) }
	slices.SortFunc(came, compare)
	at := len(c.list)
	c.list = append(c.list, came...)
	for end := len(c.list) - 1; len(came) > 0; end-- {
		last := came[len(came)-1]
		if at > 0 && compare(c.list[at-1], last) > 0 {
			at--
			c.list[end] = c.list[at]
			continue
		}
		c.list[end], came = last, came[:len(came)-1]
	}
	c.ordered = len(c.list)
}

// classify puts a kind into its class.
func (c *Compiler) classify(k *kind) {
	h, has := c.classHash(k)
	if k.class == nil && !has || k.class != nil && has && k.class.hash == h {
		return
	}
	if cl := k.class; cl != nil {
		c.changed(k, k.members...)
		k.class = nil
		cl.kinds = without1(cl.kinds, k)
		if len(cl.kinds) == 0 {
			c.last = nil
			delete(c.classes, cl.hash)
			for _, m := range cl.subject {
				m.set.subject.remove(cl)
			}
			for _, m := range cl.peer {
				m.set.peer.remove(cl)
			}
		}
	}
	if !has {
		return
	}
	cl, ok := c.classes[h]
	if !ok {
		c.last = nil
		cl = &class{hash: h, subject: slices.Clone(k.subject), peer: slices.Clone(k.peer)}
		c.classes[h] = cl
		for _, m := range cl.subject {
			m.set.subject.add(cl, m.t)
		}
		for _, m := range cl.peer {
			m.set.peer.add(cl, m.t)
		}
	}
	cl.kinds = append(cl.kinds, k)
	k.class = cl
	c.changed(k, k.members...)
}

// classHash is what tells a kind's class from others: the sets that select it, and what it calls the
// ports that rules name. Sums do not depend on the order.
func (c *Compiler) classHash(k *kind) (h uint64, has bool) {
	for _, m := range k.subject {
		h += mix(m.set.hash + uint64(m.t))
	}
	for _, m := range k.peer {
		h += mix(m.set.hash + 16 + uint64(m.t))
	}
	if !k.Known {
		h += mix(32)
	}
	if len(k.Ports) > 0 && len(c.names) > 0 {
		for name, p := range k.Ports {
			if c.names[name] > 0 {
				h += mix(hash(name) + uint64(p.Proto)<<16 + uint64(p.Port))
			}
		}
	}
	return h, len(k.subject)+len(k.peer) > 0
}

// mix spreads the bits of a number (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return mix(h.Sum64())
}

// PutPolicy adds a policy, or what it is now.
func (c *Compiler) PutPolicy(p Policy) { c.putPolicy(&p) }

func (c *Compiler) putPolicy(p *Policy) *entry {
	if old, ok := c.policies[p.Key]; ok {
		if old.equal(p) {
			return old
		}
		c.DeletePolicy(p.Key)
	}
	e := &entry{Policy: *p}
	c.policies[p.Key] = e
	s := c.set(p.Subject)
	e.subject = s
	s.policies = append(s.policies, e)
	switch {
	case len(s.policies) == 1:
		c.subjects[s.Network] = append(c.subjects[s.Network], s)
		c.each(s, func(k *kind, t truth) {
			if k.local > 0 {
				c.selectSubject(s, k, t)
			}
		})
		if len(s.subject.kinds) > 0 {
			c.choose(e)
		}
	case len(s.subject.kinds) > 0:
		c.choose(e)
	}
	return e
}

// DeletePolicy removes a policy.
func (c *Compiler) DeletePolicy(key Key) {
	e, ok := c.policies[key]
	if !ok {
		return
	}
	delete(c.policies, key)
	s := e.subject
	if e.chosen {
		c.unchoose(e)
	}
	if s.policies = without1(s.policies, e); len(s.policies) > 0 {
		return
	}
	c.subjects[s.Network] = without1(c.subjects[s.Network], s)
	for _, k := range s.subject.kinds {
		k.subject = slices.DeleteFunc(k.subject, func(m membership) bool { return m.set == s })
		c.mark(k)
	}
	s.subject.kinds = nil
	c.idle = append(c.idle, s)
}

// set is a Set's set.
func (c *Compiler) set(of Set) *set {
	c.text = of.append(c.text[:0])
	s, ok := c.sets[string(c.text)]
	if !ok {
		text := string(c.text)
		s = &set{Set: of, text: text, hash: hash(text)}
		if of.Network == "" {
			s.selector = c.networkSelector(of.Networks)
		}
		c.sets[text] = s
	}
	return s
}

// networkSelector is a selector's. There are few, and they stay.
func (c *Compiler) networkSelector(s Selector) *networkSelector {
	text := string(s.text(nil))
	sel, ok := c.selectors[text]
	if !ok {
		sel = &networkSelector{s, map[*network]truth{}}
		c.selectors[text] = sel
		for _, n := range c.networks {
			sel.match(n)
		}
	}
	return sel
}

func (s Selector) text(b []byte) []byte {
	for _, r := range s {
		b = append(appendText(b, r.Key), byte(r.Op))
		for _, v := range r.Values {
			b = appendText(b, v)
		}
		b = append(b, 0)
	}
	return b
}

func (s Set) append(b []byte) []byte {
	b = appendText(b, s.Network)
	b = append(s.Networks.text(b), 0)
	return s.Endpoints.text(b)
}

// choose takes a policy among those with local subjects: what its rules name is matched from now on.
func (c *Compiler) choose(e *entry) {
	e.chosen, c.restless = true, true
	if !e.listed {
		e.listed = true
		c.chosen.list = append(c.chosen.list, e)
	}
	for _, d := range []Direction{Ingress, Egress} {
		for i := range e.Policy.rules(d) {
			r := c.prepare(e, d, i)
			e.rules[d] = append(e.rules[d], r)
			for _, s := range r.peers {
				c.refer(s)
			}
			for _, p := range r.Ports {
				c.count(p.Name, 1)
			}
		}
	}
}

func (c *Compiler) unchoose(e *entry) {
	e.chosen, c.restless = false, true
	for _, d := range []Direction{Ingress, Egress} {
		for _, r := range e.rules[d] {
			for _, s := range r.peers {
				c.unrefer(s)
			}
			for _, p := range r.Ports {
				c.count(p.Name, -1)
			}
		}
		e.rules[d] = nil
	}
}

// count counts the rules that name a port. By the names that count, classes differ.
func (c *Compiler) count(name string, by int) {
	if name == "" {
		return
	}
	before := c.names[name]
	if c.names[name] += by; before+by == 0 {
		delete(c.names, name)
	}
	if before == 0 || before+by == 0 {
		for k := range c.ported {
			c.mark(k)
		}
	}
}

// refer says that a chosen policy's rule has a set among its peers.
func (c *Compiler) refer(s *set) {
	if s.refs++; s.refs > 1 {
		return
	}
	c.peers[s.Network] = append(c.peers[s.Network], s)
	c.each(s, func(k *kind, t truth) { c.selectPeer(s, k, t) })
}

func (c *Compiler) unrefer(s *set) {
	if s.refs--; s.refs > 0 {
		return
	}
	c.peers[s.Network] = without1(c.peers[s.Network], s)
	for _, k := range s.peer.kinds {
		k.peer = slices.DeleteFunc(k.peer, func(m membership) bool { return m.set == s })
		c.mark(k)
	}
	s.peer.kinds = nil
	c.idle = append(c.idle, s)
}

// prepared is a rule of a chosen policy.
type prepared struct {
	*Rule
	peers   []*set
	blocks  []netip.Prefix
	domains []Domain
	ranges  []PortRange // of ports without names
	named   bool        // and there are some with
	action  Action      // the rule's, here so that no other memory is looked at for it
	text    string      // what makes it this rule, of whatever policy
	hash    uint64      // of the text
	label   string
}

func (c *Compiler) prepare(e *entry, d Direction, i int) *prepared {
	r := &prepared{Rule: &e.Policy.rules(d)[i], action: e.Policy.rules(d)[i].Action, label: e.ref(d, i).String()}
	b := append(make([]byte, 0, 128), byte(d))
	b = appendText(b, e.subject.text)
	if e.Kind.tiered() { // its place counts
		if e.Kind != ClusterNetworkPolicy {
			b = appendText(appendText(append(b, byte(e.Kind)), e.Network), e.Text)
		}
		b = append(appendText(b, e.Name), byte(i>>8), byte(i))
	}
	if !r.AnyPeer {
		var texts []string
		for _, s := range r.Peers {
			if set := c.set(s); !slices.Contains(r.peers, set) {
				r.peers = append(r.peers, set)
				texts = append(texts, set.text)
			}
		}
		slices.Sort(texts)
		b = appendText(b, strings.Join(texts, "\x00"))
		for _, block := range r.Blocks {
			r.blocks = append(r.blocks, block.prefixes()...)
		}
		slices.SortFunc(r.blocks, comparePrefix)
		r.blocks = slices.Compact(r.blocks)
		for _, p := range r.blocks {
			b = appendText(b, p.String())
		}
		r.domains = slices.Compact(slices.Sorted(slices.Values(r.Domains)))
		for _, d := range r.domains { // unlike any prefix
			b = appendText(b, "by name "+string(d))
		}
	}
	b = append(b, 1)
	if !r.AnyPort {
		var names []string
		for _, p := range r.Ports {
			if p.Name != "" {
				r.named = true
				names = append(names, string(append([]byte{p.Proto}, p.Name...)))
				continue
			}
			r.ranges = append(r.ranges, PortRange{p.Proto, p.From, p.To})
		}
		r.ranges = compactPorts(r.ranges)
		for _, p := range r.ranges {
			b = append(b, p.Proto, byte(p.From>>8), byte(p.From), byte(p.To>>8), byte(p.To))
		}
		slices.Sort(names)
		for _, n := range names {
			b = appendText(append(b, 0), n)
		}
		b = append(b, 2)
	}
	r.text = string(b)
	r.hash = hash(r.text)
	return r
}
