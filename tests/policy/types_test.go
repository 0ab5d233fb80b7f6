package policy_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	api "sigs.k8s.io/network-policy-api/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/k8s"
)

// TestDrawnPolicies: policies of the API's own types mean the same to the oracle, which reads the
// types, and to package policy, which reads their YAML; and so does what it writes of them.
func TestDrawnPolicies(t *testing.T) {
	byName := 0 // connections of which a rule by name is said to match
	rapid.Check(t, func(t *rapid.T) {
		var w policy.World
		o := oracle{networks: map[string]map[string]string{}, told: map[string][]string{}, named: &byName}
		for i := range 3 {
			name := fmt.Sprint("n", i)
			w.Networks = append(w.Networks, policy.Network{Name: name, Labels: drawLabels(t)})
			o.networks[name] = map[string]string{policy.MetadataName: name}
			for k, v := range w.Networks[i].Labels {
				o.networks[name][k] = v
			}
		}
		for i := range rapid.IntRange(2, 5).Draw(t, "endpoints") {
			e := policy.Endpoint{
				ID: fmt.Sprint("e", i), Network: fmt.Sprint("n", rapid.IntRange(0, 2).Draw(t, "network")), Local: true, Known: true,
				Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}, Labels: drawLabels(t), Ports: map[string]policy.NamedPort{},
			}
			for _, name := range []string{"web", "dns"} {
				if rapid.Bool().Draw(t, name) {
					e.Ports[name] = policy.NamedPort{Proto: rapid.SampledFrom([]uint8{policy.TCP, policy.UDP}).Draw(t, "proto"), Port: uint16(rapid.IntRange(1, 4).Draw(t, "port"))}
				}
			}
			w.Endpoints = append(w.Endpoints, e)
			for _, name := range some(t, 1, 3, func(t *rapid.T) string {
				return rapid.SampledFrom([]string{"example.com", "x.example.com", "a.b.example.com", "notexample.com"}).Draw(t, "told")
			}) {
				w.Answers = append(w.Answers, policy.Answer{Endpoint: e.ID, Name: name, Addr: addrOf(nil)})
				o.told[e.ID] = append(o.told[e.ID], name)
			}
		}
		for i := range rapid.IntRange(1, 4).Draw(t, "policies") {
			var object any
			var back func(text []byte) error
			if rapid.Bool().Draw(t, "cluster") {
				p := drawCluster(t, fmt.Sprint("p", i))
				o.cluster = append(o.cluster, p)
				object, back = p, func(text []byte) error { return strictly(text, &o.cluster[len(o.cluster)-1]) }
			} else {
				p := drawNetwork(t, fmt.Sprint("p", i))
				o.network = append(o.network, p)
				object, back = p, func(text []byte) error { return strictly(text, &o.network[len(o.network)-1]) }
			}
			text, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			list, err := k8s.Parse(text)
			if err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			w.Policies = append(w.Policies, list...)
			if rapid.Bool().Draw(t, "written") { // from here on the oracle has what Format wrote
				if err := back(k8s.Format(list[0])); err != nil {
					t.Fatalf("%v in\n%s", err, k8s.Format(list[0]))
				}
			}
		}
		ends := []*policy.Endpoint{nil}
		for i := range w.Endpoints {
			ends = append(ends, &w.Endpoints[i])
		}
		for _, from := range ends {
			for _, to := range ends {
				for proto, number := range protocols {
					for port := uint16(1); port <= 5; port++ {
						c := connection{from, to, addrOf(from), addrOf(to), proto, port}
						want, got := o.allows(c), w.Verdict(policy.Peer{Addr: c.fromAddr}, policy.Peer{Addr: c.toAddr}, number, port)
						if got.Allowed != want {
							t.Fatalf("from %s to %s %d/%s: %+v, the oracle says %t", c.fromAddr, c.toAddr, port, proto, got, want)
						}
					}
				}
			}
		}
	})
	t.Logf("rules by name matched %d times", byName)
	if byName == 0 && !testing.Short() {
		t.Error("no rule by name matched: the test shows little")
	}
}

func addrOf(e *policy.Endpoint) netip.Addr {
	if e == nil {
		return netip.MustParseAddr("10.0.0.14")
	}
	return e.Addrs[0]
}

// strictly reads YAML into one of the API's types.
func strictly[T any](text []byte, into *T) error {
	var fresh T
	err := yaml.UnmarshalStrict(text, &fresh)
	*into = fresh
	return err
}

func drawLabels(t *rapid.T) map[string]string {
	l := map[string]string{}
	for _, k := range []string{"a", "b"} {
		if v := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, k); v != "" {
			l[k] = v
		}
	}
	return l
}

