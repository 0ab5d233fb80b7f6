package k8s

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/policy"
)

const egressPolicy = `
apiVersion: network.openshift.io/v1
kind: EgressNetworkPolicy
metadata: {name: default, namespace: shop_default}
spec:
  egress:
  - {type: Allow, to: {dnsName: API.example.com.}}
  - {type: Allow, to: {cidrSelector: 192.0.2.0/24}}
  - {type: Deny, to: {cidrSelector: 0.0.0.0/0}}
`

func TestEgressPolicy(t *testing.T) {
	block := func(p string) []policy.Block { return []policy.Block{{Prefix: netip.MustParsePrefix(p)}} }
	want := policy.Policy{
		Key: policy.Key{Kind: policy.EgressNetworkPolicy, Network: "shop_default", Name: "default"}, Subject: policy.Set{Network: "shop_default"},
		Egress: []policy.Rule{
			{Action: policy.Accept, Domains: []policy.Domain{"api.example.com"}, AnyPort: true},
			{Action: policy.Accept, Blocks: block("192.0.2.0/24"), AnyPort: true},
			{Action: policy.Drop, Blocks: block("0.0.0.0/0"), AnyPort: true},
		},
	}
	for _, text := range []string{egressPolicy, string(Format(want)), "kind: EgressNetworkPolicyList\napiVersion: network.openshift.io/v1\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(egressPolicy), "\n", "\n  ")} {
		if list, err := Parse([]byte(text)); err != nil || len(list) != 1 || !reflect.DeepEqual(list[0], want) {
			t.Errorf("%s\nis read as\n%+v, %v", text, list, err)
		}
	}
	for _, c := range []struct{ from, to, says string }{
		{"type: Deny", "type: Reject", `spec.egress[2].type: "Reject" is not allowed; must be Allow, Deny`},
		{"{type: Deny, to", "{type: Deny, ports: [], to", "spec.egress[2].ports: unknown field"},
		{"cidrSelector: 0", "nodeSelector: {}, cidrSelector: 0", "spec.egress[2].to.nodeSelector: unknown field"},
		{"{cidrSelector: 192.0.2.0/24}", "{cidrSelector: 192.0.2.0/24, dnsName: a.b}", "spec.egress[1].to: write either cidrSelector or dnsName"},
		{"{cidrSelector: 192.0.2.0/24}", "{}", "spec.egress[1].to: write either cidrSelector or dnsName"},
		{"192.0.2.0/24", "192.0.2.1/24", "has bits behind its length; write 192.0.2.0/24"},
		{"192.0.2.0/24", "192.0.2.1", "is no range of addresses"},
		{"Allow, to: {dns", "Deny, to: {dns", "by another name would pass by one that denies"},
		{"API.example.com.", "localhost", "is no name with a dot"},
		{"  egress:\n", "  podSelector: {}\n  egress:\n", "spec.podSelector: unknown field"},
		{", namespace: shop_default", "", "namespace (the network's name) is missing"},
		{"openshift.io/v1", "openshift.io/v2", "EgressNetworkPolicy of network.openshift.io/v1"},
	} {
		if _, err := Parse([]byte(strings.Replace(egressPolicy, c.from, c.to, 1))); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s in place of %s: %v; the error should say %q", c.to, c.from, err, c.says)
		}
	}
	if _, err := Parse([]byte(egressPolicy[:strings.Index(egressPolicy, "  egress:")])); err == nil {
		t.Error("one without rules is read")
	}
	// What a later release wrote opens nothing.
	for _, c := range []struct {
		from, to string
		change   func(*policy.Policy)
	}{
		{"{type: Allow, to: {cidr", "{type: Allow, new: 1, to: {cidr", func(p *policy.Policy) { p.Egress = []policy.Rule{want.Egress[0], want.Egress[2]} }},
		{"{type: Deny, to", "{type: Deny, new: 1, to", func(p *policy.Policy) { p.Egress = []policy.Rule{want.Egress[0], want.Egress[1], everywhere()} }},
		{"type: Deny", "type: Ask", func(p *policy.Policy) { p.Egress = []policy.Rule{want.Egress[0], want.Egress[1], everywhere()} }},
		{"  egress:\n", "  new: 1\n  egress:\n", func(p *policy.Policy) { p.Egress = []policy.Rule{everywhere()} }},
	} {
		closed := want
		c.change(&closed)
		if p, err := Stored([]byte(strings.Replace(egressPolicy, c.from, c.to, 1))); err == nil || !reflect.DeepEqual(p, closed) {
			t.Errorf("%s: %+v, %v", c.to, p, err)
		}
	}
}
