package replay

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/learn"
	"github.com/grapevine-net/grapevine/policy/plain"
)

var (
	gateway = netip.MustParseAddr("10.1.0.1")
	outside = netip.MustParseAddr("203.0.113.7")
)

// world has web, db and other on the network shop.
func world(policies ...policy.Policy) policy.World {
	w := policy.World{Networks: []policy.Network{{Name: "shop"}}, Policies: policies}
	for i, name := range []string{"web", "db", "other"} {
		w.Endpoints = append(w.Endpoints, policy.Endpoint{
			ID: name, Network: "shop", Known: true, Labels: map[string]string{plain.NameLabel: name},
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, byte(2 + i)}), netip.MustParseAddr(fmt.Sprint("fd00::", 2+i))},
		})
	}
	return w
}

func named(name string) policy.Set {
	return policy.Set{Network: "shop", Endpoints: policy.Selector{{Key: plain.NameLabel, Op: policy.In, Values: []string{name}}}}
}

// only lets web call db at port 5432, and nobody else.
var only = policy.Policy{
	Key: policy.Key{Kind: policy.NetworkPolicy, Network: "shop", Name: "db"}, Subject: named("db"), IsolatesIngress: true,
	Ingress: []policy.Rule{{Action: policy.Accept, Peers: []policy.Set{named("web")}, Ports: []policy.Port{{Proto: policy.TCP, From: 5432, To: 5432}}}},
}

// byName lets web out to a name alone.
var byName = policy.Policy{
	Key: policy.Key{Kind: policy.ClusterNetworkPolicy, Name: "names"}, Tier: policy.Admin, Subject: named("web"),
	Egress: []policy.Rule{
		{Action: policy.Accept, Domains: []policy.Domain{"*.example.com"}, Ports: []policy.Port{{Proto: policy.TCP, From: 443, To: 443}}},
		{Action: policy.Drop, Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("203.0.113.0/24")}}, AnyPort: true},
	},
}

func end(w policy.World, name string, family int) learn.End {
	for _, e := range w.Endpoints {
		if e.ID == name {
			return learn.End{Addr: e.Addrs[family], Container: true, Name: name}
		}
	}
	return learn.End{Addr: netip.MustParseAddr(name)}
}

// TestAsk: who would be cut, or let through, is said with how many connections that is; what is not known is said to be so.
func TestAsk(t *testing.T) {
	w := world()
	seen := func(from, to string, proto uint8, port uint16, failed string, open bool, family int) learn.Connection {
		return learn.Connection{From: end(w, from, family), To: end(w, to, family), Proto: proto, Port: port, Failed: failed, Open: open}
	}
	q := Question{Before: w, After: world(only, byName), Most: 100, Host: func(a netip.Addr) bool { return a == gateway }, Connections: []learn.Connection{
		seen("web", "db", policy.TCP, 5432, "", true, 0),
		seen("other", "db", policy.TCP, 5432, "", true, 0), seen("other", "db", policy.TCP, 5432, "", false, 0), seen("other", "db", policy.TCP, 5432, "refused", false, 0),
		seen("other", "db", policy.UDP, 5432, "unanswered", false, 0), // a log that nobody answers
		seen("web", "db", policy.ICMP, 7, "", false, 1),
		seen("other", "db", policy.TCP, 1, "unanswered", false, 0), // it does not pass now, for whatever reason
		seen(gateway.String(), "db", policy.TCP, 22, "", false, 0), // its host, which may
		seen("web", gateway.String(), policy.UDP, 53, "", false, 0),
		seen("web", outside.String(), policy.TCP, 443, "", false, 0), seen("web", outside.String(), policy.TCP, 80, "", false, 0),
		{From: learn.End{Addr: netip.MustParseAddr("10.1.0.9"), Container: true, Name: "was"}, To: end(w, "db", 0), Proto: policy.TCP, Port: 5432},
	}}
	say := func(a Answer) (lines []string) {
		for _, p := range a.Pairs {
			lines = append(lines, fmt.Sprintf("%s%s to %s%s %d/%d: %d, %d open, %t %v", p.From.Endpoint, p.From.Addr, p.To.Endpoint, p.To.Addr, p.Proto, p.Port, p.Connections, p.Open, p.Allowed, p.Unless))
		}
		slices.Sort(lines)
		return lines
	}
	want := []string{
		"other10.1.0.4 to db10.1.0.3 17/5432: 1, 0 open, false []",
		"other10.1.0.4 to db10.1.0.3 6/5432: 2, 1 open, false []",
		"web10.1.0.2 to 203.0.113.7 6/443: 1, 0 open, false [*.example.com]",
		"web10.1.0.2 to 203.0.113.7 6/80: 1, 0 open, false []",
		"webfd00::2 to dbfd00::3 58/128: 1, 0 open, false []",
	}
	a := q.Ask()
	if got := say(a); !slices.Equal(got, want) {
		t.Errorf("it says\n%q, want\n%q", got, want)
	}
	if a.Judged != 11 || a.Gone != 1 || a.Left != 0 || a.Pairs[0].Connections != 2 || a.Pairs[0].Why[0].String() != "shop/db ingress" {
		t.Errorf("%+v", a)
	}
	// The other way round: what was denied and tried would pass.
	q.Before, q.After = q.After, q.Before
	if got := say(q.Ask()); !slices.Equal(got, []string{"other10.1.0.4 to db10.1.0.3 6/1: 1, 0 open, true []", "other10.1.0.4 to db10.1.0.3 6/5432: 1, 0 open, true []"}) {
		t.Errorf("%q", got)
	}
	q.Before = q.After
	if a := q.Ask(); len(a.Pairs) != 0 {
		t.Errorf("nothing changes, and it says %q", say(a))
	}
	q.Most = 2
	if a := q.Ask(); a.Judged+a.Gone+a.Left != len(q.Connections) || a.Left == 0 {
		t.Errorf("of two pairs: %+v", a)
	}
}