func drawSelector(t *rapid.T) (s metav1.LabelSelector) {
	if rapid.Bool().Draw(t, "labels") {
		s.MatchLabels = drawLabels(t)
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "expressions") {
		r := metav1.LabelSelectorRequirement{
			Key:      rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"),
			Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"}).Draw(t, "operator"),
		}
		if r.Operator == "In" || r.Operator == "NotIn" {
			r.Values = rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y"}), 1, 2).Draw(t, "values")
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	return s
}

func drawNetworkSelector(t *rapid.T) metav1.LabelSelector {
	if rapid.IntRange(0, 3).Draw(t, "by name") == 0 {
		return metav1.LabelSelector{MatchLabels: map[string]string{policy.MetadataName: fmt.Sprint("n", rapid.IntRange(0, 2).Draw(t, "network"))}}
	}
	return drawSelector(t)
}

func drawPrefix(t *rapid.T, least int) netip.Prefix {
	bits := rapid.IntRange(least, 32).Draw(t, "bits")
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 15).Draw(t, "address"))}), bits)
}

func some[T any](t *rapid.T, least, most int, draw func(*rapid.T) T) (list []T) {
	for range rapid.IntRange(least, most).Draw(t, "count") {
		list = append(list, draw(t))
	}
	return list
}

func drawNetwork(t *rapid.T, name string) (p networkingv1.NetworkPolicy) {
	p.APIVersion, p.Kind = "networking.k8s.io/v1", "NetworkPolicy"
	p.Name, p.Namespace = name, fmt.Sprint("n", rapid.IntRange(0, 2).Draw(t, "network"))
	p.Spec.PodSelector = drawSelector(t)
	p.Spec.PolicyTypes = rapid.SampledFrom([][]networkingv1.PolicyType{nil, {"Ingress"}, {"Egress"}, {"Ingress", "Egress"}}).Draw(t, "types")
	peer := func(t *rapid.T) (peer networkingv1.NetworkPolicyPeer) {
		kind := rapid.IntRange(0, 3).Draw(t, "peer")
		if kind == 0 {
			block := &networkingv1.IPBlock{}
			prefix := drawPrefix(t, 28)
			block.CIDR = prefix.String()
			for range rapid.IntRange(0, 2).Draw(t, "except") {
				if e := drawPrefix(t, prefix.Bits()); e.Bits() > prefix.Bits() && prefix.Contains(e.Addr()) {
					block.Except = append(block.Except, e.String())
				}
			}
			return networkingv1.NetworkPolicyPeer{IPBlock: block}
		}
		if kind&1 != 0 {
			s := drawSelector(t)
			peer.PodSelector = &s
		}
		if kind&2 != 0 {
			s := drawNetworkSelector(t)
			peer.NamespaceSelector = &s
		}
		return peer
	}
	port := func(t *rapid.T) (port networkingv1.NetworkPolicyPort) {
		if proto := rapid.SampledFrom([]corev1.Protocol{"", "TCP", "UDP", "SCTP"}).Draw(t, "proto"); proto != "" {
			port.Protocol = &proto
		}
		switch rapid.IntRange(0, 3).Draw(t, "port") {
		case 0:
			s := intstr.FromString(rapid.SampledFrom([]string{"web", "dns"}).Draw(t, "name"))
			port.Port = &s
		case 1:
			n := intstr.FromInt32(rapid.Int32Range(1, 4).Draw(t, "number"))
			port.Port = &n
		case 2:
			n := intstr.FromInt32(rapid.Int32Range(1, 4).Draw(t, "from"))
			end := rapid.Int32Range(n.IntVal, 5).Draw(t, "to")
			port.Port, port.EndPort = &n, &end
		}
		return port
	}
	p.Spec.Ingress = some(t, 0, 2, func(t *rapid.T) networkingv1.NetworkPolicyIngressRule {
		return networkingv1.NetworkPolicyIngressRule{From: some(t, 0, 2, peer), Ports: some(t, 0, 2, port)}
	})
	p.Spec.Egress = some(t, 0, 2, func(t *rapid.T) networkingv1.NetworkPolicyEgressRule {
		return networkingv1.NetworkPolicyEgressRule{To: some(t, 0, 2, peer), Ports: some(t, 0, 2, port)}
	})
	return p
}

