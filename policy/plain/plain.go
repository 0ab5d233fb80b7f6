// Package plain makes policies of what who never saw Kubernetes writes: labels of a container
// (grapevine.from, grapevine.to), an option of a network (isolate) and arguments of a command. What
// comes of it are policies like others, for the one compiler and the one evaluator. It is pure.
//
// A label narrows its own container, and an option its network: neither opens what a policy denies.
// So both are policies of the tier Admin, behind all of its ClusterNetworkPolicies: what a label
// lets through passes on to the NetworkPolicies, and all else ends there.
package plain

import (
	"cmp"
	"slices"

	"github.com/grapevine-net/grapevine/policy"
)

// The places behind all ClusterNetworkPolicies of the tier, which have priorities up to 1000. What
// isolation denies no label passes on. FirewallPriority is that of package firewall, which knows of labels.
const (
	isolatePriority = 1001 + iota
	FirewallPriority
	labelPriority
)

// Labels of Docker's and of package driver.
const (
	ProjectLabel = "com.docker.compose.project"
	ServiceLabel = "com.docker.compose.service"
	NameLabel    = "grapevine.io/name"
)

// Asks reports whether labels of a container say who may talk to whom.
func Asks(labels map[string]string) bool {
	_, from := labels[FromLabel]
	_, to := labels[ToLabel]
	return from || to
}

// Maker makes policies of one world after the other. It makes what it made before no second time. The
// zero value has made none.
type Maker struct {
	isolated map[string]policy.Policy
	labelled map[group]policy.Policy
}

// group are containers of one label on a network: those of a Compose service, or of one name.
type group struct {
	network, label, text string
	owner
}

// owner is whom a label is of. What its parts mean depends on it.
type owner struct{ project, service, name string }

func ownerOf(labels map[string]string) owner {
	o := owner{project: labels[ProjectLabel], service: labels[ServiceLabel]}
	if o.service == "" {
		o.name = labels[NameLabel]
	}
	return o
}

// Policies are those of the networks that are isolated, and of all labels. On the networks labelled containers had such
// labels once: there one whose labels are not known may have some.
func (m *Maker) Policies(isolated, labelled []string, endpoints []policy.Endpoint) (list []policy.Policy) {
	before := *m
	*m = Maker{map[string]policy.Policy{}, map[group]policy.Policy{}}
	for _, name := range isolated {
		p, made := before.isolated[name]
		if !made {
			p = isolation(name)
		}
		m.isolated[name] = p
		list = append(list, p)
	}
	for _, name := range labelled {
		list = append(list, unread(name))
	}
	for i := range endpoints {
		e := &endpoints[i]
		for _, label := range [2]string{FromLabel, ToLabel} {
			text, there := e.Labels[label]
			if !there {
				continue
			}
			g := group{e.Network, label, text, ownerOf(e.Labels)}
			if _, again := m.labelled[g]; again {
				continue
			}
			p, made := before.labelled[g]
			if !made {
				p = g.policy()
			}
			m.labelled[g] = p
			list = append(list, p)
		}
	}
	return list
}

// isolation lets members of a network reach those that are marked open, and be reached by them. Others than
// members are not asked.
func isolation(network string) policy.Policy {
	member := policy.Set{Network: network, Endpoints: policy.Selector{{Key: OpenLabel, Op: policy.NotIn, Values: []string{"true"}}}}
	deny := []policy.Rule{{Name: "members reach only who is marked " + OpenLabel + "=true", Action: policy.Drop, Peers: []policy.Set{member}, AnyPort: true}}
	return policy.Policy{
		Key:  policy.Key{Kind: policy.Isolate, Network: network, Name: network},
		Tier: policy.Admin, Priority: isolatePriority, Subject: member, Ingress: deny, Egress: deny,
	}
}

// unread denies everything to those on a network whose labels are not known: nobody else has a label and has it not.
func unread(network string) policy.Policy {
	nobody := policy.Selector{{Key: FromLabel, Op: policy.Exists}, isnt(FromLabel)}
	deny := []policy.Rule{{Name: "they are not known yet", Action: policy.Drop, AnyPeer: true, AnyPort: true}}
	return policy.Policy{
		Key:  policy.Key{Kind: policy.Label, Network: network, Name: "grapevine.from or grapevine.to, perhaps"},
		Tier: policy.Admin, Priority: labelPriority, Subject: policy.Set{Network: network, Endpoints: nobody}, Ingress: deny, Egress: deny,
	}
}

