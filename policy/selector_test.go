package policy

import (
	"maps"
	"net/netip"
	"strings"
	"testing"
)

func TestSelectorMatches(t *testing.T) {
	whole := labels{have: map[string]string{"app": "web"}, all: true}
	part := labels{have: map[string]string{"app": "web"}}
	for _, c := range []struct {
		name        string
		s           Selector
		whole, part truth
	}{
		{"empty", nil, yes, yes},
		{"its value", Selector{{"app", In, []string{"db", "web"}}}, yes, yes},
		{"another value", Selector{{"app", In, []string{"db"}}}, no, no},
		{"not another value", Selector{{"app", NotIn, []string{"db"}}}, yes, yes},
		{"not its value", Selector{{"app", NotIn, []string{"web"}}}, no, no},
		{"is there", Selector{{"app", Exists, nil}}, yes, yes},
		{"is not there", Selector{{"app", DoesNotExist, nil}}, no, no},
		{"another label's value", Selector{{"tier", In, []string{"web"}}}, no, maybe},
		{"not another label's value", Selector{{"tier", NotIn, []string{"web"}}}, yes, maybe},
		{"another label is there", Selector{{"tier", Exists, nil}}, no, maybe},
		{"another label is not there", Selector{{"tier", DoesNotExist, nil}}, yes, maybe},
		{"an operator of a later release", Selector{{"app", 9, nil}}, no, no},
		{"one of two", Selector{{"app", Exists, nil}, {"tier", Exists, nil}}, no, maybe},
	} {
		if got := c.s.matches(whole); got != c.whole {
			t.Errorf("%s, all labels known: %d, want %d", c.name, got, c.whole)
		}
		if got := c.s.matches(part); got != c.part {
			t.Errorf("%s, part of the labels known: %d, want %d", c.name, got, c.part)
		}
	}
}

func TestBlockPrefixes(t *testing.T) {
	for _, c := range []struct{ block, except, want string }{
		{"10.0.0.0/8", "", "10.0.0.0/8"},
		{"10.0.0.0/30", "10.0.0.0/31", "10.0.0.2/31"},
		{"10.0.0.0/30", "10.0.0.1/32", "10.0.0.2/31 10.0.0.0/32"},
		{"10.0.0.0/30", "10.0.0.1/32 10.0.0.2/32", "10.0.0.3/32 10.0.0.0/32"},
		{"10.0.0.0/30", "10.0.0.0/30", ""},
		{"10.0.0.0/30", "10.0.0.0/8", ""},
		{"10.0.0.0/30", "192.0.2.0/24 2001:db8::/32", "10.0.0.0/30"},
		{"::/126", "::2/127", "::/127"},
	} {
		b := Block{Prefix: netip.MustParsePrefix(c.block)}
		for _, e := range strings.Fields(c.except) {
			b.Except = append(b.Except, netip.MustParsePrefix(e))
		}
		var got []string
		for _, p := range b.prefixes() {
			got = append(got, p.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s without %s: %s, want %s", c.block, c.except, got, c.want)
		}
	}
}

func TestParsePorts(t *testing.T) {
	got, err := ParsePorts("web=8080/tcp, dns=53/udp,x=1,")
	want := map[string]NamedPort{"web": {TCP, 8080}, "dns": {UDP, 53}, "x": {TCP, 1}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"web", "web=", "web=0", "web=65536", "web=80/icmp", "WEB=80", "=80", "web=80,web=81", "web=80/", "-a=1", strings.Repeat("a", 64) + "=1"} {
		if got, err := ParsePorts(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func TestLabelKeys(t *testing.T) {
	p := Policy{
		Subject: Set{Networks: Selector{{Key: "net"}}, Endpoints: Selector{{Key: "b"}}},
		Ingress: []Rule{{Peers: []Set{{Endpoints: Selector{{Key: "a"}, {Key: "b"}}}}}},
		Egress:  []Rule{{Peers: []Set{{Endpoints: Selector{{Key: "c"}}}}}},
	}
	if got := strings.Join(p.LabelKeys(), " "); got != "a b c" {
		t.Error(got)
	}
}
