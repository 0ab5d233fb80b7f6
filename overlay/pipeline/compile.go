package pipeline

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Compile returns the flows of in, in the order of Sort. It fails on values out
// of range and on objects that contradict each other (two endpoints with one
// address), naming them; Plan of package overlay makes no such input.
//
// There are about 4 flows per VTEP, range and subnet and 9 per local endpoint,
// and 5 per link-local address here, 3 per one elsewhere, and 2 per multicast group. Policy adds about 12 per address of
// a guard, 2 or 4 per address of a class, and as many per rule as it names subjects, peers,
// blocks and ports, some of these twice or four times.
func Compile(in Input) ([]Flow, error) {
	flows, _, err := new(Compiler).Compile(in)
	return flows, err
}

// objects is an Input, and what its Policy comes to: whether there is anything to enforce, and
// the members of classes, each an object of its own.
type objects struct {
	Input
	policed bool
	members []member
}

// matters are what flows are added for, each by its function: a stage, or a part of some. One that needs a group of OpenFlow adds
// a [GroupEntry] to the flows.
var matters = []func(*compiler){
	classify, tunnelSource, guardTunnel, guardGateway, guardEndpoints, guardHosts, guardNeighbours, guardGroups, guardAnswers,
	answerARP, answerND, answerHosts, answerLinkLocal, passThrough, forwardHosts, forwardLocal, forwardGroups, forwardLinkLocal, forwardRanges, forwardEncrypted, forwardUnheard, forwardOutside, exitOut, exitIn, exitAnswers, exitErrors, exposeIn, exposeBack, exposeOut, guardHostPorts, probes,
	checkVNIDs, emit, policyStages, policySettled, unmarked, policyHost, policyGuards, policyCrowds, policyMembers, policyRules, policyOpenings,
}

// ask returns the flows that the objects of in ask for, in the order of Sort: one that
// several ask for is there as often. Each object asks for itself, whatever others there
// are, but that ranges and neighbours depend on the index that their VTEP has.
func ask(in objects, index map[netip.Addr]uint32) []Flow {
	c := &compiler{in: in, index: index}
	for _, stage := range matters {
		stage(c)
	}
	slices.SortFunc(c.flows, func(a, b Flow) int {
		return cmp.Or(a.order(b), cmp.Compare(a.Actions, b.Actions), cmp.Compare(a.Cookie, b.Cookie))
	})
	return c.flows
}

// indexes are those of the VTEPs of in.
func indexes(in objects) map[netip.Addr]uint32 {
	index := make(map[netip.Addr]uint32, len(in.VTEPs))
	for _, v := range in.VTEPs {
		index[v.Addr] = v.Index
	}
	return index
}

// compiler collects flows. The functions that add to it each own one matter
// (a stage or a part of one), so that another address family or another kind
// of rule is another function.
type compiler struct {
	in    objects
	index map[netip.Addr]uint32 // VTEP -> index
	flows []Flow
}

func (c *compiler) add(s Stage, priority int, o object, m match, act ...string) {
	c.flows = append(c.flows, Flow{
		Table: uint8(s), Priority: uint16(priority), Cookie: o.cookie(c.in.Round, s),
		Match: m.String(), Actions: actions(act...),
	})
}

// pass adds the flow that lets the rest go on to the next stage.
func (c *compiler) pass(s Stage) {
	c.add(s, otherwise, object{}, match{}, goTo(s.next()))
}

// drop adds a flow that drops for a reason.
func (c *compiler) drop(s Stage, priority int, r Reason, m match) {
	c.add(s, priority, r.object(), m, drop)
}

// passThrough is the empty stages, and the way by the stages of policy.
func passThrough(c *compiler) {
	c.add(Conntrack, otherwise, object{}, match{}, goTo(EgressPolicy))
	c.add(EgressPolicy, otherwise, object{}, match{}, goTo(Service))
	c.pass(Service)
	c.add(IngressPolicy, otherwise, object{}, match{}, goTo(Output))
}

// byLength is the priority of a range, by its length, the longest first, between what a stage has for single addresses and
// what it has for the rest.
func byLength(p netip.Prefix, kind int) int { return ranges + rangeKinds*p.Bits() + kind }

// The kinds of flows of a range, the last first.
const (
	rangeElse   = iota // dropped, and counted as the range's, or as the subnet's
	rangeWay           // let in from the range's VTEP; sent to it
	rangeSecure        // what is of an encrypted network, sent to it
	rangeKinds
)

// ranges is the priority of the shortest range, which has length 0; the longest has rangeKinds*128 more.
const ranges = 1000

// otherwise is the priority of what no other flow of a stage matches.
const otherwise = 0

// unite leaves one flow for each key, and says how often more it was asked for. It fails
// if objects ask for different actions, but for conjunctions, of which the flow has all. Of
// different cookies the lowest stays, and plain is false: who takes one of the objects away
// does not know what is left.
func unite(asked []Flow) (flows []Flow, more map[flowKey]int, plain bool, err error) {
	more, plain = map[flowKey]int{}, true
	for i, f := range asked {
		if i == 0 || f.order(asked[i-1]) != 0 {
			flows = append(flows, f)
			continue
		}
		was := &flows[len(flows)-1]
		switch {
		case isConjunction(was.Actions) && isConjunction(f.Actions):
			was.Actions += "," + f.Actions // in the order of ask, which is join's
		case was.Actions != f.Actions:
			return nil, nil, false, fmt.Errorf("two flows for one match: %q and %q", *was, f)
		}
		more[f.key()]++
		plain = plain && was.Cookie == f.Cookie
	}
	return flows, more, plain, nil
}
