package pipeline

import (
	"cmp"
	"fmt"
	"slices"
)

// Flow is one OpenFlow flow in canonical text, or a group (GroupTable). Match has no spaces and may be
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
	if f.isGroup() {
		return "group add_or_mod " + f.Match + "," + f.Actions
	}
	return fmt.Sprintf("add cookie=%#x,%s,actions=%s", f.Cookie, f.strict(), f.Actions)
}

// Delete is the line that deletes exactly this flow, and is no error if it is gone.
func (f Flow) Delete() string {
	if f.isGroup() {
		return "group delete " + f.Match
	}
	return "delete_strict " + f.strict()
}

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
func Sort(flows []Flow) { slices.SortFunc(flows, Flow.order) }

func (f Flow) order(o Flow) int {
	switch {
	case f.Table != o.Table:
		return cmp.Compare(f.Table, o.Table)
	case f.Priority != o.Priority:
		return cmp.Compare(o.Priority, f.Priority)
	}
	return cmp.Compare(f.Match, o.Match)
}

// Changes turns one set of flows into another. The parts are disjoint by
// table, priority and match.
type Changes struct {
	Add    []Flow // not there yet
	Modify []Flow // there with other actions or another cookie: the new flow
	Delete []Flow // there and not wanted
	Handed []Flow // of Modify, those that were another object's
}

// modify adds a flow that is there in another form.
func (c *Changes) modify(was, now Flow) {
	c.Modify = append(c.Modify, now)
	if handed(was, now) {
		c.Handed = append(c.Handed, now)
	}
}

func handed(was, now Flow) bool {
	return ParseCookie(was.Cookie).key() != ParseCookie(now.Cookie).key()
}

// Empty says that nothing is to be done.
func (c Changes) Empty() bool { return len(c.Add)+len(c.Modify)+len(c.Delete) == 0 }

// Lines is the bundle that applies the changes at once: what is added first, groups before all else,
// what is deleted last, groups after all else, though the switch makes all of it visible together.
func (c Changes) Lines() []string {
	lines := make([]string, 0, len(c.Add)+len(c.Modify)+len(c.Delete))
	for _, f := range groupsFirst(c.Add) {
		lines = append(lines, f.Add())
	}
	for _, f := range groupsFirst(c.Modify) {
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
func Diff(have, want []Flow) (c Changes) {
	have, want = inOrder(have), inOrder(want)
	for len(have)+len(want) > 0 {
		switch order := first(have, want); {
		case order < 0:
			c.Delete, have = append(c.Delete, have[0]), have[1:]
		case order > 0:
			c.Add, want = append(c.Add, want[0]), want[1:]
		default:
			if have[0] != want[0] {
				c.modify(have[0], want[0])
			}
			have, want = have[1:], want[1:]
		}
	}
	return c
}

// first compares the first flows of two lists, of which one may be empty.
func first(a, b []Flow) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return a[0].order(b[0])
}

// inOrder returns flows in the order of Sort, of those with one key the last. What is
// so already, as Compile's are, it returns as it is.
func inOrder(flows []Flow) []Flow {
	ordered := true
	for i := 1; i < len(flows) && ordered; i++ {
		ordered = flows[i-1].order(flows[i]) < 0
	}
	if ordered {
		return flows
	}
	flows = slices.Clone(flows)
	slices.SortStableFunc(flows, Flow.order)
	kept := flows[:0]
	for i, f := range flows {
		if i+1 == len(flows) || f.order(flows[i+1]) != 0 {
			kept = append(kept, f)
		}
	}
	return kept
}

// Narrow reports whether packets that passed may be forbidden from c on. A flow that comes outside of policies, and drops nothing, forbids
// none, nor does one of an endpoint's own port, which comes with it, or of an opening.
func (c Changes) Narrow() bool {
	return len(c.Modify)+len(c.Delete) > 0 || slices.ContainsFunc(c.Add, func(f Flow) bool {
		if slices.Contains(policyTables, Stage(f.Table)) {
			return !f.opens()
		}
		return f.Actions == drop && ParseCookie(f.Cookie).Kind != KindEndpoint
	})
}
