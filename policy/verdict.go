package policy

import (
	"fmt"
	"net/netip"
	"slices"
)

// Peer is one end of a connection: an endpoint by its ID, or an address. An address that an endpoint
// of the world has means that endpoint; an endpoint without an address, its first one of the other
// end's family.
type Peer struct {
	Endpoint string
	Addr     netip.Addr
	// Name, in its canonical form, is instead of an address: whatever is told to who asks for it.
	Name string
}

// Verdict is what policies say about a connection, and why.
type Verdict struct {
	Allowed bool // in both directions
	Egress  Decision
	Ingress Decision
}

// Decision is that of one direction, at the end of it that is an endpoint.
type Decision struct {
	Allowed bool
	Reason  Reason
	// Rules are those that decided: one of a tier, or all of NetworkPolicies that accept it. Where
	// it is denied because nothing accepts it, they are the policies that isolate the endpoint, each
	// with Rule -1.
	Rules []Ref
	// Passed are the Pass rules by which it came there.
	Passed []Ref
	// Unknown says what is not known and had a part in it, a line each.
	Unknown []string
	// Answers are those by which a rule of names accepted.
	Answers []Answer
}

// Reason is what a decision rests on.
type Reason uint8

// The reasons.
const (
	Outside    Reason = iota + 1 // this end is no endpoint: nothing to decide
	Unisolated                   // no policy isolates the endpoint, and no rule of a tier matches
	ByRule                       // Rules decided
	Isolated                     // Rules isolate the endpoint, and nothing accepts
	PassUnsure                   // whether the last of Rules, a Pass, applies is not known
)

// Ref names a rule of a policy.
type Ref struct {
	Policy          Key
	Author, Version string
	Direction       Direction
	Rule            int // its place among those of its direction; -1: the policy itself
	Name            string
	Action          Action
}

func (r Ref) String() string {
	if k := r.Policy.Kind; k == Isolate || k == Label {
		return r.Policy.String() + ": " + r.Name
	}
	if r.Policy.Kind == EgressNetworkPolicy { // its rules are in other places than they were written at
		return r.Policy.String() + " " + r.Name
	}
	s := r.Policy.String() + " " + r.Direction.String()
	if r.Rule >= 0 {
		s += fmt.Sprintf("[%d]", r.Rule)
	}
	if r.Name != "" {
		s += " " + r.Name
	}
	return s
}

// ref names a rule of the policy, or the policy itself as what isolates.
func (p *Policy) ref(d Direction, i int) Ref {
	r := Ref{Policy: p.Key, Author: p.Author, Version: p.Version, Direction: d, Rule: i, Action: Drop}
	if i >= 0 {
		r.Name, r.Action = p.rules(d)[i].Name, p.rules(d)[i].Action
	}
	return r
}

// Verdict says whether a connection may be, to a port of a protocol (of ICMP: its type). It asks
// nothing but policies: not whether the networks are one, nor whether anything listens.
func (w World) Verdict(from, to Peer, proto uint8, port uint16) Verdict {
	j := judge{world: &w, networks: knownNetworks(w.Networks), proto: proto, port: port}
	source, sourceAddr := w.find(from)
	dest, destAddr := w.find(to)
	sourceAddr, destAddr = oneFamily(from, to, source, dest, sourceAddr, destAddr)
	j.name = to.Name
	v := Verdict{
		Egress:  j.decide(Egress, source, dest, destAddr, dest),
		Ingress: j.decide(Ingress, dest, source, sourceAddr, dest),
	}
	v.Allowed = v.Egress.Allowed && v.Ingress.Allowed
	return v
}

