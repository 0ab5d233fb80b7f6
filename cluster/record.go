// Package cluster is the replicated state of a grapevine cluster, as values:
// records, their versions, and a merge that does not depend on the order, the
// number or the grouping of the messages that carry them.
//
// The package is pure: no sockets, no disk, no clock (now is passed in) and no
// goroutines. Package replica owns the one mutable State of an agent.
package cluster

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/ring"
)

// NodeID names a host for the life of its state directory: 16 lower-case
// hexadecimal digits, the hash of the key that it signs its records with (HostID).
type NodeID = ring.Owner

// Version orders all writes of the cluster: by Lamport counter, ties by the
// writer. No two writes of one cluster have the same Version.
type Version struct {
	Counter uint64
	Node    NodeID
}

// Kind says what a record describes. The numbers are wire format: append only.
type Kind uint8

// The kinds of record and who writes them.
const (
	KindNode     Kind = 1 // one per host, written by that host (tombstoned by forget)
	KindNetwork  Kind = 2 // one per network name, many writers
	KindSubnet   Kind = 3 // one per prefix of a network, many writers
	KindEndpoint Kind = 4 // one per endpoint, written by its host
	KindUse      Kind = 5 // "host H has containers on network N", written by H
	KindClaim    Kind = 6 // one per block of the ring, written by who gave it away
	KindPolicy   Kind = 8 // one per scope, network and name, many writers (7 was never written)
)

// known reports whether this agent knows what records of a kind say.
func (k Kind) known() bool { return k > 0 && k <= KindClaim || k == KindPolicy }

// lasting reports whether tombstones of a kind stay for good. A host that has been away brings back what it
// still has: of a Node that would be a forgotten host, of a policy a rule that somebody has taken back.
func (k Kind) lasting() bool { return k == KindNode || k == KindPolicy }

// Key identifies a record. ID is the node ID, network name, prefix, endpoint
// ID, "network/host", block or "scope/network/name", by kind.
type Key struct {
	Kind Kind
	ID   string
}

// Record is one versioned fact. The record with the higher Version replaces
// the one with the lower; claims also replace every claim inside their block
// that is older (package ring).
type Record struct {
	Key     Key
	Version Version
	// Prev is the Counter of the writer's previous write (0: this is its first).
	// It lets a receiver see whether it has heard everything the writer said.
	Prev uint64
	// Deleted is the Unix time in seconds of a deletion, 0 for a live record.
	// A tombstone has no Body.
	Deleted int64
	Body    Body
	// raw is the body as it came: of one that says more than Body does, since a newer agent
	// wrote it, or else until the record is kept (forget), to be verified and passed on.
	raw  []byte
	more bool
	// of is, in the tombstone of another host's endpoint or use, that host, which
	// the writer has forgotten.
	of NodeID
	// titles are the claims of others that a claim replaces, by which its writer
	// came to own what it gives away (title.go).
	titles []Record
	// sig is the writer's signature, nil if there is none.
	sig *signature
}

// Body is the content of a live record: Node, Network, Subnet, Endpoint, Use,
// Claim or Policy, by value. The numbers in the field tags are wire format: append only.
type Body interface {
	Key() Key
}

// Node describes a host.
type Node struct {
	ID   NodeID `cbor:"1,keyasint,omitempty"`
	Name string `cbor:"2,keyasint,omitempty"` // host name, for people
	// VTEP is the underlay address that VXLAN packets to this host are sent to.
	VTEP netip.Addr `cbor:"3,keyasint,omitzero"`
	// Gossip is where the host's memberlist answers.
	Gossip netip.AddrPort `cbor:"4,keyasint,omitzero"`
	// VXLANPort is the UDP port of the VTEP; the same in the whole cluster.
	VXLANPort uint16 `cbor:"5,keyasint,omitempty"`
	// MTU of the underlay, bytes.
	MTU int `cbor:"6,keyasint,omitempty"`
	// Agent is the version of the agent's program.
	Agent string `cbor:"7,keyasint,omitempty"`
	// Datapath is "kernel" or "userspace".
	Datapath string `cbor:"8,keyasint,omitempty"`
	// Reaches are what the host reaches by itself, and so what none of its subnets may overlap
	// there (package reach): of much, what matters most.
	Reaches []Reach `cbor:"9,keyasint,omitempty"`
	// Hellos says that the host sends hellos through the tunnel to all others, and how
	// (package diagnose/probe): 0, not at all; 1.
	Hellos uint8 `cbor:"13,keyasint,omitempty"`
	// CIDR4 and CIDR6 are what the host's settings say that networks get their prefixes from, to be
	// the same on all hosts; CIDR6 is invalid where no setting says it.
	CIDR4 netip.Prefix `cbor:"14,keyasint,omitzero"`
	CIDR6 netip.Prefix `cbor:"15,keyasint,omitzero"`
	// Bind is the host's own address, where what is sent to VTEP and Gossip arrives, if it is another
	// one, as behind NAT. Who reaches it without NAT must not send there in a host's name.
	Bind netip.Addr `cbor:"16,keyasint,omitzero"`
	// Enforces is up to which level the host enforces policies: 0, none; EnforcesV1.
	Enforces uint8 `cbor:"17,keyasint,omitempty"`
}

