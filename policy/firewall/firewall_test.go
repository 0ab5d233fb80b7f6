package firewall

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/plain"
)

var (
	ranges  = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00::/64")}
	outside = []netip.Addr{
		netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.129"), netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("2001:db8::1"),
	}
	names = []string{"a.test", "b.a.test", "c.test"}
)

// drawRules draws what people may have written.
func drawRules(t *rapid.T) (list []policy.Rule) {
	for range rapid.IntRange(0, 5).Draw(t, "rules") {
		r := policy.Rule{Action: rapid.SampledFrom([]policy.Action{policy.Accept, policy.Drop}).Draw(t, "action"), AnyPort: true}
		if r.Action == policy.Accept && rapid.Bool().Draw(t, "by name") {
			r.Domains = []policy.Domain{rapid.SampledFrom([]policy.Domain{"a.test", "*.a.test", "c.test"}).Draw(t, "name")}
		} else {
			p := rapid.SampledFrom([]string{"0.0.0.0/0", "::/0", "192.0.2.0/24", "192.0.2.128/25", "203.0.113.1/32", "10.0.0.0/8", "2001:db8::/32"}).Draw(t, "cidr")
			r.Blocks = []policy.Block{{Prefix: netip.MustParsePrefix(p)}}
		}
		list = append(list, r)
	}
	return list
}

// drawWorld draws containers of which some have labels, what they were told, and policies beside this one.
func drawWorld(t *rapid.T, tiered bool) policy.World {
	w := policy.World{Networks: []policy.Network{{Name: "n"}}}
	for _, r := range ranges {
		w.Ranges = append(w.Ranges, policy.Range{Network: "n", Prefix: r})
	}
	for i := range 4 {
		e := policy.Endpoint{ID: fmt.Sprint("e", i), Network: "n", Local: true, Known: rapid.IntRange(0, 3).Draw(t, "known") > 0, Labels: map[string]string{plain.NameLabel: fmt.Sprint("e", i)}}
		e.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, byte(2 + i)}), netip.MustParseAddr(fmt.Sprint("fd00::", 2+i))}
		if text := rapid.SampledFrom([]string{"", "", "any", "internet, e1", "a.test", "192.0.2.0/24:80"}).Draw(t, "label"); text != "" && e.Known {
			e.Labels[plain.ToLabel] = text
		}
		w.Endpoints = append(w.Endpoints, e)
		for _, a := range outside {
			for _, n := range names {
				if rapid.IntRange(0, 3).Draw(t, "told") == 0 {
					w.Answers = append(w.Answers, policy.Answer{Endpoint: e.ID, Name: n, Addr: a})
				}
			}
		}
	}
	var isolated []string
	if rapid.Bool().Draw(t, "isolated") {
		isolated = []string{"n"}
	}
	w.Policies = new(plain.Maker).Policies(isolated, []string{"n"}, w.Endpoints)
	drawn := func(k policy.Kind, actions ...policy.Action) []policy.Rule {
		r := drawRules(t)
		for i := range r {
			r[i].Action = rapid.SampledFrom(actions).Draw(t, "action")
		}
		return r
	}
	if rapid.Bool().Draw(t, "a NetworkPolicy") {
		w.Policies = append(w.Policies, policy.Policy{Key: policy.Key{Kind: policy.NetworkPolicy, Network: "n", Name: "np"}, Subject: policy.Set{Network: "n"}, IsolatesEgress: true, Egress: drawn(policy.NetworkPolicy, policy.Accept)})
	}
	if tiered {
		w.Policies = append(w.Policies, policy.Policy{
			Key: policy.Key{Kind: policy.ClusterNetworkPolicy, Name: "cnp"}, Tier: policy.Admin, Priority: 7, Egress: drawn(policy.ClusterNetworkPolicy, policy.Accept, policy.Drop, policy.Pass),
		})
	}
	return w
}

