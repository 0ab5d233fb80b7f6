package k8s

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/policy"
)

const networkPolicy = `
# A database that its API alone reaches
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop_default, labels: {team: a}, uid: x}
spec:
  podSelector: {matchLabels: {com.docker.compose.service: db}}
  policyTypes: [Ingress, Egress]
  ingress:
  - from:
    - podSelector: {matchLabels: {com.docker.compose.service: web, tier: "1"}}
    - namespaceSelector: {}
      podSelector:
        matchExpressions:
        - {key: tier, operator: NotIn, values: [b, a]}
        - {key: app, operator: Exists}
    - ipBlock: {cidr: 10.1.2.3/8, except: [10.0.0.0/9]}
    ports:
    - {port: 5432}
    - {protocol: UDP, port: 100, endPort: 200}
    - {protocol: SCTP}
    - {port: web}
  - {}
  egress:
  - to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}}]
`

const clusterPolicy = `
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: no-lan}
spec:
  tier: Admin
  priority: 10
  subject: {namespaces: {matchLabels: {team: a}}}
  ingress:
  - name: monitoring
    action: Pass
    from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: prometheus}}}}]
    protocols: [{destinationNamedPort: metrics}]
  egress:
  - action: Deny
    to: [{networks: [10.0.0.0/8, "fd00::/8"]}, {namespaces: {}}]
    protocols:
    - tcp: {destinationPort: {number: 22}}
    - udp: {destinationPort: {range: {start: 1, end: 1024}}}
`

// accepting is a policy that accepts what it would deny.
func accepting(text string) string { return strings.Replace(text, "action: Deny", "action: Accept", 1) }

const namesPolicy = `
apiVersion: policy.networking.k8s.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: names}
spec:
  tier: Admin
  priority: 10
  subject: {namespaces: {}}
  egress:
  - action: Accept
    to: [{domainNames: [API.github.com., "*.pypi.org"]}, {networks: [192.0.2.0/24]}]
`

func TestParse(t *testing.T) {
	list, err := Parse([]byte(networkPolicy + "---\n" + clusterPolicy + "---\n" + namesPolicy))
	if err != nil {
		t.Fatal(err)
	}
	want := []policy.Policy{{
		Key:             policy.Key{Kind: policy.NetworkPolicy, Network: "shop_default", Name: "db"},
		Subject:         policy.Set{Network: "shop_default", Endpoints: label("com.docker.compose.service", "db")},
		IsolatesIngress: true, IsolatesEgress: true,
		Ingress: []policy.Rule{{
			Action: policy.Accept,
			Peers: []policy.Set{
				{Network: "shop_default", Endpoints: append(label("com.docker.compose.service", "web"), label("tier", "1")...)},
				{Endpoints: policy.Selector{{Key: "app", Op: policy.Exists}, {Key: "tier", Op: policy.NotIn, Values: []string{"a", "b"}}}},
			},
			Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Except: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/9")}}},
			Ports: []policy.Port{
				{Proto: policy.TCP, From: 5432, To: 5432}, {Proto: policy.UDP, From: 100, To: 200}, {Proto: policy.SCTP, To: 65535}, {Proto: policy.TCP, Name: "web"},
			},
		}, {Action: policy.Accept, AnyPeer: true, AnyPort: true}},
		Egress: []policy.Rule{{Action: policy.Accept, AnyPort: true, Peers: []policy.Set{{Networks: label(policy.MetadataName, "other")}}}},
	}, {
		Key:  policy.Key{Kind: policy.ClusterNetworkPolicy, Name: "no-lan"},
		Tier: policy.Admin, Priority: 10, Subject: policy.Set{Networks: label("team", "a")},
		Ingress: []policy.Rule{{Name: "monitoring", Action: policy.Pass, Peers: []policy.Set{{Endpoints: label("app", "prometheus")}}, Ports: []policy.Port{{Name: "metrics"}}}},
		Egress: []policy.Rule{{
			Action: policy.Drop, Peers: []policy.Set{{}},
			Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}, {Prefix: netip.MustParsePrefix("fd00::/8")}},
			Ports:  []policy.Port{{Proto: policy.TCP, From: 22, To: 22}, {Proto: policy.UDP, From: 1, To: 1024}},
		}},
	}, {
		Key: policy.Key{Kind: policy.ClusterNetworkPolicy, Name: "names"}, Tier: policy.Admin, Priority: 10,
		Egress: []policy.Rule{{
			Action: policy.Accept, Domains: []policy.Domain{"api.github.com", "*.pypi.org"}, Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("192.0.2.0/24")}}, AnyPort: true,
		}},
	}}
	for i := range want {
		if i >= len(list) || !reflect.DeepEqual(list[i], want[i]) {
			t.Errorf("read\n%+v\nwant\n%+v", list[i], want[i])
		}
	}
	again, err := Parse(FormatAll(list))
	if err != nil || !reflect.DeepEqual(again, list) {
		t.Errorf("%s\nis read as\n%+v, %v", FormatAll(list), again, err)
	}
}