// EnforcesV1 is the level of a host that enforces NetworkPolicy and ClusterNetworkPolicy, open connections included.
const EnforcesV1 = 1

// Reach is something that a host reaches by itself: a LAN, a route, a network of Docker.
type Reach struct {
	Prefix netip.Prefix `cbor:"1,keyasint,omitzero"`
	// Kind is one of package reach; those that are not known yet count as the host's LANs.
	Kind uint8 `cbor:"2,keyasint,omitempty"`
	// Name says for people by what: an interface, a router, a network's name.
	Name string `cbor:"3,keyasint,omitempty"`
}

// Limits of what a Node says that it reaches: so much fits into one broadcast.
const (
	MaxReaches   = 24
	MaxReachName = 40
)

// ProvisionalPrefix begins the names of networks whose names are not known yet.
const ProvisionalPrefix = "provisional/"

// Network is a network of the cluster: its name is its identity.
type Network struct {
	// Name as Docker knows it on every host. A network whose name is not yet
	// known is provisional and has the name "provisional/" + its Docker ID.
	Name string `cbor:"1,keyasint,omitempty"`
	// VNID isolates the network: 0 is privileged, 1 .. 2^24-1 otherwise.
	VNID uint32 `cbor:"2,keyasint,omitempty"`
	// Options are the driver options (-o) and Labels the labels it was created with.
	Options  map[string]string `cbor:"3,keyasint,omitempty"`
	Labels   map[string]string `cbor:"4,keyasint,omitempty"`
	Internal bool              `cbor:"5,keyasint,omitempty"`
	// MTU of the containers' interfaces in bytes, 0: from the underlay.
	MTU int `cbor:"6,keyasint,omitempty"`
	// Removed is set when a user removed the network somewhere: it goes
	// everywhere as soon as no host has a container on it.
	Removed bool `cbor:"7,keyasint,omitempty"`
	// Made changes each time that a user makes the network anew: a host whose Docker has one
	// from before is to have this one instead. Empty: an older agent made it.
	Made string `cbor:"8,keyasint,omitempty"`
	// Old are subnets from before it was made anew last, which containers had then, or have
	// come to have since: each goes when none has an address of it any more.
	Old []netip.Prefix `cbor:"9,keyasint,omitempty"`
	// Attachable is Docker's word (--attachable), which means nothing here, and is told again.
	Attachable bool `cbor:"10,keyasint,omitempty"`
}

// Subnet is a prefix of a network. A network may have several.
type Subnet struct {
	Prefix  netip.Prefix `cbor:"1,keyasint,omitzero"`
	Network string       `cbor:"2,keyasint,omitempty"`
	// Gateway is the anycast gateway address (may be invalid: none).
	Gateway netip.Addr `cbor:"3,keyasint,omitzero"`
	// HostBits is OpenShift's hostsubnetlength: every host's share has exactly
	// this many host bits, handed out in OpenShift's order. 0: shares of any size.
	HostBits uint8 `cbor:"4,keyasint,omitempty"`
	// Home is the host that brought the prefix in; ranges go back to it when the
	// subnet goes.
	Home NodeID `cbor:"5,keyasint,omitempty"`
	// Range limits automatic addresses (--ip-range); invalid: the whole prefix.
	Range netip.Prefix `cbor:"6,keyasint,omitzero"`
	// Aux are the addresses reserved by --aux-address, by name.
	Aux map[string]netip.Addr `cbor:"7,keyasint,omitempty"`
	// Implied says that Docker lists no gateway where the network was made, since nobody said one.
	Implied bool `cbor:"8,keyasint,omitempty"`
	// Place is its place among the subnets of its family that came with it, from 0 on: containers get their
	// address from the first.
	Place uint8 `cbor:"9,keyasint,omitempty"`
}

