package pipeline

import (
	"fmt"
	"slices"
)

// GroupTable stands for the group table that a switch has beside its tables of flows: a Flow in it is a group of OpenFlow, so that a group
// is asked for, compared and changed as a flow is. Its match is its number, its actions are its type and buckets as `ovs-ofctl dump-groups`
// spells them, and it has no cookie.
const GroupTable = 255

// GroupEntry is a group as a Flow.
func GroupEntry(id uint32, text string) Flow {
	return Flow{Table: GroupTable, Match: fmt.Sprintf("group_id=%d", id), Actions: text}
}

func (f Flow) isGroup() bool { return f.Table == GroupTable }

// AnyGroup reports whether flows, which are in the order of Sort, have a group among them: groups are last.
func AnyGroup(flows []Flow) bool { return len(flows) > 0 && flows[len(flows)-1].isGroup() }

// groupsFirst returns flows with the groups before all others, which may send to them.
func groupsFirst(flows []Flow) []Flow {
	i := slices.IndexFunc(flows, Flow.isGroup)
	if i < 0 {
		return flows
	}
	var groups, rest []Flow
	for _, f := range flows {
		if f.isGroup() {
			groups = append(groups, f)
		} else {
			rest = append(rest, f)
		}
	}
	return append(groups, rest...)
}