func drawCluster(t *rapid.T, name string) (p api.ClusterNetworkPolicy) {
	p.APIVersion = "policy.networking.k8s.io/" + rapid.SampledFrom([]string{"v1alpha2", "v1beta1"}).Draw(t, "version")
	p.Kind, p.Name = "ClusterNetworkPolicy", name
	p.Spec.Tier = rapid.SampledFrom([]api.Tier{"Admin", "Admin", "Baseline"}).Draw(t, "tier")
	p.Spec.Priority = rapid.Int32Range(0, 2).Draw(t, "priority")
	set := func(t *rapid.T) (namespaces *metav1.LabelSelector, pods *api.NamespacedPod) {
		n := drawNetworkSelector(t)
		if rapid.Bool().Draw(t, "namespaces") {
			return &n, nil
		}
		return nil, &api.NamespacedPod{NamespaceSelector: n, PodSelector: drawSelector(t)}
	}
	p.Spec.Subject.Namespaces, p.Spec.Subject.Pods = set(t)
	actions := rapid.SampledFrom([]api.ClusterNetworkPolicyRuleAction{"Accept", "Deny", "Pass"})
	port := func(t *rapid.T) *api.Port {
		from := rapid.Int32Range(1, 4).Draw(t, "from")
		if rapid.Bool().Draw(t, "range") {
			return &api.Port{Range: &api.PortRange{Start: from, End: rapid.Int32Range(from+1, 6).Draw(t, "to")}}
		}
		return &api.Port{Number: from}
	}
	protocol := func(t *rapid.T) (p api.ClusterNetworkPolicyProtocol) {
		switch rapid.IntRange(0, 2).Draw(t, "protocol") {
		case 0:
			p.TCP = &api.ClusterNetworkPolicyProtocolTCP{DestinationPort: port(t)}
		case 1:
			p.UDP = &api.ClusterNetworkPolicyProtocolUDP{DestinationPort: port(t)}
		default:
			p.SCTP = &api.ClusterNetworkPolicyProtocolSCTP{DestinationPort: port(t)}
		}
		return p
	}
	named := func(t *rapid.T) (p api.ClusterNetworkPolicyProtocol) {
		if rapid.Bool().Draw(t, "named") {
			return api.ClusterNetworkPolicyProtocol{DestinationNamedPort: rapid.SampledFrom([]string{"web", "dns"}).Draw(t, "name")}
		}
		return protocol(t)
	}
	p.Spec.Ingress = some(t, 0, 3, func(t *rapid.T) api.ClusterNetworkPolicyIngressRule {
		return api.ClusterNetworkPolicyIngressRule{Action: actions.Draw(t, "action"), Protocols: some(t, 0, 2, named), From: some(t, 1, 2, func(t *rapid.T) (p api.ClusterNetworkPolicyIngressPeer) {
			p.Namespaces, p.Pods = set(t)
			return p
		})}
	})
	p.Spec.Egress = some(t, 0, 3, func(t *rapid.T) api.ClusterNetworkPolicyEgressRule {
		ports, action := named, actions.Draw(t, "action")
		return api.ClusterNetworkPolicyEgressRule{Action: action, To: some(t, 1, 2, func(t *rapid.T) (p api.ClusterNetworkPolicyEgressPeer) {
			if action == "Accept" && rapid.Bool().Draw(t, "names") {
				ports = protocol // nor have names
				p.DomainNames = some(t, 1, 2, func(t *rapid.T) api.DomainName {
					return rapid.SampledFrom([]api.DomainName{"example.com", "*.example.com", "X.Example.com.", "*.b.example.com"}).Draw(t, "name")
				})
				return p
			}
			if rapid.IntRange(0, 2).Draw(t, "networks") == 0 {
				ports = protocol // networks have no named ports
				p.Networks = some(t, 1, 2, func(t *rapid.T) api.CIDR { return api.CIDR(drawPrefix(t, 28).Masked().String()) })
				return p
			}
			p.Namespaces, p.Pods = set(t)
			return p
		}), Protocols: some(t, 0, 2, ports)}
	})
	return p
}

// TestVersionsAreOne: v1alpha2 and v1beta1 have the same fields, so one reader is enough.
func TestVersionsAreOne(t *testing.T) {
	a, b := reflect.TypeFor[v1alpha2.ClusterNetworkPolicySpec](), reflect.TypeFor[api.ClusterNetworkPolicySpec]()
	if x, y := shape(a), shape(b); x != y {
		t.Errorf("v1alpha2 is\n%s\nv1beta1 is\n%s", x, y)
	}
}

// shape is a type by the names of its fields.
func shape(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return t.Kind().String() + " " + shape(t.Elem())
	case reflect.Struct:
		s := "{"
		for i := range t.NumField() {
			s += t.Field(i).Tag.Get("json") + " " + shape(t.Field(i).Type) + ";"
		}
		return s + "}"
	}
	return t.Kind().String()
}
