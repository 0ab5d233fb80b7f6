package k8s

import (
	"reflect"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/policy"
)

// TestStoredFailsClosed: what a later release has written, and this one does not understand, opens
// nothing.
func TestStoredFailsClosed(t *testing.T) {
	all := policy.Rule{Action: policy.Drop, AnyPeer: true, AnyPort: true}
	whole := func(text string) policy.Policy {
		list, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return list[0]
	}
	for _, c := range []struct {
		name, text, from, to string
		change               func(p *policy.Policy)
	}{
		{"nothing new", networkPolicy, "", "", func(*policy.Policy) {}},
		{"a new field of a peer", networkPolicy, "- ipBlock: {", "- ipBlock: {new: 1, ", func(p *policy.Policy) { p.Ingress = p.Ingress[1:] }},
		{"a new field of a rule", networkPolicy, "- {}", "- {new: 1}", func(p *policy.Policy) { p.Ingress = p.Ingress[:1] }},
		{"a new protocol", networkPolicy, "protocol: SCTP", "protocol: QUIC", func(p *policy.Policy) { p.Ingress = p.Ingress[1:] }},
		{"a new field of the selector", networkPolicy, "podSelector: {match", "podSelector: {new: 1, match", func(p *policy.Policy) {
			p.Subject.Endpoints, p.Ingress, p.Egress = nil, nil, nil
		}},
		{"a new field of the spec", networkPolicy, "  egress:", "  new: 1\n  egress:", func(p *policy.Policy) { p.Subject.Endpoints, p.Ingress, p.Egress = nil, nil, nil }},
		{"nothing new in a tier", clusterPolicy, "", "", func(*policy.Policy) {}},
		{"a new peer of Pass", clusterPolicy, "from: [{pods", "from: [{new: {}}, {pods", func(p *policy.Policy) { p.Ingress = []policy.Rule{all} }},
		{"a new peer of Deny", clusterPolicy, "to: [{", "to: [{new: {}}, {", func(p *policy.Policy) { p.Egress = []policy.Rule{all} }},
		{"Reject", clusterPolicy, "action: Deny", "action: Reject", func(p *policy.Policy) { p.Egress[0].Action = policy.Reject }},
		{"a new action", clusterPolicy, "action: Deny", "action: Ask", func(p *policy.Policy) { p.Egress = []policy.Rule{all} }},
		{"a new peer of Accept", strings.Replace(clusterPolicy, "action: Deny", "action: Accept", 1), "to: [{", "to: [{new: {}}, {", func(p *policy.Policy) { p.Egress = nil }},
		{"a new subject", clusterPolicy, "subject: {", "subject: {new: 1, ", func(p *policy.Policy) {
			p.Subject, p.Priority, p.Ingress[0].Action = policy.Set{}, 0, policy.Drop
		}},
		{"a new subject of Accept", strings.Replace(clusterPolicy, "action: Deny", "action: Accept", 1), "subject: {", "subject: {new: 1, ", func(p *policy.Policy) {
			p.Subject, p.Priority, p.Ingress[0].Action, p.Egress = policy.Set{}, 0, policy.Drop, nil
		}},
		{"a new tier", clusterPolicy, "tier: Admin", "tier: Middle", func(p *policy.Policy) {
			p.Subject, p.Priority, p.Ingress[0].Action = policy.Set{}, 0, policy.Drop
		}},
	} {
		want := whole(c.text)
		c.change(&want)
		text := c.text
		if c.from != "" {
			text = strings.Replace(c.text, c.from, c.to, 1)
		}
		got, err := Stored([]byte(text))
		if (err == nil) != (text == c.text || c.name == "Reject") { // which releases before this one read, and dropped
			t.Errorf("%s: the error is %v", c.name, err)
		}
		if len(got.Ingress)+len(want.Ingress) == 0 {
			got.Ingress = want.Ingress
		}
		if len(got.Egress)+len(want.Egress) == 0 {
			got.Egress = want.Egress
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: read as\n%+v\nwant\n%+v", c.name, got, want)
		}
	}
	for _, text := range []string{"", "a: [", "kind: NewPolicy\napiVersion: v3", networkPolicy + "---" + clusterPolicy, "kind: List\napiVersion: v1\nitems: []",
		strings.Replace(networkPolicy, "name: db", "name: D", 1)} {
		if p, err := Stored([]byte(text)); err == nil || p.Kind != 0 {
			t.Errorf("%q is read as %+v, %v", text, p, err)
		}
	}
}