// find is the endpoint of a peer, or nil, and its address.
func (w *World) find(p Peer) (*Endpoint, netip.Addr) {
	for i := range w.Endpoints {
		e := &w.Endpoints[i]
		if p.Endpoint != "" && e.ID == p.Endpoint {
			if !p.Addr.IsValid() && len(e.Addrs) > 0 {
				return e, e.Addrs[0]
			}
			return e, p.Addr
		}
		if p.Endpoint == "" && slices.Contains(e.Addrs, p.Addr) {
			return e, p.Addr
		}
	}
	for _, r := range w.Ranges {
		if p.Endpoint == "" && r.Prefix.Contains(p.Addr) {
			return &Endpoint{ID: p.Addr.String(), Network: r.Network}, p.Addr
		}
	}
	return nil, p.Addr
}

// oneFamily chooses addresses of one family for ends that are endpoints without one.
func oneFamily(from, to Peer, source, dest *Endpoint, a, b netip.Addr) (netip.Addr, netip.Addr) {
	if a.Is4() == b.Is4() {
		return a, b
	}
	if c, ok := source.like(b); ok && !from.Addr.IsValid() {
		return c, b
	}
	if c, ok := dest.like(a); ok && !to.Addr.IsValid() {
		return a, c
	}
	return a, b
}

// like is an address of the endpoint that is of the same family as another one.
func (e *Endpoint) like(other netip.Addr) (netip.Addr, bool) {
	if e == nil {
		return other, false
	}
	for _, a := range e.Addrs {
		if a.Is4() == other.Is4() {
			return a, true
		}
	}
	return other, false
}

// judge decides about one connection.
type judge struct {
	world    *World
	networks known
	proto    uint8
	port     uint16
	name     string // of the destination, which has no address then
	untold   bool   // an answer had a say that another host knows of
	unnamed  bool   // an address of the name had a say
}

// decide goes through tiers and policies of one direction. dest is the connection's destination.
func (j *judge) decide(d Direction, subject, peer *Endpoint, peerAddr netip.Addr, dest *Endpoint) Decision {
	if subject == nil {
		return Decision{Allowed: true, Reason: Outside}
	}
	decision := Decision{}
	match := func(p *Policy, r *Rule) truth {
		// Who is meant by a name is not asked what its ports are called: the port of a name has a number.
		named := min(j.nameMatches(r, d, subject, peerAddr), j.portMatches(r, nil))
		return min(p.Subject.matches(subject, j.networks), max(min(j.peerMatches(r, peer, peerAddr), j.portMatches(r, dest)), named))
	}
	note := func(t truth) {
		if t == maybe {
			decision.noteUnknown(subject, j.networks)
			decision.noteUnknown(peer, j.networks)
			if untold := "what " + subject.ID + " was told by name"; j.untold && !slices.Contains(decision.Unknown, untold) {
				decision.Unknown = append(decision.Unknown, untold)
			}
			if unnamed := "which addresses " + j.name + " has"; j.unnamed && !slices.Contains(decision.Unknown, unnamed) {
				decision.Unknown = append(decision.Unknown, unnamed)
			}
		}
	}
	// tier says whether a rule of the tier has decided.
	tier := func(t Tier) bool {
		for _, p := range j.world.tier(t) {
			for i := range p.rules(d) {
				r := &p.rules(d)[i]
				m := match(p, r)
				note(m)
				switch {
				case m == no, m == maybe && r.Action == Accept:
				case r.Action == Accept:
					decision.Allowed, decision.Reason, decision.Rules = true, ByRule, []Ref{p.ref(d, i)}
					decision.Answers = append(decision.Answers, j.answers(r, subject, peerAddr)...)
					return true
				case r.Action == Pass && m == maybe && t == Admin:
					decision.Reason, decision.Rules = PassUnsure, []Ref{p.ref(d, i)}
					return true
				case r.Action == Pass && m == yes:
					decision.Passed = append(decision.Passed, p.ref(d, i))
					decision.Answers = append(decision.Answers, j.answers(r, subject, peerAddr)...)
					return false
				case r.Action == Drop || r.Action == Reject:
					ref := p.ref(d, i)
					if m == maybe { // who may not be meant is not told
						ref.Action = Drop
					}
					decision.Reason, decision.Rules = ByRule, []Ref{ref}
					return true
				}
			}
		}
		return false
	}
	if j.untold, j.unnamed = false, false; tier(Admin) {
		return decision
	}
	var isolating, accepting []Ref
	for i := range j.world.Policies {
		p := &j.world.Policies[i]
		if !p.isolates(d) {
			continue
		}
		selected := p.Subject.matches(subject, j.networks)
		if selected == no {
			continue
		}
		note(selected)
		isolating = append(isolating, p.ref(d, -1))
		for i := range p.rules(d) {
			m := match(p, &p.rules(d)[i])
			note(m)
			if m == yes {
				accepting = append(accepting, p.ref(d, i))
				decision.Answers = append(decision.Answers, j.answers(&p.rules(d)[i], subject, peerAddr)...)
			}
		}
	}
	switch {
	case len(accepting) > 0:
		decision.Allowed, decision.Reason, decision.Rules = true, ByRule, accepting
	case len(isolating) > 0:
		decision.Reason, decision.Rules = Isolated, isolating
	case tier(Baseline):
	default:
		decision.Allowed, decision.Reason = true, Unisolated
	}
	return decision
}

