package policy_test

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	api "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/grapevine-net/grapevine/policy"
)

// oracle decides by the API's own types: a list of rules, of which the first that matches has the
// say. It knows of the package under test no more than what a world is made of.
type oracle struct {
	networks map[string]map[string]string
	cluster  []api.ClusterNetworkPolicy
	network  []networkingv1.NetworkPolicy
	told     map[string][]string // names for which an endpoint was told the address outside
	named    *int                // how often a rule by name matched
}

type connection struct {
	from, to         *policy.Endpoint // nil: outside
	fromAddr, toAddr netip.Addr
	proto            corev1.Protocol
	port             uint16
}

func (o *oracle) allows(c connection) bool { return o.direction(c, true) && o.direction(c, false) }

// byName reports whether the connection's source was told the address outside for one of the names.
func (o *oracle) byName(names []api.DomainName, c connection) bool {
	matches := c.to == nil && slices.ContainsFunc(names, func(want api.DomainName) bool {
		text := strings.ToLower(strings.TrimSuffix(string(want), "."))
		return slices.ContainsFunc(o.told[c.from.ID], func(name string) bool {
			below, any := strings.CutPrefix(text, "*")
			return name == text || any && strings.HasSuffix(name, below)
		})
	})
	if matches {
		*o.named++
	}
	return matches
}

func (o *oracle) direction(c connection, ingress bool) bool {
	subject := c.from
	if ingress {
		subject = c.to
	}
	if subject == nil {
		return true
	}
	if action := o.tier(c, ingress, subject, api.AdminTier); action != "" {
		return action == "Accept"
	}
	isolated := false
	for i := range o.network {
		p := &o.network[i]
		if p.Namespace != subject.Network || !selects(&p.Spec.PodSelector, subject.Labels) {
			continue
		}
		types := p.Spec.PolicyTypes
		if len(types) == 0 {
			if types = []networkingv1.PolicyType{"Ingress"}; len(p.Spec.Egress) > 0 {
				types = append(types, "Egress")
			}
		}
		if ingress && slices.Contains(types, "Ingress") {
			isolated = true
			for _, r := range p.Spec.Ingress {
				if o.peers(r.From, p.Namespace, c.from, c.fromAddr) && ports(r.Ports, c) {
					return true
				}
			}
		}
		if !ingress && slices.Contains(types, "Egress") {
			isolated = true
			for _, r := range p.Spec.Egress {
				if o.peers(r.To, p.Namespace, c.to, c.toAddr) && ports(r.Ports, c) {
					return true
				}
			}
		}
	}
	return !isolated && o.tier(c, ingress, subject, api.BaselineTier) != "Deny"
}

// tier is the action of the first rule of a tier that matches, if it is not Pass.
func (o *oracle) tier(c connection, ingress bool, subject *policy.Endpoint, t api.Tier) api.ClusterNetworkPolicyRuleAction {
	list := slices.Clone(o.cluster)
	slices.SortFunc(list, func(a, b api.ClusterNetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Spec.Priority, b.Spec.Priority), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range list {
		if p.Spec.Tier != t || !o.set(p.Spec.Subject.Namespaces, p.Spec.Subject.Pods, subject) {
			continue
		}
		action := api.ClusterNetworkPolicyRuleAction("")
		if ingress {
			for _, r := range p.Spec.Ingress {
				if action == "" && clusterPorts(r.Protocols, c) && slices.ContainsFunc(r.From, func(f api.ClusterNetworkPolicyIngressPeer) bool { return o.set(f.Namespaces, f.Pods, c.from) }) {
					action = r.Action
				}
			}
		} else {
			for _, r := range p.Spec.Egress {
				if action == "" && clusterPorts(r.Protocols, c) && slices.ContainsFunc(r.To, func(t api.ClusterNetworkPolicyEgressPeer) bool {
					return o.set(t.Namespaces, t.Pods, c.to) || o.byName(t.DomainNames, c) || slices.ContainsFunc(t.Networks, func(n api.CIDR) bool { return netip.MustParsePrefix(string(n)).Contains(c.toAddr) })
				}) {
					action = r.Action
				}
			}
		}
		switch action {
		case "Pass":
			return ""
		case "Accept", "Deny":
			return action
		}
	}
	return ""
}

func selects(s *metav1.LabelSelector, set map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		panic(err)
	}
	return selector.Matches(labels.Set(set))
}

func (o *oracle) set(namespaces *metav1.LabelSelector, pods *api.NamespacedPod, e *policy.Endpoint) bool {
	switch {
	case e == nil:
		return false
	case namespaces != nil:
		return selects(namespaces, o.networks[e.Network])
	case pods != nil:
		return selects(&pods.NamespaceSelector, o.networks[e.Network]) && selects(&pods.PodSelector, e.Labels)
	}
	return false
}

func (o *oracle) peers(list []networkingv1.NetworkPolicyPeer, namespace string, e *policy.Endpoint, addr netip.Addr) bool {
	for _, p := range list {
		if p.IPBlock != nil {
			if netip.MustParsePrefix(p.IPBlock.CIDR).Contains(addr) && !slices.ContainsFunc(p.IPBlock.Except, func(x string) bool { return netip.MustParsePrefix(x).Contains(addr) }) {
				return true
			}
			continue
		}
		if e != nil && (p.PodSelector == nil || selects(p.PodSelector, e.Labels)) &&
			(p.NamespaceSelector == nil && e.Network == namespace || p.NamespaceSelector != nil && selects(p.NamespaceSelector, o.networks[e.Network])) {
			return true
		}
	}
	return len(list) == 0
}

func named(name string, proto *corev1.Protocol, c connection) bool {
	if c.to == nil {
		return false
	}
	p, ok := c.to.Ports[name]
	return ok && p.Port == c.port && p.Proto == protocols[c.proto] && (proto == nil || *proto == c.proto)
}

func ports(list []networkingv1.NetworkPolicyPort, c connection) bool {
	for _, p := range list {
		proto := corev1.ProtocolTCP
		if p.Protocol != nil {
			proto = *p.Protocol
		}
		switch {
		case p.Port != nil && p.Port.Type == intstr.String:
			if named(p.Port.StrVal, &proto, c) {
				return true
			}
		case proto != c.proto:
		case p.Port == nil, p.EndPort == nil && int(p.Port.IntVal) == int(c.port),
			p.EndPort != nil && int(p.Port.IntVal) <= int(c.port) && int(c.port) <= int(*p.EndPort):
			return true
		}
	}
	return len(list) == 0
}

func clusterPorts(list []api.ClusterNetworkPolicyProtocol, c connection) bool {
	for _, p := range list {
		var port *api.Port
		switch {
		case p.DestinationNamedPort != "":
			if named(p.DestinationNamedPort, nil, c) {
				return true
			}
		case p.TCP != nil && c.proto == corev1.ProtocolTCP:
			port = p.TCP.DestinationPort
		case p.UDP != nil && c.proto == corev1.ProtocolUDP:
			port = p.UDP.DestinationPort
		case p.SCTP != nil && c.proto == corev1.ProtocolSCTP:
			port = p.SCTP.DestinationPort
		}
		if port != nil && (port.Range == nil && port.Number == int32(c.port) || port.Range != nil && port.Range.Start <= int32(c.port) && int32(c.port) <= port.Range.End) {
			return true
		}
	}
	return len(list) == 0
}
