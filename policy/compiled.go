package policy

import "net/netip"

// Compiled is what the switch of one host enforces for its own endpoints.
type Compiled struct {
	Guards  []Guard
	Classes []Class
	Rules   []CompiledRule
}

// Guard is a local endpoint that policies speak about. In a direction that is set, what no rule
// matches is dropped; in one that is not, everything passes.
type Guard struct {
	Endpoint        string
	Addrs           []netip.Addr
	Ingress, Egress bool
	// The prints are hashes of all that judges a direction, the addresses of peers among it: they are
	// the same on each host and after each start, and 0 in a direction that is not set.
	IngressPrint, EgressPrint uint64
}

// Class is a set of endpoints, here and elsewhere, that no rule tells apart.
type Class struct {
	ID    uint32
	Addrs []netip.Addr
	// Ranges are addresses of the class as well, as far as no class has them among its Addrs.
	Ranges []netip.Prefix
}

// The priorities of rules: the higher one decides. Rules of one priority have one action.
const (
	PriorityDefault       = 0     // what no policy isolates is accepted
	PriorityBaseline      = 1     // and up: the tier Baseline
	PriorityNetworkPolicy = 10000 // all rules of NetworkPolicies
	PriorityAdmin         = 10001 // and up: the tier Admin
	priorityEnd           = 20000
)

// CompiledRule is a rule of the switch: subject, peer and port must match, each one of its list.
type CompiledRule struct {
	ID        uint32
	Direction Direction
	Priority  int
	// Pass goes on at the rules with PriorityNetworkPolicy and less.
	Action   Action
	Subjects []uint32 // classes with local endpoints
	AnyPeer  bool
	Peers    []uint32 // classes
	Blocks   []netip.Prefix
	// Domains are matched by the answers that a subject got: see Openings.
	Domains []Domain
	AnyPort bool
	Ports   []PortRange
	Label   string // which policy's it is: shop/db ingress[0]
	// Also are the equal rules of other policies, as Label would be: it has their number behind it (+1).
	Also []string
}

// PortRange is a range of destination ports of a protocol.
type PortRange struct {
	Proto    uint8
	From, To uint16
}
