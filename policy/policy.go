package policy

import (
	"cmp"
	"net/netip"
	"slices"
)

// World is what policies are about, and the policies.
type World struct {
	Networks  []Network
	Endpoints []Endpoint
	// Ranges hold endpoints of which nothing else is known yet: an address in one that is no
	// endpoint's may be an endpoint with any labels.
	Ranges   []Range
	Policies []Policy
	// Answers are what local endpoints were told by name. Of others nothing is known here.
	Answers []Answer
}

// Network stands for Kubernetes' namespace. One that endpoints name and that is missing has labels
// that are not known.
type Network struct {
	Name   string
	Labels map[string]string // kubernetes.io/metadata.name is added to them
}

// MetadataName is the label with its name that each network has.
const MetadataName = "kubernetes.io/metadata.name"

// Endpoint stands for Kubernetes' pod.
type Endpoint struct {
	ID, Network, Host string
	Local             bool // it is on this host
	Addrs             []netip.Addr
	// Labels are all labels if they are Known, and otherwise those that are certain all the same.
	Labels map[string]string
	Known  bool
	Ports  map[string]NamedPort
}

// NamedPort is what the name of a port stands for at one endpoint.
type NamedPort struct {
	Proto uint8
	Port  uint16
}

// Range is a part of a network's subnet.
type Range struct {
	Network string
	Prefix  netip.Prefix
}

// The protocols that rules can name.
const (
	ICMP   = 1
	TCP    = 6
	UDP    = 17
	ICMPv6 = 58
	SCTP   = 132
)

// Kind is what a policy was written as.
type Kind uint8

// The kinds.
const (
	NetworkPolicy Kind = iota + 1
	ClusterNetworkPolicy
	// Isolate and Label nobody writes as policies (package plain): they stand for an option of a network, and for a
	// label of containers. They have tiers and priorities as ClusterNetworkPolicies do.
	Isolate
	Label
	// EgressNetworkPolicy is OpenShift's: what the containers of a network may reach outside the cluster. As it is written its
	// rules accept or drop, in order; package firewall makes policies with a tier of it, which are what is enforced.
	EgressNetworkPolicy
)

// tiered says whether policies of the kind have a tier, and rules of which the first one decides.
func (k Kind) tiered() bool { return k >= ClusterNetworkPolicy }

func (k Kind) String() string {
	switch k {
	case NetworkPolicy:
		return "NetworkPolicy"
	case ClusterNetworkPolicy:
		return "ClusterNetworkPolicy"
	case Isolate:
		return "isolate"
	case Label:
		return "label"
	case EgressNetworkPolicy:
		return "EgressNetworkPolicy"
	}
	return "policy of an unknown kind"
}

// Tier is the place of a ClusterNetworkPolicy: before all NetworkPolicies, or after them.
type Tier uint8

// The tiers. That of NetworkPolicies is between these, and has no name in a policy.
const (
	Admin Tier = iota + 1
	Baseline
)

func (t Tier) String() string {
	switch t {
	case Admin:
		return "Admin"
	case Baseline:
		return "Baseline"
	}
	return ""
}

// Key names a policy.
type Key struct {
	Kind          Kind
	Network, Name string // no Network for a ClusterNetworkPolicy
	Text          string // of a Label: what it says, since there may be several of one name
}

func (k Key) String() string {
	switch k.Kind {
	case ClusterNetworkPolicy:
		return k.Name
	case Isolate:
		return "isolate of network " + k.Network
	case Label:
		return "label " + k.Name
	}
	return k.Network + "/" + k.Name
}

func (k Key) compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Kind, other.Kind), cmp.Compare(k.Network, other.Network), cmp.Compare(k.Name, other.Name), cmp.Compare(k.Text, other.Text))
}

// Policy is a policy, parsed.
type Policy struct {
	Key
	Author, Version string // who wrote it, and which writing of it: for explanations only

	Log Log  // which of its verdicts are logged
	Try bool // it is only tried, and not enforced: for who stores it

	Tier     Tier // of all but a NetworkPolicy
	Priority int  // lower ones come first

	Subject Set
	// A NetworkPolicy isolates its subjects: what none of their policies accepts is denied.
	IsolatesIngress, IsolatesEgress bool
	Ingress, Egress                 []Rule
}

// Log says which of a policy's verdicts are logged. It changes none of them.
type Log uint8

// What is logged.
const (
	LogNothing Log = iota
	LogDenied      // connections that it denies
	LogAll         // and those that it lets through
)

// rules are the policy's rules of a direction.
func (p *Policy) rules(d Direction) []Rule {
	if d == Ingress {
		return p.Ingress
	}
	return p.Egress
}

// isolates says whether a NetworkPolicy isolates its subjects in a direction.
func (p *Policy) isolates(d Direction) bool {
	return p.Kind == NetworkPolicy && (d == Ingress && p.IsolatesIngress || d == Egress && p.IsolatesEgress)
}

// LabelKeys are the labels of endpoints that the policy asks for, each once.
func (p *Policy) LabelKeys() []string {
	keys := map[string]bool{}
	add := func(s Selector) {
		for _, r := range s {
			keys[r.Key] = true
		}
	}
	add(p.Subject.Endpoints)
	for _, r := range slices.Concat(p.Ingress, p.Egress) {
		for _, s := range r.Peers {
			add(s.Endpoints)
		}
	}
	return sortedKeys(keys)
}

// Direction is that of a connection, seen from a rule's subject.
type Direction uint8

// The directions.
const (
	Ingress Direction = iota + 1 // the subject is its destination
	Egress                       // the subject is its source
)

func (d Direction) String() string {
	if d == Ingress {
		return "ingress"
	}
	return "egress"
}

// Action is what a rule does with what it matches.
type Action uint8

// The actions.
const (
	Accept Action = iota + 1
	Drop
	Reject // like Drop, and the sender is told
	Pass   // the rest of its tier has no say
)

func (a Action) String() string {
	switch a {
	case Accept:
		return "Accept"
	case Drop:
		return "Deny"
	case Reject:
		return "Reject"
	case Pass:
		return "Pass"
	}
	return "unknown action"
}

// Rule is a rule of a policy in one direction.
type Rule struct {
	Name    string
	Action  Action
	AnyPeer bool
	Peers   []Set
	Blocks  []Block
	// Within says that Blocks are the cluster's own addresses, to which no name leads.
	Within bool
	// Domains are names: an address is a peer of who was told it when it asked for one of them. Only egress has any.
	Domains []Domain
	AnyPort bool
	Ports   []Port
}

// Set selects endpoints.
type Set struct {
	Network   string   // of the network of this name, if there is one here
	Networks  Selector // else of the networks with these labels
	Endpoints Selector
}

// Block is a range of addresses without parts of it.
type Block struct {
	Prefix netip.Prefix
	Except []netip.Prefix
}

func (b Block) contains(a netip.Addr) bool {
	if !b.Prefix.Contains(a) {
		return false
	}
	for _, e := range b.Except {
		if e.Contains(a) {
			return false
		}
	}
	return true
}

// Port is a destination port, or a range of them.
type Port struct {
	Proto    uint8  // 0: any, of a name alone
	Name     string // what the destination calls it; else
	From, To uint16 // both ends are in it
}