func label(key, value string) policy.Selector {
	return policy.Selector{{Key: key, Op: policy.In, Values: []string{value}}}
}

// TestPolicyTypes: what is isolated where policyTypes does not say it.
func TestPolicyTypes(t *testing.T) {
	for _, c := range []struct {
		spec            string
		ingress, egress bool
		rules           int
	}{
		{"podSelector: {}", true, false, 0},
		{"policyTypes: []", true, false, 0},
		{"ingress: []", true, false, 0},
		{"egress: []", true, false, 0},
		{"egress: [{}]", true, true, 1},
		{"{policyTypes: [Egress]}", false, true, 0},
		{"{policyTypes: [Egress], ingress: [{}]}", false, true, 0},
		{"{policyTypes: [Ingress], egress: [{}]}", true, false, 0},
		{"{policyTypes: [Ingress, Egress], ingress: [{}], egress: [{}]}", true, true, 2},
	} {
		list, err := Parse([]byte("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a, namespace: b}\nspec:\n  " + c.spec))
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		p := list[0]
		if p.IsolatesIngress != c.ingress || p.IsolatesEgress != c.egress || len(p.Ingress)+len(p.Egress) != c.rules {
			t.Errorf("%s: %+v", c.spec, p)
		}
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	np := func(spec string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a, namespace: b}\nspec:\n  " + spec
	}
	rule := func(r string) string { return np("ingress: [" + r + "]") }
	cnp := func(spec string) string {
		return "apiVersion: policy.networking.k8s.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: a}\nspec: {tier: Admin, priority: 1, subject: {namespaces: {}}, " + spec + "}"
	}
	crule := func(r string) string { return cnp("egress: [{action: Deny, to: [{namespaces: {}}], " + r + "}]") }
	cpeer := func(p string) string { return cnp("egress: [{action: Deny, to: [" + p + "]}]") }
	for _, c := range []struct{ text, says string }{
		{"", "has no policy"},
		{"---\n# nothing\n---\n", "has no policy"},
		{"a: [", "document 1 is no YAML"},
		{"just words", "document 1, line 1: the policy: is a text; must be a mapping"},
		{"kind: NetworkPolicy", "apiVersion is missing"},
		{"kind: Pod\napiVersion: v1", `kind "Pod" of apiVersion "v1" is not supported; allowed: NetworkPolicy`},
		{"kind: AdminNetworkPolicy\napiVersion: policy.networking.k8s.io/v1alpha1", "write a ClusterNetworkPolicy"},
		{strings.Replace(np("{}"), "/v1", "/v2", 1), "networking.k8s.io/v2"},
		{strings.Replace(np("{}"), "namespace: b", "", 1), "line 3: metadata: namespace (the network's name) is missing"},
		{strings.Replace(np("{}"), "name: a", "name: <b>", 1), `metadata.name: "<b>" is no name`},
		{strings.Replace(np("{}"), "namespace: b", "namespace: b<", 1), `"b<" is no name of a network`},
		{strings.Split(np("{}"), "spec:")[0], "the policy: spec is missing"},
		{np("podSelektor: {}"), "line 5: spec.podSelektor: unknown field; allowed here: podSelector, policyTypes, ingress, egress"},
		{np("podSelector: {matchLables: {}}"), "spec.podSelector.matchLables: unknown field; allowed here: matchLabels, matchExpressions"},
		{np("podSelector: {matchLabels: {a: 1}}"), `spec.podSelector.matchLabels.a: "1" is a number; put it in quotes`},
		{np("podSelector: {matchLabels: {a: yes}}"), "put it in quotes"},
		{np("podSelector: {matchLabels: {a: null}}"), "put it in quotes"},
		{np("podSelector: {matchLabels: {a: b, a: c}}"), "is there twice"},
		{np("podSelector: {matchLabels: {? [a] : b}}"), "is a list; must be a text"},
		{np("podSelector: {matchExpressions: [{key: a, operator: Is}]}"), `"Is" is not allowed; must be In, NotIn, Exists, DoesNotExist`},
		{np("podSelector: {matchExpressions: [{key: a, operator: In}]}"), "In needs at least one"},
		{np("podSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}"), "Exists takes no values"},
		{np("podSelector: {matchExpressions: [{operator: Exists}]}"), "matchExpressions[0]: key is missing"},
		{np("podSelector: []"), "spec.podSelector: is a list; must be a mapping"},
		{np("policyTypes: [ingress]"), `"ingress" is not allowed; must be Ingress, Egress`},
		{np("ingress: [null]"), "spec.ingress[0]: is empty"},
		{np("ingress: {}"), "spec.ingress: is a mapping; must be a list"},
		{rule("{to: []}"), "spec.ingress[0].to: unknown field; allowed here: ports, from"},
		{rule("{from: [{}]}"), "spec.ingress[0].from[0]: selects nobody"},
		{rule("{from: [{podSelector: null}]}"), "selects nobody"},
		{rule("{from: [{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}]}"), "stands alone"},
		{rule("{from: [{ipBlock: {}}]}"), "cidr is missing"},
		{rule("{from: [{ipBlock: {cidr: 10.0.0.0}}]}"), "is no range of addresses"},
		{rule("{from: [{ipBlock: {cidr: '::ffff:10.0.0.0/100'}}]}"), "is no range of addresses"},
		{rule("{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/9]}}]}"), "11.0.0.0/9 is no part of 10.0.0.0/8"},
		{rule("{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/8]}}]}"), "is no part of"},
		{rule("{ports: [{protocol: tcp}]}"), "must be TCP, UDP, SCTP"},
		{rule("{ports: [{port: 0}]}"), "no whole number from 1 to 65535"},
		{rule("{ports: [{port: 65536}]}"), "no whole number from 1 to 65535"},
		{rule("{ports: [{port: 0x50}]}"), "no whole number from 1 to 65535"},
		{rule("{ports: [{port: '80'}]}"), "a number without quotes"},
		{rule("{ports: [{endPort: 80}]}"), "needs a port"},
		{rule("{ports: [{port: web, endPort: 80}]}"), "needs a port that is a number"},
		{rule("{ports: [{port: 90, endPort: 80}]}"), "from 90 to 65535"},
		{cnp("tier: Baseline"), "is there twice"},
		{strings.Replace(cnp("egress: []"), "Admin", "Middle", 1), "must be Admin, Baseline"},
		{strings.Replace(cnp("egress: []"), "priority: 1", "priority: 1001", 1), "from 0 to 1000"},
		{strings.Replace(cnp("egress: []"), "priority: 1,", "", 1), "priority is missing"},
		{strings.Replace(cnp("egress: []"), "namespaces: {}", "", 1), "has 0 of its fields; write exactly one"},
		{strings.Replace(cnp("egress: []"), "namespaces: {}", "namespaces: {}, pods: {podSelector: {}}", 1), "has 2 of its fields"},
		{strings.Replace(cnp("egress: []"), "name: a", "name: a, namespace: b", 1), "metadata.namespace: unknown field"},
		{cnp("egress: [{action: Deny}]"), "spec.egress[0]: to is missing"},
		{cnp("egress: [{to: [{namespaces: {}}]}]"), "action is missing"},
		{cnp("egress: [{action: Drop, to: [{namespaces: {}}]}]"), "must be Accept, Deny, Pass, Reject"},
		{cnp("egress: [{action: reject, to: [{namespaces: {}}]}]"), `"reject" is not allowed`},
		{cnp("ingress: [{action: Deny, from: [{networks: [10.0.0.0/8]}]}]"), "networks: unknown field; allowed here: namespaces, pods"},
		{cpeer("{nodes: {}}"), "hosts cannot be selected"},
		{cpeer("{domainNames: [a.b]}"), "is for rules that Accept"},
		{accepting(cpeer("{domainNames: []}")), "is an empty list; write at least one name"},
		{accepting(cpeer("{domainNames: ['*']}")), "is no name with a dot in it"},
		{accepting(cpeer("{domainNames: ['a.*.b']}")), "is no name with a dot in it"},
		{accepting(cpeer("{domainNames: [192.0.2.1]}")), "ends in a number"},
		{accepting(cpeer("{domainNames: [a.b], networks: [10.0.0.0/8]}")), "has 2 of its fields"},
		{cpeer("{networks: []}"), "is an empty list"},
		{cpeer("{networks: [10.0.0.1/8]}"), "write 10.0.0.0/8"},
		{cpeer("{pods: {namespaceSelector: {}}}"), "podSelector is missing"},
		{crule("protocols: []"), "leave it out for all protocols"},
		{crule("protocols: [{tcp: {}}]"), "destinationPort is missing"},
		{crule("protocols: [{tcp: {destinationPort: {}}}]"), "either number or range"},
		{crule("protocols: [{tcp: {destinationPort: {number: 1, range: {start: 1, end: 2}}}}]"), "either number or range"},
		{crule("protocols: [{tcp: {destinationPort: {range: {start: 2, end: 2}}}}]"), "from 3 to 65535"},
		{crule("protocols: [{icmp: {}}]"), "unknown field; allowed here: tcp, udp, sctp, destinationNamedPort"},
		{cnp("egress: [{action: Deny, to: [{networks: [10.0.0.0/8]}], protocols: [{destinationNamedPort: web}]}]"), "domainNames have no named ports"},
		{crule("name: " + strings.Repeat("x", 101)), "at most 100"},
		{cnp("egress: [" + strings.Repeat("{action: Deny, to: [{namespaces: {}}]},", 26) + "]"), "has 26 items; at most 25"},
		{np("{}") + "\n---\n" + np("{}"), "NetworkPolicy b/a is in document 1 already"},
		{"kind: List\napiVersion: v1\nitems: [{kind: List, apiVersion: v1, items: []}]", "items[0]: is a list in a list"},
		{"kind: List\napiVersion: v1\nitems: []", "has no policy"},
		{np("{<<: {podSelector: {}}}"), "<< is not supported"},
		{np("podSelector: !x {}"), "must be a mapping"},
		{np("podSelector: {matchLabels: {a: \"\\e[2J\"}}"), "control character"},
	} {
		list, err := Parse([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s\nis read as %+v, %v; the error should say %q", c.text, list, err, c.says)
		}
	}
}

// TestHugeTexts: what is too much is said at once.
func TestHugeTexts(t *testing.T) {
	head := "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a, namespace: b}\nspec:\n"
	var labels, bomb, documents strings.Builder
	for i := range 1_000_000 {
		fmt.Fprintf(&labels, "      label%d: x\n", i)
	}
	bomb.WriteString("x:\n- &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := range 30 {
		fmt.Fprintf(&bomb, "- &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i+1, i, i, i, i, i, i, i, i, i)
	}
	for i := range 5000 {
		fmt.Fprintf(&documents, "---\n%s  podSelector: {}\n", strings.Replace(head, "name: a", fmt.Sprint("name: a", i), 1))
	}
	many := strings.Builder{}
	for i := range 30_000 {
		fmt.Fprintf(&many, "      l%d: x\n", i)
	}
	selfish := "spec: &s\n  podSelector: {matchLabels: *s}\n"
	fan := strings.Builder{} // within the fields, through aliases of policy lists
	fan.WriteString("kind: List\napiVersion: v1\nitems:\n- &p {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a, namespace: b}, spec: {ingress: [&r {from: [")
	for range 4000 {
		fan.WriteString("{podSelector: {}},")
	}
	fan.WriteString("]}")
	for range 4000 {
		fan.WriteString(",*r")
	}
	fan.WriteString("]}}\n")
	var holes strings.Builder
	for i := range 33 {
		fmt.Fprintf(&holes, "'fd00::%x',", i)
	}
	for _, c := range []struct{ name, text, says string }{
		{"exceptions", head + "  ingress: [{from: [{ipBlock: {cidr: '::/0', except: [" + strings.ReplaceAll(holes.String(), "',", "/128',") + "]}}]}]", "comes to 4225 ranges of addresses"},
		{"10 MB", head + "  # " + strings.Repeat("x", 10<<20), "split it into texts of at most"},
		{"a million labels", head + "  podSelector:\n    matchLabels:\n" + labels.String(), "split it into texts"},
		{"thirty thousand labels", head + "  podSelector:\n    matchLabels:\n" + many.String(), "has 30000 entries; at most 4096"},
		{"an alias bomb", head + "  podSelector: {}\n" + bomb.String(), "x: unknown field"},
		{"aliases in rules", fan.String(), "values, those of its aliases among them"},
		{"an alias of what it is in", strings.TrimSuffix(head, "spec:\n") + selfish, "must be a text"},
		{"depth", head + "  podSelector: " + strings.Repeat("{a: ", 5000) + strings.Repeat("}", 5000), "unknown field"},
		{"more depth", head + "  podSelector: " + strings.Repeat("[", 500_000), "is no YAML"},
		{"thousands of documents", documents.String(), "more than 1000 documents"},
		{"a line", head + "  podSelector: {matchLabels: {a: '" + strings.Repeat("x", 1_000_000) + "'}}", "split it into policies"},
	} {
		begin := time.Now()
		_, err := Parse([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %.300v; the error should say %q", c.name, err, c.says)
		}
		t.Logf("%s: %s, %.200v", c.name, time.Since(begin).Round(time.Millisecond), err)
	}
}

// FuzzParse: no text makes it fail otherwise than by an error, and what it reads it writes.
func FuzzParse(f *testing.F) {
	f.Add([]byte(networkPolicy))
	f.Add([]byte(clusterPolicy))
	f.Add([]byte(egressPolicy))
	f.Add([]byte("kind: List\napiVersion: v1\nitems: [{}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := Stored(text); err != nil && p.Kind != 0 && p.Name == "" {
			t.Fatalf("a policy without a name: %+v, %v", p, err)
		}
		list, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(FormatAll(list))
		if err != nil || !reflect.DeepEqual(list, again) {
			t.Fatalf("%+v\nis written as\n%s\nand read as\n%+v, %v", list, FormatAll(list), again, err)
		}
	})
}
