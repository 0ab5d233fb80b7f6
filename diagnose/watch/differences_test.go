package watch

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/encap"
)

func TestRangeDifferences(t *testing.T) {
	node := func(name, four, six string) api.Node {
		n := api.Node{ID: name, Name: name, Alive: true}
		n.CIDR4, _ = netip.ParsePrefix(four)
		n.CIDR6, _ = netip.ParsePrefix(six)
		return n
	}
	const a, b, six = "10.128.0.0/14", "10.64.0.0/12", "fd01::/48"
	for _, c := range []struct {
		self   api.Node
		others []api.Node
		want   string // of the problem; "": there is none
	}{
		{node("one", a, ""), nil, ""},
		{node("one", a, ""), []api.Node{node("two", a, ""), node("old", "", "")}, ""},
		{node("one", a, ""), []api.Node{node("two", b, "")}, "GRAPEVINE_CIDR4 is 10.128.0.0/14 here and 10.64.0.0/12 on host two"},
		{node("one", a, ""), []api.Node{node("two", b, ""), node("three", a, "")}, ""}, // that one says it
		{node("one", a, ""), []api.Node{node("two", b, ""), node("three", b, "")}, "GRAPEVINE_CIDR4 is 10.128.0.0/14 here and 10.64.0.0/12 on hosts three and two"},
		{node("one", a, six), []api.Node{node("two", a, "")}, "GRAPEVINE_CIDR6 is fd01::/48 here and not set on host two"},
		{node("one", a, ""), []api.Node{{ID: "two", Name: "two", CIDR4: netip.MustParsePrefix(b)}}, ""}, // it does not answer
	} {
		c.self.Self = true
		got := rangeDifferences(append(c.others, c.self))
		if (c.want == "") != (len(got) == 0) || len(got) > 1 || len(got) == 1 && !strings.Contains(got[0].What, c.want) {
			t.Errorf("%v beside %v: %v, want %q", c.self, c.others, got, c.want)
		}
	}
}

func TestDifferentVXLANPorts(t *testing.T) {
	node := func(name string, port uint16, alive bool) api.Node {
		return api.Node{ID: name, Name: name, MTU: 1500, VXLANPort: port, Alive: alive}
	}
	got := wireDifferences([]api.Node{node("one", 4789, true), node("two", 4790, true), node("three", 4790, false), node("four", 0, true)}, encap.VXLAN, 4789)
	if len(got) != 1 || got[0].What != "the UDP port of VXLAN is 4789 here and 4790 on two: containers of the two do not reach each other" {
		t.Errorf("problems: %v", got)
	}
}

// TestDifferentEncapsulations: each of the two names the other one, and the port besides is not worth a word.
func TestDifferentEncapsulations(t *testing.T) {
	one := api.Node{ID: "one", Name: "one", VXLANPort: 4789, Alive: true}
	two := api.Node{ID: "two", Name: "two", VXLANPort: 6081, Encap: "geneve", Alive: true}
	for _, c := range []struct {
		wrapped encap.Kind
		want    string
	}{
		{encap.VXLAN, "what containers send is wrapped in vxlan here and in geneve on two"},
		{encap.Geneve, "what containers send is wrapped in geneve here and in vxlan on one"},
	} {
		got := wireDifferences([]api.Node{one, two}, c.wrapped, c.wrapped.Port)
		if len(got) != 1 || got[0].Code != api.EncapDiffers || !strings.HasPrefix(got[0].What, c.want) {
			t.Errorf("with %s: %v, want %q", c.wrapped.Name, got, c.want)
		}
	}
}
