package edit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/firewall"
	"github.com/grapevine-net/grapevine/policy/worlds"
)

// maxDenied is as of the exceptions of a NetworkPolicy.
const maxDenied = 4096

// canFence says why an EgressNetworkPolicy cannot be applied. A network has one, as in OpenShift: of two nobody could say which
// rules come first.
func (d Desk) canFence(p policy.Policy) error {
	if p.Kind != policy.EgressNetworkPolicy {
		return nil
	}
	snap := d.Replica.Snapshot()
	for rec, was := range cluster.PoliciesOf(snap).InForce() {
		name := worlds.NameOf(was)
		if rec.Key != worlds.KeyOf(p.Key) || name == p.Name {
			continue
		}
		return fmt.Errorf("network %s has an EgressNetworkPolicy already, %s; give this one its name, or `grapevine policy delete enp %s/%s` first", p.Network, name, p.Network, name)
	}
	if n := firewall.Cost(p); n > maxDenied {
		return fmt.Errorf("what its Deny rules leave to deny after the rules before them comes to %d ranges of addresses, and may to %d: name fewer and wider ones, or put what is denied first", n, maxDenied)
	}
	if p.Try { // which older agents do not read
		return nil
	}
	mine, _ := cluster.Get[cluster.Node](snap, string(d.Self))
	var older []string
	for n := range cluster.All[cluster.Node](snap) {
		if n.Enforces < cluster.EnforcesV3 && n.Agent != mine.Agent {
			older = append(older, fmt.Sprintf("%s (%s)", n.Name, n.Agent))
		}
	}
	if len(older) > 0 {
		return fmt.Errorf("hosts with an older agent would cut off all containers of the network: %s; upgrade their agents first", strings.Join(older, ", "))
	}
	return nil
}

// oneFamily says that an EgressNetworkPolicy denies all of one family alone.
func oneFamily(p policy.Policy) string {
	denies := func(all string) bool {
		return slices.ContainsFunc(p.Egress, func(r policy.Rule) bool {
			return r.Action == policy.Drop && slices.ContainsFunc(r.Blocks, func(b policy.Block) bool { return b.Prefix == netip.MustParsePrefix(all) })
		})
	}
	switch four, six := denies("0.0.0.0/0"), denies("::/0"); {
	case p.Kind != policy.EgressNetworkPolicy || four == six:
		return ""
	case four:
		return "; it denies nothing of IPv6: if the network has any, add a rule with ::/0"
	}
	return "; it denies nothing of IPv4: add a rule with 0.0.0.0/0 if it is to"
}
