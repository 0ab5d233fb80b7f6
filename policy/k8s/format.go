package k8s

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/grapevine-net/grapevine/policy"
)

type object = map[string]any

// Format writes a policy as YAML, such that Parse reads it as the same.
func Format(p policy.Policy) []byte {
	o := object{"kind": p.Kind.String()}
	switch p.Kind {
	case policy.NetworkPolicy:
		o["apiVersion"], o["metadata"], o["spec"] = networkingV1, object{"namespace": p.Network, "name": p.Name}, networkSpec(p)
	case policy.EgressNetworkPolicy:
		o["apiVersion"], o["metadata"], o["spec"] = openshiftV1, object{"namespace": p.Network, "name": p.Name}, egressSpec(p)
	default:
		o["apiVersion"], o["metadata"], o["spec"] = clusterBeta, object{"name": p.Name}, clusterSpec(p)
	}
	if a := annotationsOf(p); len(a) > 0 {
		o["metadata"].(object)["annotations"] = a
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(o); err != nil {
		panic(fmt.Sprintf("policy %s as YAML: %v", p.Key, err)) // a buffer takes everything, and these are maps, lists, texts and numbers
	}
	return b.Bytes()
}

// FormatAll writes policies as one text.
func FormatAll(list []policy.Policy) []byte {
	var texts [][]byte
	for _, p := range list {
		texts = append(texts, Format(p))
	}
	return bytes.Join(texts, []byte("---\n"))
}

func networkSpec(p policy.Policy) object {
	spec := object{"podSelector": selector(p.Subject.Endpoints)}
	var types []any
	if p.IsolatesIngress {
		types = append(types, "Ingress")
	}
	if p.IsolatesEgress {
		types = append(types, "Egress")
	}
	spec["policyTypes"] = types
	put(spec, "ingress", networkRules(p.Ingress, "from"))
	put(spec, "egress", networkRules(p.Egress, "to"))
	return spec
}

// put sets a list that is not empty.
func put(o object, name string, list []any) {
	if len(list) > 0 {
		o[name] = list
	}
}

func networkRules(rules []policy.Rule, peers string) (list []any) {
	for _, r := range rules {
		o := object{}
		var who, ports []any
		for _, s := range r.Peers {
			peer := object{"podSelector": selector(s.Endpoints)}
			if s.Network == "" {
				peer["namespaceSelector"] = selector(s.Networks)
			}
			who = append(who, peer)
		}
		for _, b := range r.Blocks {
			block := object{"cidr": b.Prefix.String()}
			var except []any
			for _, e := range b.Except {
				except = append(except, e.String())
			}
			put(block, "except", except)
			who = append(who, object{"ipBlock": block})
		}
		for _, p := range r.Ports {
			port := object{"protocol": protocolName(p.Proto)}
			switch {
			case p.Name != "":
				port["port"] = p.Name
			case p.From > 0:
				port["port"] = int(p.From)
				if p.To > p.From {
					port["endPort"] = int(p.To)
				}
			}
			ports = append(ports, port)
		}
		put(o, peers, who)
		put(o, "ports", ports)
		list = append(list, o)
	}
	return list
}

func protocolName(proto uint8) string {
	for name, p := range protocols {
		if p == proto {
			return name
		}
	}
	return fmt.Sprint(proto)
}

// selector writes a selector: what one value is asked of in matchLabels, the rest as expressions.
func selector(s policy.Selector) object {
	o, labels := object{}, object{}
	var rest []any
	for _, q := range s {
		if _, twice := labels[q.Key]; q.Op == policy.In && len(q.Values) == 1 && !twice {
			labels[q.Key] = q.Values[0]
			continue
		}
		e := object{"key": q.Key, "operator": q.Op.String()}
		var values []any
		for _, v := range q.Values {
			values = append(values, v)
		}
		put(e, "values", values)
		rest = append(rest, e)
	}
	if len(labels) > 0 {
		o["matchLabels"] = labels
	}
	put(o, "matchExpressions", rest)
	return o
}

func clusterSpec(p policy.Policy) object {
	spec := object{"tier": p.Tier.String(), "priority": p.Priority, "subject": clusterSet(p.Subject)}
	put(spec, "ingress", clusterRules(p.Ingress, "from"))
	put(spec, "egress", clusterRules(p.Egress, "to"))
	return spec
}

func clusterSet(s policy.Set) object {
	if len(s.Endpoints) == 0 {
		return object{"namespaces": selector(s.Networks)}
	}
	return object{"pods": object{"namespaceSelector": selector(s.Networks), "podSelector": selector(s.Endpoints)}}
}

func clusterRules(rules []policy.Rule, peers string) (list []any) {
	for _, r := range rules {
		o := object{"action": r.Action.String()}
		if r.Name != "" {
			o["name"] = r.Name
		}
		var who, ports, networks, names []any
		for _, s := range r.Peers {
			who = append(who, clusterSet(s))
		}
		for _, b := range r.Blocks {
			networks = append(networks, b.Prefix.String())
		}
		for part := range slices.Chunk(networks, maxClusterItems) {
			who = append(who, object{"networks": part})
		}
		for _, d := range r.Domains {
			names = append(names, string(d))
		}
		for part := range slices.Chunk(names, maxClusterItems) {
			who = append(who, object{"domainNames": part})
		}
		for _, p := range r.Ports {
			ports = append(ports, clusterPort(p))
		}
		put(o, peers, who)
		put(o, "protocols", ports)
		list = append(list, o)
	}
	return list
}

func clusterPort(p policy.Port) object {
	if p.Name != "" {
		return object{"destinationNamedPort": p.Name}
	}
	port := object{"number": int(p.From)}
	if p.To > p.From {
		port = object{"range": object{"start": int(p.From), "end": int(p.To)}}
	}
	return object{strings.ToLower(protocolName(p.Proto)): object{"destinationPort": port}}
}
