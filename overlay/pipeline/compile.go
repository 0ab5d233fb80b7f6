package pipeline

import (
	"fmt"
	"net/netip"
)

// Compile returns the flows of in, in the order of Sort. It fails on values out
// of range and on objects that contradict each other (two endpoints with one
// address), naming them; Plan of package overlay makes no such input.
//
// There are about 4 flows per VTEP, range and subnet and 9 per local endpoint,
// and 5 per link-local address here, 3 per one elsewhere.
func Compile(in Input) ([]Flow, error) {
	if err := in.validate(); err != nil {
		return nil, fmt.Errorf("compile flows: %w", err)
	}
	c := &compiler{in: in, seen: map[flowKey]Flow{}, index: map[netip.Addr]uint32{}}
	for _, v := range in.VTEPs {
		c.index[v.Addr] = v.Index
	}
	for _, stage := range []func(*compiler){
		classify, tunnelSource, guardTunnel, guardGateway, guardEndpoints, guardHosts, guardNeighbours,
		answerARP, answerND, answerHosts, answerLinkLocal, passThrough, forwardHosts, forwardLocal, forwardLinkLocal, forwardRanges, forwardOutside, probes,
		checkVNIDs, emit,
	} {
		stage(c)
	}
	if c.err != nil {
		return nil, fmt.Errorf("compile flows: %w", c.err)
	}
	Sort(c.flows)
	return c.flows, nil
}

// compiler collects flows. The functions that add to it each own one matter
// (a stage or a part of one), so that another address family or another kind
// of rule is another function.
type compiler struct {
	in    Input
	index map[netip.Addr]uint32 // VTEP -> index
	flows []Flow
	seen  map[flowKey]Flow
	err   error
}

func (c *compiler) add(s Stage, priority int, o object, m match, act ...string) {
	f := Flow{
		Table: uint8(s), Priority: uint16(priority), Cookie: o.cookie(c.in.Round, s),
		Match: m.String(), Actions: actions(act...),
	}
	was, dup := c.seen[f.key()]
	switch {
	case dup && was.Actions != f.Actions:
		c.err = fmt.Errorf("two flows for one match: %q and %q", was, f)
	case !dup:
		c.seen[f.key()] = f
		c.flows = append(c.flows, f)
	}
}

// pass adds the flow that lets the rest go on to the next stage.
func (c *compiler) pass(s Stage, priority int) {
	c.add(s, priority, object{}, match{}, goTo(s.next()))
}

// drop adds a flow that drops for a reason.
func (c *compiler) drop(s Stage, priority int, r Reason, m match) {
	c.add(s, priority, r.object(), m, drop)
}

// passThrough is the empty stages.
func passThrough(c *compiler) {
	for _, s := range []Stage{Conntrack, EgressPolicy, Service, IngressPolicy} {
		c.pass(s, 0)
	}
}

// byLength orders ranges by prefix length, the longest first, with room for two
// flows per length: base + 2*length + extra (0 or 1).
func byLength(p netip.Prefix, extra int) int { return 1000 + 2*p.Bits() + extra }
