// Package learn makes policies of connections that were seen: those that let just these pass.
package learn

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/plain"
)

// End is an end of a connection. Container says that it was one's when the connection was seen, and Name its name then.
type End struct {
	Addr      netip.Addr
	Container bool
	Name      string
}

// Connection is one that was seen. Failed says why nothing came of it, "": something did.
type Connection struct {
	From, To End
	Proto    uint8
	Port     uint16
	Failed   string
	Open     bool // it had not ended
}

// Seen is what there is to learn from.
type Seen struct {
	Network     string
	Endpoints   []policy.Endpoint // of the cluster
	Connections []Connection
	// Host reports whether an address is one by which hosts speak to containers: those are let in whatever policies
	// say, and asked for names.
	Host func(netip.Addr) bool
}

// Learned are policies, and what they leave out.
type Learned struct {
	Policies []policy.Policy
	Seen     int // connections that they let through
	Notes    []string
}

// Of makes a NetworkPolicy for each service of Compose on the network, and each container of none, that had a
// connection. It lets through what was seen, and isolates in both directions.
func Of(s Seen) Learned {
	l := &learner{Seen: s, at: HoldersOf(s.Endpoints), groups: map[string]*group{}, notes: map[string]bool{}}
	out := Learned{}
	for _, c := range s.Connections {
		if l.take(c) {
			out.Seen++
		}
	}
	for _, e := range s.Endpoints {
		if title, _ := owner(e); e.Network == s.Network && l.groups[title] == nil {
			l.note("no connection of %s was seen: no policy is written for it, and none here narrows it", title)
		}
	}
	for _, title := range slices.Sorted(maps.Keys(l.groups)) {
		g := l.groups[title]
		out.Policies = append(out.Policies, policy.Policy{
			Key:             policy.Key{Kind: policy.NetworkPolicy, Network: s.Network, Name: plain.PolicyName("learned-" + title)},
			Subject:         policy.Set{Network: s.Network, Endpoints: g.selector},
			IsolatesIngress: true, IsolatesEgress: true, Ingress: g.in.rules(), Egress: g.out.rules(),
		})
	}
	out.Notes = slices.Sorted(maps.Keys(l.notes))
	return out
}

type learner struct {
	Seen
	at     Holders
	groups map[string]*group
	notes  map[string]bool
}

// group are the containers that one policy is about.
type group struct {
	selector policy.Selector
	in, out  peers
}

// peers are those of a direction, by a text of each, and the ports.
type peers map[string]*peer

type peer struct {
	set   *policy.Set // nil: an address outside
	addr  netip.Addr
	ports map[policy.Port]bool
}

func (l *learner) note(format string, args ...any) { l.notes[fmt.Sprintf(format, args...)] = true }

// take adds a connection to the policies of its ends, if it is one of the network's that can be let through.
func (l *learner) take(c Connection) bool {
	from, gone1 := l.at.Of(c.From)
	to, gone2 := l.at.Of(c.To)
	if from.Network != l.Network && to.Network != l.Network {
		return false
	}
	what := fmt.Sprintf("%s to %s", l.words(from, c.From), l.words(to, c.To))
	switch {
	case gone1 || gone2:
		l.note("left out: %s, of which one has gone, or has other labels now", what)
		return false
	case from.ID != "" && !from.Known || to.ID != "" && !to.Known:
		l.note("left out: %s, whose labels are not known yet", what)
		return false
	case c.Proto == policy.ICMP || c.Proto == policy.ICMPv6:
		l.note("left out: pings of %s; a NetworkPolicy lets no pings through but with all else", what)
		return false
	case c.Proto != policy.TCP && c.Proto != policy.UDP && c.Proto != policy.SCTP || c.Port == 0:
		l.note("left out: protocol %d of %s, which a NetworkPolicy cannot name", c.Proto, what)
		return false
	case c.Failed != "":
		l.note("left out: %s at port %d, which was %s", what, c.Port, c.Failed)
		return false
	}
	port := policy.Port{Proto: c.Proto, From: c.Port, To: c.Port}
	some := false
	if to.Network == l.Network && (from.ID != "" || !l.Host(c.From.Addr)) {
		l.group(to).in.add(l.peer(from, c.From.Addr), port)
		some = true
	}
	if from.Network == l.Network && (to.ID != "" || c.Port != ResolverPort || !l.Host(c.To.Addr)) {
		l.group(from).out.add(l.peer(to, c.To.Addr), port)
		some = true
	}
	return some
}

