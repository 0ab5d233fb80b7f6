package metrics

import (
	"maps"
	"slices"

	"github.com/grapevine-net/grapevine/api"
)

var (
	policyConnections = counter("policy_connections_total", "Connections to and from this host's containers that rules of a policy let begin.", "policy")
	policyPackets     = counter("policy_packets_total", "Packets of these connections (allowed), and packets that the policy denied.", "policy", "verdict")
	policyWouldDeny   = counter("policy_would_deny_total", "Connections that a policy which is only tried would have denied.", "policy")
	policyBytes       = counter("policy_bytes_total", "Bytes of these packets, Ethernet headers included.", "policy", "verdict")
)

const (
	// maxPolicies bounds the values of the label policy: the first by name have their names, the others are otherPolicies.
	maxPolicies   = 64
	otherPolicies = "other"
)

// The verdicts.
const (
	allowed = "allowed"
	denied  = "denied"
	tried   = "tried" // would have been denied
)

// ruled sums what rules counted, by policies, as counted does for flows: a rule's counters begin anew when it changes. What is
// counted while a policy is among the others stays theirs.
type ruled struct {
	last  map[ruleKey]ruleCount
	sums  map[[2]string]ruleCount // by label and verdict
	shown map[string]bool         // labels
}

type ruleKey struct{ rule, action, direction, network, container string }

func keyOf(r api.RuleCount) ruleKey {
	return ruleKey{r.Rule, r.Action, r.Direction, r.Network, r.Container}
}

type ruleCount struct {
	count
	connections uint64
}

// add takes in what the rules have counted since the last time.
func (r *ruled) add(f Facts) {
	label, there := map[string]string{}, map[string]bool{otherPolicies: true}
	r.shown = map[string]bool{}
	for i, name := range slices.Sorted(slices.Values(f.Policies)) {
		if label[name] = labelText(name); i >= maxPolicies {
			label[name] = otherPolicies
		}
		there[labelText(name)], r.shown[label[name]] = true, true
	}
	if r.sums == nil {
		r.sums = map[[2]string]ruleCount{}
	}
	maps.DeleteFunc(r.sums, func(k [2]string, _ ruleCount) bool { return !there[k[0]] }) // a policy's series go with it
	if f.RulesErr != nil {
		return
	}
	now := map[ruleKey]ruleCount{}
	for _, row := range f.Rules { // with ports by name a rule has several
		k := keyOf(row)
		n := now[k]
		now[k] = ruleCount{n.plus(count{row.Packets, row.Bytes}), n.connections + row.Connections}
	}
	seen := map[ruleKey]bool{}
	for _, row := range f.Rules {
		k := keyOf(row)
		if seen[k] {
			continue
		}
		seen[k] = true
		n, before, verdict := now[k], r.last[k], denied
		switch row.Action {
		case "Accept":
			verdict = allowed
		case api.WouldDeny:
			verdict = tried
		}
		more := ruleCount{n.since(before.count), n.connections - before.connections}
		if n.connections < before.connections || n.packets < before.packets {
			more = n
		}
		to := map[string]bool{} // each once
		for _, name := range row.AllPolicies() {
			if l, there := label[name]; there && !to[l] {
				to[l] = true
				was := r.sums[[2]string{l, verdict}]
				r.sums[[2]string{l, verdict}] = ruleCount{was.plus(more.count), was.connections + more.connections}
			}
		}
	}
	r.last = now
}

// send sends what there is of each policy, from the start on.
func (r *ruled) send(send sender) {
	for l := range r.shown {
		send(policyWouldDeny, float64(r.sums[[2]string{l, tried}].connections), l)
		send(policyConnections, float64(r.sums[[2]string{l, allowed}].connections), l)
		for _, verdict := range []string{allowed, denied} {
			n := r.sums[[2]string{l, verdict}]
			send(policyPackets, float64(n.packets), l, verdict)
			send(policyBytes, float64(n.bytes), l, verdict)
		}
	}
}
