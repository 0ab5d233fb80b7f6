package plain

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/policy"
)

func TestParse(t *testing.T) {
	for _, good := range []string{
		"none", "any", "web", "web:80", "web:80, job:8000-8099/udp", "shop_default/web:http", "tier=front:5432", "192.0.2.0/24:80", "192.0.2.7",
		"fd00::/64", "[fd00::/64]:80/sctp", "internet:443", "fd00::7", "a.b:dns/udp",
		"api.github.com:443", "*.pypi.org", "*.pypi.org:443, web:80",
	} {
		if _, err := Parse(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"":                                   "a part of it is empty",
		"web,":                               "a part of it is empty",
		"web:":                               "is no port",
		"web:0":                              "is no port",
		"web:65536":                          "is no port",
		"web:9-8":                            "is no port",
		"web:80/icmp":                        "write /tcp, /udp or /sctp",
		"web, none":                          "stands alone",
		"*":                                  "is nobody's name",
		"a.*.org":                            "is nobody's name",
		"*.pypi.org:https":                   "write the number",
		"web db":                             "is nobody's name",
		"=x":                                 "is nobody's name",
		"192.0.2.7/24":                       "write 192.0.2.0/24",
		"[fd00::]80":                         "behind the bracket",
		"192.0.2.0/33":                       "is no prefix",
		"tier=a b:80":                        "is nobody's name",
		"a/b/c":                              "is nobody's name",
		"::ffff:1.2.3.4":                     "is nobody's name",
		strings.Repeat("w,", maxParts) + "w": "more than 64 parts",
	} {
		if _, err := Parse(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", bad, err, want)
		}
	}
	if err := Check(map[string]string{FromLabel: "web:x!", ToLabel: "", OpenLabel: "yes"}); err == nil || strings.Count(err.Error(), "label grapevine.") < 3 {
		t.Errorf("check: %v", err)
	}
}

func endpoint(i int, network string, labels map[string]string) policy.Endpoint {
	return policy.Endpoint{
		ID: fmt.Sprint("e", i), Network: network, Local: true, Known: labels != nil, Labels: labels,
		Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), netip.MustParseAddr(fmt.Sprintf("fd00::%d", i))},
	}
}

func world(isolated, labelled []string, endpoints ...policy.Endpoint) policy.World {
	w := policy.World{Endpoints: endpoints}
	for _, n := range []string{"blue", "red"} {
		w.Networks = append(w.Networks, policy.Network{Name: n})
	}
	w.Policies = new(Maker).Policies(isolated, labelled, endpoints)
	return w
}

func named1(name string, more ...string) map[string]string {
	l := map[string]string{NameLabel: name}
	for i := 0; i+1 < len(more); i += 2 {
		l[more[i]] = more[i+1]
	}
	return l
}

// verdicts asks of connections FROM TO:PORT whether they are allowed.
func verdicts(t *testing.T, w policy.World, cases map[string]bool) {
	t.Helper()
	at := func(text string, v6 bool) policy.Peer {
		if a, err := netip.ParseAddr(text); err == nil {
			return policy.Peer{Addr: a}
		}
		for _, e := range w.Endpoints {
			if e.Labels[NameLabel] == text || e.ID == text {
				if v6 {
					return policy.Peer{Endpoint: e.ID, Addr: e.Addrs[1]}
				}
				return policy.Peer{Endpoint: e.ID, Addr: e.Addrs[0]}
			}
		}
		t.Fatalf("nobody is %s", text)
		return policy.Peer{}
	}
	for text, want := range cases {
		var from, to string
		var port uint16
		if _, err := fmt.Sscan(text, &from, &to, &port); err != nil {
			t.Fatal(err)
		}
		for _, v6 := range []bool{false, true} {
			if v := w.Verdict(at(from, v6), at(to, v6), policy.TCP, port); v.Allowed != want {
				t.Errorf("%s: %+v", text, v)
			}
		}
	}
}