// ResolverPort is that of a host's resolver, which containers may always ask.
const ResolverPort = 53

// Holders are endpoints by their addresses.
type Holders map[netip.Addr]policy.Endpoint

// HoldersOf are those of a list.
func HoldersOf(list []policy.Endpoint) Holders {
	h := Holders{}
	for _, e := range list {
		for _, a := range e.Addrs {
			h[a] = e
		}
	}
	return h
}

// Of is the endpoint that an end is of now, if it is a container's. gone: it was another one's.
func (h Holders) Of(e End) (now policy.Endpoint, gone bool) {
	now, there := h[e.Addr]
	if !there {
		return policy.Endpoint{}, e.Container
	}
	if now.Known && e.Name != "" && now.Labels[plain.NameLabel] != e.Name {
		return now, true
	}
	return now, false
}

func (l *learner) words(e policy.Endpoint, at End) string {
	if e.ID == "" {
		return at.Addr.String()
	}
	title, _ := owner(e)
	return title
}

// owner is what a policy is about to be about an endpoint: its service of Compose, or the container.
func owner(e policy.Endpoint) (title string, s policy.Selector) {
	is := func(key string) policy.Requirement {
		return policy.Requirement{Key: key, Op: policy.In, Values: []string{e.Labels[key]}}
	}
	if p, s := e.Labels[plain.ProjectLabel], e.Labels[plain.ServiceLabel]; p != "" && s != "" {
		return p + "-" + s, policy.Selector{is(plain.ProjectLabel), is(plain.ServiceLabel)}
	}
	if e.Labels[plain.NameLabel] == "" {
		return "a container without a name", policy.Selector{is(plain.NameLabel)}
	}
	return e.Labels[plain.NameLabel], policy.Selector{is(plain.NameLabel)}
}

func (l *learner) group(e policy.Endpoint) *group {
	title, selector := owner(e)
	if l.groups[title] == nil {
		l.groups[title] = &group{selector: selector, in: peers{}, out: peers{}}
	}
	return l.groups[title]
}

// peer is an end as rules name it.
func (l *learner) peer(e policy.Endpoint, a netip.Addr) *peer {
	if e.ID == "" {
		return &peer{addr: a}
	}
	_, selector := owner(e)
	set := &policy.Set{Network: l.Network, Endpoints: selector}
	if e.Network != l.Network { // one that it is joined with, or global
		set.Network = ""
		set.Networks = policy.Selector{{Key: policy.MetadataName, Op: policy.In, Values: []string{e.Network}}}
	}
	return &peer{set: set}
}

func (p peers) add(one *peer, port policy.Port) {
	key := one.addr.String()
	if one.set != nil {
		key = fmt.Sprint(*one.set)
	}
	if p[key] == nil {
		p[key], one.ports = one, map[policy.Port]bool{}
	}
	p[key].ports[port] = true
}

// rules are one for all peers of the same ports.
func (p peers) rules() (list []policy.Rule) {
	at := map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(p)) {
		one := p[key]
		ports := slices.SortedFunc(maps.Keys(one.ports), func(a, b policy.Port) int {
			return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.From, b.From))
		})
		i, there := at[fmt.Sprint(ports)]
		if !there {
			i = len(list)
			at[fmt.Sprint(ports)] = i
			list = append(list, policy.Rule{Action: policy.Accept, Ports: ports})
		}
		if one.set != nil {
			list[i].Peers = append(list[i].Peers, *one.set)
		} else {
			list[i].Blocks = append(list[i].Blocks, policy.Block{Prefix: netip.PrefixFrom(one.addr, one.addr.BitLen())})
		}
	}
	return list
}

// Comment is notes as comments of YAML, a line each, of what can be printed alone: they name what containers are called
// by whoever made them, and YAML takes U+0085 and U+2028, too, for the end of a line and of a comment.
func Comment(notes []string) string {
	var b strings.Builder
	for _, n := range notes {
		b.WriteString("# " + strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return ' '
			}
			return r
		}, n) + "\n")
	}
	return b.String()
}
