package pipeline

import (
	"cmp"
	"fmt"
	"slices"
)

// Flow is one OpenFlow flow in canonical text. Match has no spaces and may be
// empty; Actions is what stands after "actions=".
type Flow struct {
	Table    uint8
	Priority uint16
	Cookie   uint64
	Match    string
	Actions  string
}

// flowKey is what the switch knows a flow by: a second flow with the same key
// replaces the first.
type flowKey struct {
	table    uint8
	priority uint16
	match    string
}

func (f Flow) key() flowKey { return flowKey{f.Table, f.Priority, f.Match} }

// Add is the flow as a line of `ovs-ofctl --bundle add-flows`. Adding replaces a
// flow with the same table, priority and match.
func (f Flow) Add() string {
	return fmt.Sprintf("add cookie=%#x,%s,actions=%s", f.Cookie, f.strict(), f.Actions)
}

// Delete is the line that deletes exactly this flow, and is no error if it is gone.
func (f Flow) Delete() string { return "delete_strict " + f.strict() }

func (f Flow) strict() string {
	s := fmt.Sprintf("table=%d,priority=%d", f.Table, f.Priority)
	if f.Match != "" {
		s += "," + f.Match
	}
	return s
}

// String is the flow as in golden files: one line, with all there is to compare.
func (f Flow) String() string {
	return fmt.Sprintf("cookie=%#016x, %s actions=%s", f.Cookie, f.strict(), f.Actions)
}

// Sort puts flows in pipeline order: table, then falling priority, then match.
func Sort(flows []Flow) {
	slices.SortFunc(flows, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Match, b.Match))
	})
}

// Changes turns one set of flows into another. The parts are disjoint by
// table, priority and match.
type Changes struct {
	Add    []Flow // not there yet
	Modify []Flow // there with other actions or another cookie: the new flow
	Delete []Flow // there and not wanted
}

// Empty says that nothing is to be done.
func (c Changes) Empty() bool { return len(c.Add)+len(c.Modify)+len(c.Delete) == 0 }

// Lines is the bundle that applies the changes at once: what is added first,
// what is deleted last, though the switch makes all of it visible together.
func (c Changes) Lines() []string {
	lines := make([]string, 0, len(c.Add)+len(c.Modify)+len(c.Delete))
	for _, f := range c.Add {
		lines = append(lines, f.Add())
	}
	for _, f := range c.Modify {
		lines = append(lines, f.Add())
	}
	for _, f := range c.Delete {
		lines = append(lines, f.Delete())
	}
	return lines
}

// Diff says what turns have into want. Flows that are the same in both are not
// touched, so their counters and the connections they carry go on. Of two flows
// in want with the same table, priority and match the last counts.
func Diff(have, want []Flow) Changes {
	old := make(map[flowKey]Flow, len(have))
	for _, f := range have {
		old[f.key()] = f
	}
	wanted := make(map[flowKey]Flow, len(want))
	for _, f := range want {
		wanted[f.key()] = f
	}
	var c Changes
	for k, f := range wanted {
		switch was, ok := old[k]; {
		case !ok:
			c.Add = append(c.Add, f)
		case was != f:
			c.Modify = append(c.Modify, f)
		}
	}
	for k, f := range old {
		if _, ok := wanted[k]; !ok {
			c.Delete = append(c.Delete, f)
		}
	}
	Sort(c.Add)
	Sort(c.Modify)
	Sort(c.Delete)
	return c
}