func TestIsolate(t *testing.T) {
	w := world([]string{"blue"}, nil,
		endpoint(1, "blue", named1("front", OpenLabel, "true")), endpoint(2, "blue", named1("a")), endpoint(3, "blue", named1("b", OpenLabel, "no")),
		endpoint(4, "blue", nil), endpoint(5, "red", named1("c")), endpoint(6, "red", named1("d")))
	verdicts(t, w, map[string]bool{
		"a front 80": true, "front a 80": true, "a b 80": false, "b a 80": false, "a e4 80": false, "e4 a 80": false, "e4 front 80": true, "front e4 80": true,
		"c d 80": true, "c a 80": true, "192.0.2.1 a 80": true, "a 192.0.2.1 80": true,
	})
	v := w.Verdict(policy.Peer{Endpoint: "e2"}, policy.Peer{Endpoint: "e3"}, policy.TCP, 80)
	if got := v.Ingress.Rules[0].String(); got != "isolate of network blue: members reach only who is marked grapevine.open=true" {
		t.Error(got)
	}
	// A NetworkPolicy opens nothing of it.
	w.Policies = append(w.Policies, policy.Policy{
		Key: policy.Key{Kind: policy.NetworkPolicy, Network: "blue", Name: "all"}, Subject: policy.Set{Network: "blue"},
		IsolatesIngress: true, Ingress: []policy.Rule{{Action: policy.Accept, AnyPeer: true, AnyPort: true}},
	})
	verdicts(t, w, map[string]bool{"a front 80": true, "a b 80": false})
}

func TestLabels(t *testing.T) {
	compose := func(name, project, service string, more ...string) map[string]string {
		return named1(name, append([]string{ProjectLabel, project, ServiceLabel, service}, more...)...)
	}
	w := world(nil, nil,
		endpoint(1, "blue", compose("db", "shop", "sql", FromLabel, "web:5432, 192.0.2.0/24, tier=back:1-9")), endpoint(2, "blue", compose("x", "shop", "web")),
		endpoint(3, "blue", compose("y", "other", "web")), endpoint(4, "blue", named1("web")), endpoint(5, "blue", named1("z", "tier", "back")),
		endpoint(6, "blue", named1("job", ToLabel, "internet:443, db")), endpoint(7, "red", named1("web2", FromLabel, "none")),
		endpoint(8, "red", named1("odd", FromLabel, "web:http!")), endpoint(9, "red", named1("free")))
	verdicts(t, w, map[string]bool{
		"x db 5432": true, "x db 80": false, "y db 5432": false, "web db 5432": true, "z db 9": true, "z db 10": false,
		"job 192.0.2.1 443": true, "job 192.0.2.1 80": false, "job 10.0.0.99 443": false, "job x 443": false, "x job 80": true,
		"free web2 80": false, "free odd 80": false, "free free 80": true, "192.0.2.1 free 80": true, "web2 free 80": true,
	})
	v := w.Verdict(policy.Peer{Endpoint: "e3"}, policy.Peer{Endpoint: "e1"}, policy.TCP, 5432)
	if got := v.Ingress.Rules[0].String(); got != "label grapevine.from of sql: nobody else" {
		t.Error(got)
	}
	// What is made once is not made again.
	m := new(Maker)
	first := m.Policies(nil, nil, w.Endpoints)
	if again := m.Policies(nil, nil, w.Endpoints); len(first) != 4 || &again[0].Ingress[0] != &first[0].Ingress[0] {
		t.Errorf("%d policies, made twice", len(first))
	}
}

