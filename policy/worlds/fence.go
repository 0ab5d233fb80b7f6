package worlds

import (
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/firewall"
	"github.com/grapevine-net/grapevine/policy/k8s"
	"github.com/grapevine-net/grapevine/policy/plain"
)

// fence makes of EgressNetworkPolicies what is enforced, each in its place among the records' policies and the rest behind.
func (w *World) fence() {
	for i := range w.Records {
		if w.Policies[i].Kind == policy.EgressNetworkPolicy {
			w.Fenced = true
			all := w.Ready(w.Policies[i])
			w.Policies[i] = all[0]
			w.Policies = append(w.Policies, all[1:]...)
		}
	}
}

// Ready are the policies that stand for one as it was read.
func (w *World) Ready(p policy.Policy) []policy.Policy {
	if p.Kind != policy.EgressNetworkPolicy {
		return []policy.Policy{p}
	}
	var ranges []netip.Prefix
	for _, r := range w.Ranges {
		ranges = append(ranges, r.Prefix)
	}
	labelled := slices.ContainsFunc(w.Endpoints, func(e policy.Endpoint) bool {
		_, has := e.Labels[plain.ToLabel]
		return has && e.Network == p.Network
	})
	return firewall.Policies(p, ranges, labelled)
}

// NameOf is the name that a policy has, of which the record's may be another.
func NameOf(p cluster.Policy) string {
	if p.Scope == cluster.ScopeNetwork && p.Name == cluster.EgressPolicyName {
		if read, err := k8s.Stored([]byte(p.Text)); err == nil {
			return read.Name
		}
	}
	return p.Name
}
