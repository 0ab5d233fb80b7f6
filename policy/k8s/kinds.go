package k8s

import (
	"fmt"
	"strings"

	"github.com/grapevine-net/grapevine/policy"
)

// called are what people call the kinds, in lower case.
var called = map[string]policy.Kind{
	"networkpolicy": policy.NetworkPolicy, "networkpolicies": policy.NetworkPolicy, "netpol": policy.NetworkPolicy,
	"clusternetworkpolicy": policy.ClusterNetworkPolicy, "clusternetworkpolicies": policy.ClusterNetworkPolicy, "cnp": policy.ClusterNetworkPolicy,
	"egressnetworkpolicy": policy.EgressNetworkPolicy, "egressnetworkpolicies": policy.EgressNetworkPolicy, "enp": policy.EgressNetworkPolicy,
}

// KindOf is the kind that people call so.
func KindOf(text string) (policy.Kind, error) {
	if k, ok := called[strings.ToLower(text)]; ok {
		return k, nil
	}
	return 0, fmt.Errorf("kind %.40q is unknown: NetworkPolicy (netpol), ClusterNetworkPolicy (cnp) or EgressNetworkPolicy (enp)", text)
}