// Endpoint is a container's attachment to a network.
type Endpoint struct {
	ID      string       `cbor:"1,keyasint,omitempty"` // Docker's endpoint ID, 64 hexadecimal digits
	Network string       `cbor:"2,keyasint,omitempty"` // Network.Name
	Addrs   []netip.Addr `cbor:"3,keyasint,omitempty"`
	MAC     string       `cbor:"4,keyasint,omitempty"` // aa:bb:cc:dd:ee:ff
	Host    NodeID       `cbor:"5,keyasint,omitempty"`
	// Container, Name and Aliases are learnt from the Docker API, later than the rest.
	Container string   `cbor:"6,keyasint,omitempty"`
	Name      string   `cbor:"7,keyasint,omitempty"`
	Aliases   []string `cbor:"8,keyasint,omitempty"`
	// LinkLocal are the addresses of --link-local-ip, learnt likewise. They mean something
	// on this network only, and nothing keeps two endpoints from having the same.
	LinkLocal []netip.Addr `cbor:"9,keyasint,omitempty"`
	// Outdated says that it is on what its host's Docker has of the network from before that
	// was made anew.
	Outdated bool `cbor:"10,keyasint,omitempty"`
	// More are further aliases. Agents that do not know of them pass them on, but would refuse a
	// record with as many Aliases.
	More []string `cbor:"11,keyasint,omitempty"`
	// Labels are the container's, those that policies may ask for (package driver). They are known if Labelled
	// says so; else its host has not heard them yet, or they are too large for a record, or its agent is an older one.
	Labels   map[string]string `cbor:"12,keyasint,omitempty"`
	Labelled bool              `cbor:"13,keyasint,omitempty"`
}

// AllAliases are Aliases and More.
func (e Endpoint) AllAliases() []string { return slices.Concat(e.Aliases, e.More) }

// WithAliases returns the endpoint with those of the aliases that a record has room for, taken in
// their order, and the others.
func (e Endpoint) WithAliases(all []string) (with Endpoint, left []string) {
	var kept []string
	size := 0
	for _, a := range all {
		const head = 3 // of a text, in CBOR
		if need := len(a) + head; name("alias", a) == nil && size+need <= maxAliases {
			size += need
			kept = append(kept, a)
		} else {
			left = append(left, a)
		}
	}
	first := min(len(kept), maxEntries)
	e.Aliases, e.More = kept[:first:first], kept[first:]
	return e, left
}

// Use says that a host has containers, running or stopped, on a network.
type Use struct {
	Network string `cbor:"1,keyasint,omitempty"`
	Host    NodeID `cbor:"2,keyasint,omitempty"`
}

// Claim says who owns a block of the ring.
type Claim struct {
	Block netip.Prefix `cbor:"1,keyasint,omitzero"`
	Owner NodeID       `cbor:"2,keyasint,omitempty"`
}

// The scopes of policies.
const (
	ScopeNetwork = "network" // a NetworkPolicy, of one network
	ScopeCluster = "cluster" // a ClusterNetworkPolicy, of all
)

// Policy is a network policy as a user wrote it. Any host may write any.
type Policy struct {
	Scope   string `cbor:"1,keyasint,omitempty"` // ScopeNetwork or ScopeCluster; a newer agent may know others
	Network string `cbor:"2,keyasint,omitempty"` // Network.Name, which need not be there; "" if Scope is not ScopeNetwork
	Name    string `cbor:"3,keyasint,omitempty"`
	// Text is the policy in YAML. It is read by whoever enforces it: an agent may meet one that it cannot read.
	Text string `cbor:"4,keyasint,omitempty"`
	// Author is the name of the host where it was applied, for people.
	Author string `cbor:"5,keyasint,omitempty"`
	// Base has the version of what it replaced there, and of what that had replaced, and so on: the newest first,
	// tombstones included, at most MaxBase. Of an edit that is not among them its author did not know.
	Base []Edit `cbor:"6,keyasint,omitempty"`
}

// Edit is the Version of an edit of a policy.
type Edit struct {
	_       struct{} `cbor:",toarray"`
	Counter uint64
	Node    NodeID
}

// MaxBase is how many edits before it a policy names: so many may be made while two hosts do not hear each other,
// until the one that loses is not told any more.
const MaxBase = 8

// Over returns the policy as it is to be written over what a snapshot has under its key.
func (p Policy) Over(s *Snapshot) Policy {
	old, there := s.Record(p.Key())
	if !there {
		return p
	}
	p.Base = []Edit{{Counter: old.Version.Counter, Node: old.Version.Node}}
	if was, live := old.Body.(Policy); live {
		p.Base = append(p.Base, was.Base[:min(len(was.Base), MaxBase-1)]...)
	}
	return p
}

// Key names the record of a host.
func (n Node) Key() Key { return Key{KindNode, string(n.ID)} }

// Provisional reports whether the network's name is not known yet.
func (n Network) Provisional() bool { return strings.HasPrefix(n.Name, ProvisionalPrefix) }

// Key names the record of a network.
func (n Network) Key() Key { return Key{KindNetwork, n.Name} }

// Key names the record of a subnet.
func (s Subnet) Key() Key { return Key{KindSubnet, s.Prefix.String()} }

// Key names the record of an endpoint.
func (e Endpoint) Key() Key { return Key{KindEndpoint, e.ID} }

// Key names the record of a host's use of a network.
func (u Use) Key() Key { return Key{KindUse, u.Network + "/" + string(u.Host)} }

// Key names the record of a claim.
func (c Claim) Key() Key { return Key{KindClaim, c.Block.String()} }

// Key names the record of a policy.
func (p Policy) Key() Key { return Key{KindPolicy, p.Scope + "/" + p.Network + "/" + p.Name} }
