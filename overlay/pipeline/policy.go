package pipeline

import (
	"errors"
	"fmt"
	"net/netip"
)

// Policy is what the switch enforces for this host's endpoints. The zero value enforces
// nothing, and costs nothing.
type Policy struct {
	Guards  []Guard
	Classes []Class
	Rules   []PolicyRule
	// Openings are addresses that rules are about for one endpoint alone.
	Openings []Opening
	// Crowds are those who begin no connection that rules are about, since there is little room for more.
	Crowds []Crowd
}

// Crowd is an address from which none begins, or no address: from nowhere. Spared is a gateway, from which they begin all the same, as
// do questions to the resolver there.
type Crowd struct {
	Addr   netip.Addr
	Spared bool
}

// Guard is a local endpoint that rules speak about. A direction that is not set passes; in
// one that is, what no rule matches is dropped. Always let through are answers to what was
// let through and ICMP errors of it, what the host itself sends (from the gateway's address)
// and, to that address, questions to its resolver.
type Guard struct {
	Endpoint string
	Addrs    []netip.Addr
	// LinkLocal are its link-local addresses, and VNID its network's: rules know no peers by
	// such addresses, so there it neither sends nor hears.
	LinkLocal       []netip.Addr
	VNID            uint32
	Ingress, Egress bool
	// Named: it may have Openings.
	Named bool
	// Young: it talked before it had rules, a moment ago. Who called whom is not known of that: what may be an answer begins
	// no connection by which the other side answers.
	Young bool
	// The epochs, not 0 in a direction that is set, are those of the rules of a direction.
	// A connection that passed at another epoch is judged anew at its next packet.
	IngressEpoch, EgressEpoch uint16
}

// Class is a set of endpoints, here and elsewhere, that no rule tells apart. Ranges are of
// the class as far as no class has an address in them among its Addrs.
type Class struct {
	ID     uint32
	Addrs  []netip.Addr
	Ranges []netip.Prefix
}

// Direction is that of a connection, seen from a rule's subjects.
type Direction uint8

// The directions.
const (
	Ingress Direction = 1 // the subjects are its destination
	Egress  Direction = 2 // the subjects are its source
)

// Action is what a rule does with a connection.
type Action uint8

// The actions.
const (
	Accept Action = 1
	Drop   Action = 2
	Reject Action = 3 // like Drop, and the sender is told (reject.go)
	Pass   Action = 4 // go on at the rules of PriorityNetworkPolicy and below
)

// MaxSlot is the highest slot of a rule.
const MaxSlot = 4095

// The priorities of rules. Those above PriorityNetworkPolicy come first, and only they Pass.
const (
	PriorityNetworkPolicy = 10000
	MaxPriority           = 19999
)

// PolicyRule matches a connection whose subject, peer and port are each in its list. Peers of
// no class are matched by Blocks and AnyPeer only. Of equal priority are rules of one action.
type PolicyRule struct {
	ID        uint32 // not 0, and its own
	Direction Direction
	Priority  int // 0 to MaxPriority; the highest that matches decides
	Action    Action
	Subjects  []uint32 // classes of local endpoints
	AnyPeer   bool
	Peers     []uint32 // classes
	Blocks    []netip.Prefix
	AnyPort   bool
	Ports     []PortRange
	Label     string   // what people know it by
	Also      []string // and what they know equal ones by, that it stands for
	// Slot, up to MaxSlot and its own, is where the fast path counts; 0: it carries nothing that the rule lets through.
	Slot uint16
}

// Opening is about connections of one local address to another address, at the place of an egress rule, and does with
// them what it does. No two are of one priority, two addresses and Past.
type Opening struct {
	Rule     uint32 // whose ID connections are noted with
	Priority int
	Action   Action // of all rules of this priority
	From, To netip.Addr
	Past     bool // only connections go on that are open
	// Named, as its Guard is: then it begins no generation, since no verdict about what From begins is another connection's.
	Named   bool
	AnyPort bool
	Ports   []PortRange
}

// PortRange is ports of a connection's destination. For ICMP (1, 58) From is a type and To a
// code, and AnyNumber is any.
type PortRange struct {
	Proto    uint8
	From, To uint16
}

// AnyNumber is any ICMP type or code.
const AnyNumber = 65535

// Protocols that have ports, and those that have types and codes.
const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
	protoSCTP   = 132
)

