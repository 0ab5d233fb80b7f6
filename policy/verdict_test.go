package policy

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func addrs(list string) (as []netip.Addr) {
	for _, a := range strings.Fields(list) {
		as = append(as, netip.MustParseAddr(a))
	}
	return as
}

// shop is a network with a web and a database, whose labels may not be known, and policies.
func shop(known bool, policies ...Policy) World {
	return World{
		Networks: []Network{{Name: "shop"}},
		Endpoints: []Endpoint{
			{ID: "web", Network: "shop", Local: true, Known: known, Addrs: addrs("10.0.0.1 fd00::1"), Labels: map[string]string{"grapevine.io/name": "web"}},
			{ID: "db", Network: "shop", Local: true, Known: true, Addrs: addrs("10.0.0.2 fd00::2"), Labels: map[string]string{"app": "db"}, Ports: map[string]NamedPort{"sql": {TCP, 5432}}},
			{ID: "six", Network: "shop", Local: true, Known: true, Addrs: addrs("fd00::3")},
		},
		Policies: policies,
	}
}

var (
	onlyWeb = Policy{
		Key: Key{Kind: NetworkPolicy, Network: "shop", Name: "db"}, Author: "h1", Version: "7", IsolatesIngress: true,
		Subject: Set{Network: "shop", Endpoints: is("app", "db")},
		Ingress: []Rule{{Action: Accept, Peers: []Set{{Network: "shop", Endpoints: is("app", "web")}}, Ports: []Port{{Proto: TCP, Name: "sql"}}}},
	}
	passing = Policy{
		Key: Key{Kind: ClusterNetworkPolicy, Network: "", Name: "guests"}, Tier: Admin, Priority: 5,
		Ingress: []Rule{
			{Name: "own", Action: Pass, Peers: []Set{{Endpoints: is("app", "web")}}, AnyPort: true},
			{Name: "others", Action: Drop, Peers: []Set{{}}, AnyPort: true},
		},
	}
)

// TestVerdictSaysWhy: what decided, and what was not known.
func TestVerdictSaysWhy(t *testing.T) {
	web := shop(true, onlyWeb, passing)
	web.Endpoints[0].Labels["app"] = "web"
	for _, c := range []struct {
		name     string
		world    World
		from, to string
		port     uint16
		allowed  bool
		want     string
	}{
		{"no policy", shop(true), "web", "db", 5432, true, "[] [] [] 2"},
		{"no label", shop(true, onlyWeb), "web", "db", 5432, false, "[shop/db ingress] [] [] 4"},
		{"not known", shop(false, onlyWeb), "web", "db", 5432, false, "[shop/db ingress] [] [the labels of web] 4"},
		{"passed, then accepted", web, "web", "db", 5432, true, "[shop/db ingress[0]] [guests ingress[0] own] [] 3"},
		{"another port", web, "web", "db", 80, false, "[shop/db ingress] [guests ingress[0] own] [] 4"},
		{"another peer", web, "six", "db", 5432, false, "[guests ingress[1] others] [] [] 3"},
		{"Pass is not sure", shop(false, onlyWeb, passing), "web", "db", 5432, false, "[guests ingress[0] own] [] [the labels of web] 5"},
		{"to outside", web, "db", "192.0.2.1", 443, true, "[] [] [] 1"},
	} {
		to := Peer{Endpoint: c.to}
		if a, err := netip.ParseAddr(c.to); err == nil {
			to = Peer{Addr: a}
		}
		v := c.world.Verdict(Peer{Endpoint: c.from}, to, TCP, c.port)
		d := v.Ingress
		got := strings.Join([]string{refs(d.Rules), refs(d.Passed), "[" + strings.Join(d.Unknown, ", ") + "]", string('0' + rune(d.Reason))}, " ")
		if v.Allowed != c.allowed || got != c.want {
			t.Errorf("%s: %t, %s; want %t, %s", c.name, v.Allowed, got, c.allowed, c.want)
		}
	}
	v := shop(true, onlyWeb).Verdict(Peer{Endpoint: "web"}, Peer{Endpoint: "db"}, TCP, 1)
	if want := []Ref{{Policy: onlyWeb.Key, Author: "h1", Version: "7", Direction: Ingress, Rule: -1, Action: Drop}}; !reflect.DeepEqual(v.Ingress.Rules, want) {
		t.Errorf("%+v", v.Ingress.Rules)
	}
}

func refs(list []Ref) string {
	var s []string
	for _, r := range list {
		s = append(s, r.String())
	}
	return "[" + strings.Join(s, " ") + "]"
}

// TestVerdictTakesOneFamily: who has no IPv4 address is asked by IPv6.
func TestVerdictTakesOneFamily(t *testing.T) {
	lan := Policy{
		Key: Key{Kind: NetworkPolicy, Network: "shop", Name: "six"}, IsolatesIngress: true, Subject: Set{Network: "shop"},
		Ingress: []Rule{{Action: Accept, Blocks: []Block{{Prefix: netip.MustParsePrefix("fd00::/16")}}, AnyPort: true}},
	}
	w := shop(true, lan)
	for _, to := range []string{"six", "db"} {
		for _, from := range []Peer{{Endpoint: "web"}, {Endpoint: "six"}, {Addr: netip.MustParseAddr("fd00::9")}} {
			want := to == "six" || from.Endpoint != "web"
			if v := w.Verdict(from, Peer{Endpoint: to}, TCP, 1); v.Allowed != want {
				t.Errorf("from %v to %s: %+v", from, to, v)
			}
		}
	}
}

// TestUnsureIsNotRejected: who may not be meant is denied, as ever, but not told.
func TestUnsureIsNotRejected(t *testing.T) {
	p := passing
	p.Ingress = []Rule{{Action: Reject, Peers: []Set{{Endpoints: is("app", "web")}}, AnyPort: true}}
	for known, want := range map[bool]Action{true: Reject, false: Drop} {
		w := shop(known, p)
		if known {
			w.Endpoints[0].Labels = map[string]string{"app": "web"}
		}
		v := w.Verdict(Peer{Endpoint: "web"}, Peer{Endpoint: "db"}, TCP, 80)
		if v.Allowed || len(v.Ingress.Rules) != 1 || v.Ingress.Rules[0].Action != want {
			t.Errorf("known %t: %+v, want %v", known, v.Ingress, want)
		}
		var actions []Action
		for _, r := range w.Compile().Rules {
			if r.Action != Accept {
				actions = append(actions, r.Action)
			}
		}
		if len(actions) != 1 || actions[0] != want {
			t.Errorf("known %t: the switch does %v, want %v", known, actions, want)
		}
	}
}