// policy is what a label says: its parts, and behind them that there is nobody else.
func (g group) policy() policy.Policy {
	p := policy.Policy{
		Key:  policy.Key{Kind: policy.Label, Network: g.network, Name: g.label + " of " + cmp.Or(g.service, g.name), Text: g.text + "\x00" + g.project},
		Tier: policy.Admin, Priority: labelPriority,
		Subject: policy.Set{Network: g.network, Endpoints: append(g.selector(), is(g.label, g.text))},
	}
	parts, err := parseLabel(g.label, g.text)
	if err != nil {
		parts = nil
	}
	var rules []policy.Rule
	for _, part := range parts {
		r := part.rule(policy.Pass, g.network, g.owner)
		if part.domain != "" && g.label == ToLabel {
			r.Domains = []policy.Domain{part.domain}
		}
		rules = append(rules, r)
	}
	last := policy.Rule{Name: "nobody else", Action: policy.Drop, AnyPeer: true, AnyPort: true}
	if err != nil {
		last.Name = "it cannot be read: " + err.Error()
	}
	rules = append(rules, last)
	if g.label == FromLabel {
		p.Ingress = rules
	} else {
		p.Egress = rules
	}
	return p
}

func is(key, value string) policy.Requirement {
	return policy.Requirement{Key: key, Op: policy.In, Values: []string{value}}
}

func isnt(key string) policy.Requirement {
	return policy.Requirement{Key: key, Op: policy.DoesNotExist}
}

// selector selects who has this owner.
func (o owner) selector() (s policy.Selector) {
	for _, l := range [2][2]string{{ProjectLabel, o.project}, {ServiceLabel, o.service}} {
		if l[1] != "" {
			s = append(s, is(l[0], l[1]))
		} else {
			s = append(s, isnt(l[0]))
		}
	}
	if o.name != "" || o.service == "" {
		s = append(s, is(NameLabel, o.name))
	}
	return s
}

// rule lets a part through, as what is on a network and has this owner writes it.
func (p Part) rule(action policy.Action, network string, by owner) policy.Rule {
	r := policy.Rule{Name: p.Text, Action: action, AnyPeer: p.any, Blocks: slices.Clone(p.blocks), AnyPort: len(p.ports) == 0, Ports: p.ports}
	if p.network != "" {
		network, by = p.network, owner{}
	}
	switch {
	case p.key != "":
		r.Peers = []policy.Set{{Network: network, Endpoints: policy.Selector{is(p.key, p.value)}}}
	case p.name != "":
		r.Peers = named(network, p.name, by)
	}
	return r
}

// named are those that a name means: the Compose service in the project of who says it, and containers of that
// name that are in no project. Who is in no project himself, or speaks of another network, means any service and container.
func named(network, name string, by owner) []policy.Set {
	service, container := policy.Selector{is(ServiceLabel, name)}, policy.Selector{is(NameLabel, name)}
	if by.project != "" {
		service, container = append(service, is(ProjectLabel, by.project)), append(container, isnt(ProjectLabel))
	}
	return []policy.Set{{Network: network, Endpoints: service}, {Network: network, Endpoints: container}}
}

// Awaited denies everything to those that have a label with the value "true": they have started before anybody could
// say which labels they have.
func Awaited(label string) policy.Policy {
	those := policy.Selector{{Key: label, Op: policy.In, Values: []string{"true"}}}
	deny := []policy.Rule{{Name: "Docker has not told its labels yet", Action: policy.Drop, AnyPeer: true, AnyPort: true}}
	return policy.Policy{
		Key:  policy.Key{Kind: policy.Label, Name: "grapevine.from or grapevine.to, perhaps"},
		Tier: policy.Admin, Priority: labelPriority, Subject: policy.Set{Endpoints: those}, Ingress: deny, Egress: deny,
	}
}