// maxConjunctions is how many rules can name one thing at one priority: the switch takes no
// message of more than 64 KiB.
const maxConjunctions = 4000

// validate is Input.validate of a policy.
func (p Policy) validate() error {
	var errs []error
	fail := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	type place struct {
		d        Direction
		priority int
	}
	for _, g := range p.Guards {
		if g.Ingress && g.IngressEpoch == 0 || g.Egress && g.EgressEpoch == 0 {
			fail("guard of endpoint %s has epoch 0", g.Endpoint)
		}
	}
	for _, c := range p.Classes {
		if c.ID == 0 {
			fail("a class has ID 0")
		}
		for _, r := range c.Ranges {
			if !r.IsValid() || r != r.Masked() {
				fail("class %d has range %s", c.ID, r)
			}
		}
	}
	once := map[netip.Addr]bool{}
	for _, g := range p.Guards {
		for _, a := range g.Addrs {
			once[a] = g.Named && g.Egress
		}
	}
	ids, slots := map[uint32]bool{}, map[uint16]bool{}
	decided := map[place]Action{}
	named := map[string]int{}
	for _, r := range p.Rules {
		at := place{r.Direction, r.Priority}
		switch was := decided[at]; {
		case r.ID == 0 || ids[r.ID]:
			fail("rule %q has ID %d, which is another's or 0", r.Label, r.ID)
		case r.Slot > MaxSlot || r.Slot != 0 && slots[r.Slot]:
			fail("rule %q has slot %d, which is another's or above %d", r.Label, r.Slot, MaxSlot)
		case r.Direction != Ingress && r.Direction != Egress:
			fail("rule %q has direction %d", r.Label, r.Direction)
		case r.Action < Accept || r.Action > Pass:
			fail("rule %q has action %d", r.Label, r.Action)
		case r.Priority < 0 || r.Priority > MaxPriority || r.Action == Pass && r.Priority <= PriorityNetworkPolicy:
			fail("rule %q with action %d has priority %d", r.Label, r.Action, r.Priority)
		case was != 0 && was != r.Action:
			fail("rules of priority %d have actions %d and %d", r.Priority, was, r.Action)
		}
		ids[r.ID], slots[r.Slot], decided[at] = true, true, r.Action
		for _, s := range r.Subjects {
			named[fmt.Sprint(at, " subject ", s)]++
		}
		for _, s := range r.Peers {
			named[fmt.Sprint(at, " peer ", s)]++
		}
		if r.AnyPeer && r.AnyPort {
			named[fmt.Sprint(at, " all")]++
		}
		for _, b := range r.Blocks {
			if !b.IsValid() || b != b.Masked() {
				fail("rule %q has block %s", r.Label, b)
			}
			named[fmt.Sprint(at, " block ", b)]++
		}
		for _, q := range r.Ports {
			named[fmt.Sprint(at, " ports ", q)]++
			switch q.Proto {
			case protoTCP, protoUDP, protoSCTP:
				if q.From > q.To {
					fail("rule %q has ports %d to %d", r.Label, q.From, q.To)
				}
			case protoICMP, protoICMPv6:
				if max(q.From, q.To) > 255 && q.From != AnyNumber && q.To != AnyNumber {
					fail("rule %q has ICMP type %d, code %d", r.Label, q.From, q.To)
				}
			default:
				fail("rule %q has ports of protocol %d", r.Label, q.Proto)
			}
		}
	}
	for _, o := range p.Openings {
		at := place{Egress, o.Priority}
		other := decided[at] != 0 && decided[at] != o.Action
		if o.Rule == 0 || o.Priority < 0 || o.Priority > MaxPriority || o.Action < Accept || o.Action > Pass || o.Action == Pass && o.Priority <= PriorityNetworkPolicy || other || !o.From.IsValid() || !o.To.IsValid() || o.From.Is4() != o.To.Is4() {
			fail("opening of rule %d, priority %d, action %d, is from %s to %s", o.Rule, o.Priority, o.Action, o.From, o.To)
		}
		if o.Named && !once[o.From] {
			fail("opening of rule %d is of %s, whose guard is not named", o.Rule, o.From)
		}
		decided[at] = o.Action
	}
	for what, n := range named {
		if n > maxConjunctions {
			fail("%d rules name one thing (%s), at most %d can", n, what, maxConjunctions)
		}
	}
	return errors.Join(errs...)
}