// tier are the policies of a tier, in their order.
func (w *World) tier(t Tier) (list []*Policy) {
	for i := range w.Policies {
		if p := &w.Policies[i]; p.Kind.tiered() && p.Tier == t {
			list = append(list, p)
		}
	}
	slices.SortStableFunc(list, comparePrecedence)
	return list
}

// comparePrecedence puts the policy of a tier first that has the say. At one priority that is for
// the API to choose: here by name, so that it is the same on all hosts.
func comparePrecedence(a, b *Policy) int {
	if a.Priority != b.Priority {
		return a.Priority - b.Priority
	}
	return a.compare(b.Key)
}

func (j *judge) peerMatches(r *Rule, peer *Endpoint, addr netip.Addr) truth {
	if r.AnyPeer {
		return yes
	}
	result := no
	for _, b := range r.Blocks {
		if b.contains(addr) {
			return yes
		}
	}
	for i := range r.Peers {
		if peer != nil {
			result = max(result, r.Peers[i].matches(peer, j.networks))
		}
	}
	return result
}

// nameMatches says whether a peer is one by what the subject was told when it asked for a name.
func (j *judge) nameMatches(r *Rule, d Direction, subject *Endpoint, addr netip.Addr) truth {
	switch {
	case d == Ingress || r.AnyPeer:
		return no
	case j.name != "" && r.matchesName(j.name):
		return yes
	case j.name != "" && len(r.Blocks) > 0 && !r.Within:
		j.unnamed = true
		return maybe
	case j.name != "" || len(r.Domains) == 0:
		return no
	case !subject.Local:
		j.untold = true
		return maybe
	case len(j.answers(r, subject, addr)) > 0:
		return yes
	}
	return no
}

// answers are those by which an address is a peer of a rule.
func (j *judge) answers(r *Rule, subject *Endpoint, addr netip.Addr) (list []Answer) {
	for _, a := range j.world.Answers {
		if a.Endpoint == subject.ID && a.Addr == addr && !a.Past && r.matchesName(a.Name) {
			list = append(list, a)
		}
	}
	return list
}

func (j *judge) portMatches(r *Rule, dest *Endpoint) truth {
	if r.AnyPort {
		return yes
	}
	result := no
	for i := range r.Ports {
		if ports, t := r.Ports[i].resolved(dest); ports.contains(j.proto, j.port) {
			result = max(result, t)
		}
	}
	return result
}

// noteUnknown adds what is not known of an endpoint.
func (d *Decision) noteUnknown(e *Endpoint, networks known) {
	if e == nil {
		return
	}
	add := func(s string) {
		if !slices.Contains(d.Unknown, s) {
			d.Unknown = append(d.Unknown, s)
		}
	}
	if !e.Known {
		add("the labels of " + e.ID)
	}
	if _, ok := networks[e.Network]; !ok {
		add("the labels of the network " + e.Network)
	}
}
