package k8s

import (
	"net/netip"

	"github.com/grapevine-net/grapevine/policy"
)

// maxEgressRules is how many rules OpenShift lets an EgressNetworkPolicy have.
const maxEgressRules = 1000

// egressPolicy reads OpenShift's EgressNetworkPolicy: rules in order, each about a range of addresses or about a name.
func (r *reader) egressPolicy(v at) (p policy.Policy) {
	f := r.fields(v, "apiVersion", "kind", "metadata", "spec", "status")
	p.Key = r.metadata(f["metadata"], v, true)
	p.Log, p.Try = r.annotations(f["metadata"])
	p.Kind, p.Subject.Network = policy.EgressNetworkPolicy, p.Network
	r.need(v, f["spec"], "spec")
	var rules []at
	if !r.part(func() {
		s := r.fields(f["spec"], "egress")
		rules = r.list(s["egress"], maxEgressRules)
		if r.err == nil && len(rules) == 0 {
			r.fail(f["spec"], "egress is missing; write at least one rule")
		}
	}) {
		p.Egress = []policy.Rule{everywhere()}
		return p
	}
	for _, one := range rules {
		var rule policy.Rule
		switch understood := r.part(func() { rule = r.egressRule(one) }); {
		case understood:
			p.Egress = append(p.Egress, rule)
		case r.err == nil: // of a stored one: what it allows, if that is what it does, stays closed
			allows := false
			r.part(func() { allows = r.text(r.field(one, "type")) == "Allow" })
			if !allows {
				p.Egress = append(p.Egress, everywhere())
			}
		}
	}
	return p
}

// everywhere denies the whole outside.
func everywhere() policy.Rule {
	return policy.Rule{Action: policy.Drop, AnyPort: true, Blocks: []policy.Block{
		{Prefix: netip.PrefixFrom(netip.IPv4Unspecified(), 0)}, {Prefix: netip.PrefixFrom(netip.IPv6Unspecified(), 0)},
	}}
}

func (r *reader) egressRule(v at) (rule policy.Rule) {
	rule.AnyPort = true
	f := r.fields(v, "type", "to")
	r.need(v, f["type"], "type")
	r.need(v, f["to"], "to")
	if rule.Action = policy.Drop; r.oneOf(f["type"], "Allow", "Deny") == "Allow" {
		rule.Action = policy.Accept
	}
	to := r.fields(f["to"], "cidrSelector", "dnsName")
	cidr, name := to["cidrSelector"], to["dnsName"]
	switch {
	case r.err != nil:
	case cidr.there() == name.there():
		r.fail(f["to"], "write either cidrSelector or dnsName")
	case cidr.there():
		prefix := r.prefix(cidr)
		if r.err == nil && netip.MustParsePrefix(cidr.Value).Addr() != prefix.Addr() {
			r.fail(cidr, "%.80q has bits behind its length; write %s", cidr.Value, prefix)
		}
		rule.Blocks = []policy.Block{{Prefix: prefix}}
	default:
		r.domain(name, &rule)
	}
	return rule
}

func egressSpec(p policy.Policy) object {
	var list []any
	for _, r := range p.Egress {
		action := "Deny"
		if r.Action == policy.Accept {
			action = "Allow"
		}
		for _, b := range r.Blocks {
			list = append(list, object{"type": action, "to": object{"cidrSelector": b.Prefix.String()}})
		}
		for _, d := range r.Domains {
			list = append(list, object{"type": action, "to": object{"dnsName": string(d)}})
		}
	}
	return object{"egress": list}
}
