// Package firewall makes of OpenShift's EgressNetworkPolicy what is enforced. Its rules are about what is outside the cluster,
// the first that matches decides, and what none matches passes. It opens nothing: what it lets through all other policies are
// asked for.
//
// It stands behind the ClusterNetworkPolicies of the tier Admin and the option isolate, and before labels. A rule that lets
// pass has to be one of Pass, and that would pass by a label grapevine.to, too. So containers with this label have a policy of
// their own, which only denies.
package firewall

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/plain"
)

// Policies are those that stand for an EgressNetworkPolicy, the one of its key first. ranges are the cluster's addresses, which
// are not outside. labelled says whether a container of the network has a label grapevine.to.
func Policies(p policy.Policy, ranges []netip.Prefix, labelled bool) []policy.Policy {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	ranges = slices.Compact(ranges)
	out := []policy.Policy{whole(p, ranges)}
	if labelled {
		out = append(out, denying(p, ranges))
	}
	return out
}

// Cost is how many ranges of addresses it comes to at most that a policy's rules deny where containers have labels: an exception
// cuts a range as often as it is shorter.
func Cost(p policy.Policy) (ranges int) {
	for _, r := range denying(p, nil).Egress {
		for _, b := range r.Blocks {
			ranges++
			for _, e := range b.Except {
				ranges += max(0, e.Bits()-b.Prefix.Bits())
			}
		}
	}
	return ranges
}

// behind is a policy in its place, for those of the network that have the label grapevine.to, or have it not.
func behind(p policy.Policy, op policy.Op) policy.Policy {
	p.Tier, p.Priority, p.Egress = policy.Admin, plain.FirewallPriority, nil
	p.Subject = policy.Set{Network: p.Network, Endpoints: policy.Selector{{Key: plain.ToLabel, Op: op}}}
	return p
}

// whole has all rules, in their order.
func whole(p policy.Policy, ranges []netip.Prefix) policy.Policy {
	out := behind(p, policy.DoesNotExist)
	if len(ranges) > 0 {
		inside := policy.Rule{Name: "is about the outside alone", Action: policy.Pass, AnyPort: true, Within: true}
		for _, r := range ranges {
			inside.Blocks = append(inside.Blocks, policy.Block{Prefix: r})
		}
		out.Egress = append(out.Egress, inside)
	}
	for i, r := range p.Egress {
		if r.Name = title(i, r); r.Action == policy.Accept {
			r.Action = policy.Pass
		}
		out.Egress = append(out.Egress, r)
	}
	return out
}

// denying has what the rules deny, less what those before them decide by address.
func denying(p policy.Policy, ranges []netip.Prefix) policy.Policy {
	out := behind(p, policy.Exists)
	out.Text = "those with " + plain.ToLabel
	decided := slices.Clone(ranges)
	for i, r := range p.Egress {
		if r.Action == policy.Accept {
			for _, b := range r.Blocks {
				decided = append(decided, b.Prefix)
			}
			continue
		}
		deny := policy.Rule{Name: title(i, r), Action: policy.Drop, AnyPort: true}
		for _, b := range r.Blocks {
			if slices.ContainsFunc(decided, func(e netip.Prefix) bool { return e.Bits() <= b.Prefix.Bits() && e.Overlaps(b.Prefix) }) {
				continue // all of it
			}
			b.Except = nil
			for _, e := range decided {
				if e.Overlaps(b.Prefix) {
					b.Except = append(b.Except, e)
				}
			}
			deny.Blocks = append(deny.Blocks, b)
		}
		for _, b := range r.Blocks {
			decided = append(decided, b.Prefix)
		}
		if len(deny.Blocks) > 0 { // without one it would be about all
			out.Egress = append(out.Egress, deny)
		}
	}
	return out
}

// title is a rule as people wrote it.
func title(i int, r policy.Rule) string {
	what := "Deny"
	if r.Action == policy.Accept {
		what = "Allow"
	}
	for _, b := range r.Blocks {
		what += " " + b.Prefix.String()
	}
	for _, d := range r.Domains {
		what += " " + string(d)
	}
	return fmt.Sprintf("egress[%d] %s", i, what)
}