// passes is the oracle: the first rule that matches decides, and what none matches passes. It knows one thing about labels.
func passes(w policy.World, rules []policy.Rule, e policy.Endpoint, a netip.Addr) bool {
	_, labelled := e.Labels[plain.ToLabel]
	for _, r := range rules {
		matches := false
		for _, b := range r.Blocks {
			matches = matches || b.Prefix.Contains(a)
		}
		for _, d := range r.Domains {
			for _, told := range w.Answers {
				matches = matches || !labelled && told.Endpoint == e.ID && told.Addr == a && d.Matches(told.Name)
			}
		}
		if matches {
			return r.Action == policy.Accept
		}
	}
	return true
}

// TestFirewall: what the rules let pass, and nothing else, all others are asked for, and they decide as without the rules. Of
// what is within the cluster nothing changes. So nothing is more open than without. The switch is given the same.
func TestFirewall(t *testing.T) {
	cut := 0
	rapid.Check(t, func(t *rapid.T) {
		tiered := rapid.Bool().Draw(t, "tiers")
		before := drawWorld(t, tiered)
		p := policy.Policy{Key: policy.Key{Kind: policy.EgressNetworkPolicy, Network: "n", Name: "default"}, Subject: policy.Set{Network: "n"}, Egress: drawRules(t)}
		after := before.With(Policies(p, ranges, true)...)
		for _, e := range before.Endpoints {
			from := policy.Peer{Endpoint: e.ID}
			for _, a := range outside {
				was, is := before.Verdict(from, policy.Peer{Addr: a}, policy.TCP, 80).Allowed, after.Verdict(from, policy.Peer{Addr: a}, policy.TCP, 80).Allowed
				may := passes(before, p.Egress, e, a)
				switch {
				case is && !was:
					t.Fatalf("%s to %s: more open with the rules than without", e.ID, a)
				case tiered:
				case is && !may:
					t.Fatalf("%s to %s: it passes, and the rules deny it", e.ID, a)
				case !is && was && may && e.Known:
					t.Fatalf("%s to %s: it passed, the rules let it, and it does not pass", e.ID, a)
				}
				if was && !is {
					cut++
				}
			}
			for _, n := range names {
				by := policy.Peer{Name: n}
				if after.Verdict(from, by, policy.TCP, 80).Allowed && !before.Verdict(from, by, policy.TCP, 80).Allowed {
					t.Fatalf("%s to %s: more open with the rules than without", e.ID, n)
				}
			}
			for _, o := range before.Endpoints {
				was, is := before.Verdict(from, policy.Peer{Endpoint: o.ID}, policy.TCP, 80).Allowed, after.Verdict(from, policy.Peer{Endpoint: o.ID}, policy.TCP, 80).Allowed
				if is && !was || was && !is && e.Known {
					t.Fatalf("%s to %s, within the cluster: it was %t and is %t", e.ID, o.ID, was, is)
				}
			}
		}
	})
	if cut == 0 {
		t.Error("nothing was cut: the test shows nothing")
	}
}

// TestCost: a Deny that is said again comes to nothing more, and what many exceptions come to is counted.
func TestCost(t *testing.T) {
	all := netip.MustParsePrefix("0.0.0.0/0")
	rule := func(action policy.Action, prefixes ...netip.Prefix) policy.Rule {
		r := policy.Rule{Action: action}
		for _, p := range prefixes {
			r.Blocks = append(r.Blocks, policy.Block{Prefix: p})
		}
		return r
	}
	p := policy.Policy{}
	for i := range 150 {
		p.Egress = append(p.Egress, rule(policy.Accept, netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), 32)))
	}
	p.Egress = append(p.Egress, rule(policy.Drop, all))
	once := Cost(p)
	for range 60 {
		p.Egress = append(p.Egress, rule(policy.Drop, all))
	}
	if got := Cost(p); once < 150 || once > 150*32+1 || got != once {
		t.Errorf("150 exceptions come to %d ranges, and with 60 Denys of the same to %d", once, got)
	}
	if got := len(Policies(p, nil, true)[1].Egress); got != 1 {
		t.Errorf("what is denied once is denied by %d rules", got)
	}
}