// TestNames: a label names domains. By an address that the container was told for one of them it passes, at the port
// of the label, and a NetworkPolicy may still deny it; who calls has no such name.
func TestNames(t *testing.T) {
	w := world(nil, nil, endpoint(1, "blue", named1("job", ToLabel, "api.example.com:443, *.pypi.org, db:5432")), endpoint(2, "blue", named1("db")), endpoint(3, "blue", named1("free")))
	told := func(name, addr string) {
		for _, e := range []string{"e1", "e3"} {
			w.Answers = append(w.Answers, policy.Answer{Endpoint: e, Name: name, Addr: netip.MustParseAddr(addr)})
		}
	}
	told("api.example.com", "192.0.2.1")
	told("files.pypi.org", "192.0.2.2")
	told("pypi.org", "192.0.2.3")
	verdicts(t, w, map[string]bool{
		"job 192.0.2.1 443": true, "job 192.0.2.1 80": false, "job 192.0.2.2 80": true, "job 192.0.2.3 443": false, "job 192.0.2.4 443": false, "job db 5432": true, "free 192.0.2.4 80": true,
	})
	v := w.Verdict(policy.Peer{Endpoint: "e1"}, policy.Peer{Addr: netip.MustParseAddr("192.0.2.1")}, policy.TCP, 443)
	if len(v.Egress.Passed) != 1 || v.Egress.Passed[0].String() != "label grapevine.to of job: api.example.com:443" || len(v.Egress.Answers) != 1 || v.Egress.Answers[0].Name != "api.example.com" {
		t.Errorf("%+v", v.Egress)
	}
	if named := w.Compile().Named(); fmt.Sprint(named) != "map[e1:[api.example.com *.pypi.org]]" {
		t.Errorf("names %v", named)
	}
	w.Policies = append(w.Policies, policy.Policy{
		Key: policy.Key{Kind: policy.NetworkPolicy, Network: "blue", Name: "none"}, Subject: policy.Set{Network: "blue"}, IsolatesEgress: true,
	})
	verdicts(t, w, map[string]bool{"job 192.0.2.1 443": false})
	for text, want := range map[string]string{"_sip._tcp.example.com:443": "", "1.2.3": "", "*.1.2.3": "nobody's name", "_sip": "nobody's name"} { // 1.2.3 can be a container's name
		if err := Check(map[string]string{ToLabel: text}); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("label %q: %v, want %q", text, err, want)
		}
	}
	if err := Check(map[string]string{FromLabel: "web, *.pypi.org"}); err == nil || !strings.Contains(err.Error(), "not who calls") {
		t.Error(err)
	}
	if _, err := Allow("*.pypi.org", "db", w.Endpoints); err == nil || !strings.Contains(err.Error(), "not who calls") {
		t.Error(err)
	}
}

// TestUnknownIsNotMoreOpen: what passes while the labels of a container are not known passes whatever they are.
func TestUnknownIsNotMoreOpen(t *testing.T) {
	labels := func(t *rapid.T, name string) map[string]string {
		l := named1(rapid.SampledFrom([]string{"a", "b"}).Draw(t, name))
		for key, values := range map[string][]string{
			FromLabel: {"", "", "", "a", "b:80", "none", "bad!", "any:80"}, ToLabel: {"", "", "", "a:80", "b", "10.0.0.0/30", "a.test"}, OpenLabel: {"", "true", "false"},
			ProjectLabel: {"", "p"}, ServiceLabel: {"", "a"},
		} {
			if v := rapid.SampledFrom(values).Draw(t, name+" "+key); v != "" {
				l[key] = v
			}
		}
		return l
	}
	open := 0
	rapid.Check(t, func(t *rapid.T) {
		isolated := []string{"blue"}[:rapid.IntRange(0, 1).Draw(t, "isolated")]
		var known []policy.Endpoint
		for i := range 3 {
			known = append(known, endpoint(i+1, "blue", labels(t, fmt.Sprint("known ", i))))
		}
		before := world(isolated, []string{"blue"}, append(known, endpoint(9, "blue", nil))...)
		after := world(isolated, []string{"blue"}, append(known[:3:3], endpoint(9, "blue", labels(t, "then")))...)
		for _, from := range before.Endpoints {
			for _, to := range before.Endpoints {
				for _, port := range []uint16{80, 81} {
					a, b := policy.Peer{Endpoint: from.ID}, policy.Peer{Endpoint: to.ID}
					if !before.Verdict(a, b, policy.TCP, port).Allowed {
						continue
					}
					open++
					if v := after.Verdict(a, b, policy.TCP, port); !v.Allowed {
						t.Fatalf("%s to %s, port %d passed while %v were not known: %+v", from.ID, to.ID, port, after.Endpoints[3].Labels, v)
					}
				}
			}
		}
	})
	if open == 0 {
		t.Error("nothing passed: the test shows nothing")
	}
}

// TestMisspelt: what looks like a label of ours is one.
func TestMisspelt(t *testing.T) {
	good := map[string]string{FromLabel: "web", ToLabel: "db", OpenLabel: "true", policy.PortsLabel: "http=80", "grapevine.expose": "443", "grapevine.io/name": "db", "grapevine": "x", "com.example.grapevine.form": "x"}
	if err := Misspelt(good); err != nil {
		t.Error(err)
	}
	for _, label := range []string{"grapevine.form", "grapevine.From", "GRAPEVINE.to", "grapevine.client", "grapevine.", " grapevine.from", "grapevine.to\n"} {
		if err := Misspelt(map[string]string{label: "none"}); err == nil || !strings.Contains(err.Error(), "there are grapevine.from, grapevine.to") {
			t.Errorf("%s: %v", label, err)
		}
	}
}
