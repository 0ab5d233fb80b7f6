package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestCompiledIsVerdict: what the switch is given means what Verdict says, known or not.
func TestCompiledIsVerdict(t *testing.T) {
	for range 3 {
		rapid.Check(t, compiledIsVerdict)
	}
}

func compiledIsVerdict(t *rapid.T) {
	w := drawWorld(t, rapid.Bool().Draw(t, "whole"))
	c := w.Compile()
	checkCompiled(t, c)
	local := map[string]bool{}
	for _, e := range w.Endpoints {
		local[e.ID] = e.Local
	}
	connections(w, func(from, to Peer, proto uint8, port uint16) {
		v := w.Verdict(from, to, proto, port)
		if got := interpreted(c, w.Answers, from.Endpoint, to.Addr, Egress, proto, port); local[from.Endpoint] && got != v.Egress.Allowed {
			t.Fatalf("from %v to %v %d/%d: egress %t, %+v\n%+v", from, to, port, proto, got, v.Egress, c)
		}
		if got := interpreted(c, w.Answers, to.Endpoint, from.Addr, Ingress, proto, port); local[to.Endpoint] && got != v.Ingress.Allowed {
			t.Fatalf("from %v to %v %d/%d: ingress %t, %+v\n%+v", from, to, port, proto, got, v.Ingress, c)
		}
	})
}

// TestBaselineIsForTheUnisolated: what a NetworkPolicy isolates, no rule of the tier Baseline accepts.
func TestBaselineIsForTheUnisolated(t *testing.T) {
	all := []Set{{}}
	w := shop(true, Policy{Key: Key{Kind: NetworkPolicy, Network: "shop", Name: "deny"}, Subject: Set{Network: "shop", Endpoints: is("app", "db")}, IsolatesIngress: true},
		Policy{Key: Key{Kind: ClusterNetworkPolicy, Network: "", Name: "base"}, Tier: Baseline, Ingress: []Rule{
			{Action: Accept, Peers: all, Ports: []Port{{Proto: TCP, From: 1, To: 9}}}, {Action: Drop, Peers: all, AnyPort: true},
		}})
	c := w.Compile()
	for _, to := range w.Endpoints[:2] {
		for _, port := range []uint16{5, 80} {
			want := to.ID == "web" && port == 5
			if got := interpreted(c, nil, to.ID, netip.MustParseAddr("fd00::3"), Ingress, TCP, port); got != want {
				t.Errorf("to %s, port %d: %t", to.ID, port, got)
			}
			if v := w.Verdict(Peer{Endpoint: "six"}, Peer{Endpoint: to.ID}, TCP, port); v.Allowed != want {
				t.Errorf("to %s, port %d: %+v", to.ID, port, v)
			}
		}
	}
}

// TestPrintsTellChanges: while a guard has the same print, everything passes that did, and nothing
// else. So an open connection that was judged under a print needs no other judgement.
func TestPrintsTellChanges(t *testing.T) {
	same := 0
	for range 3 {
		rapid.Check(t, func(t *rapid.T) {
			before := drawWorld(t, false)
			after := before
			after.Endpoints, after.Policies = slices.Clone(before.Endpoints), slices.Clone(before.Policies)
			switch i := rapid.IntRange(0, len(after.Endpoints)-1).Draw(t, "changed"); rapid.IntRange(0, 3).Draw(t, "change") {
			case 0:
				after.Endpoints[i] = drawEndpoint(t, i, false)
			case 1:
				after.Endpoints = slices.Delete(after.Endpoints, i, i+1)
			case 2:
				after.Policies = append(after.Policies, drawPolicy(t, "new"))
			case 3:
				after.Policies = after.Policies[min(1, len(after.Policies)):]
			}
			a, b := before.Compile(), after.Compile()
			connections(before, func(from, to Peer, proto uint8, port uint16) {
				for _, d := range []Direction{Ingress, Egress} {
					subject, peer := from, to
					if d == Ingress {
						subject, peer = to, from
					}
					if p := printOf(a, subject.Endpoint, d); p == 0 || p != printOf(b, subject.Endpoint, d) {
						continue
					}
					same++
					if interpreted(a, nil, subject.Endpoint, peer.Addr, d, proto, port) != interpreted(b, nil, subject.Endpoint, peer.Addr, d, proto, port) {
						t.Fatalf("from %v to %v %d/%d, %s: the print is the same, the verdict is not\n%+v\n%+v", from, to, port, proto, d, a, b)
					}
				}
			})
		})
	}
	if same == 0 {
		t.Error("no print stayed the same")
	}
}

func printOf(c Compiled, endpoint string, d Direction) uint64 {
	for _, g := range c.Guards {
		if g.Endpoint == endpoint && d == Ingress {
			return g.IngressPrint
		} else if g.Endpoint == endpoint {
			return g.EgressPrint
		}
	}
	return 0
}

// checkCompiled: what is given to the switch keeps its own promises.
func checkCompiled(t *rapid.T, c Compiled) {
	classes, rules := map[uint32]bool{0: true}, map[uint32]bool{0: true}
	for _, cl := range c.Classes {
		if classes[cl.ID] || len(cl.Addrs)+len(cl.Ranges) == 0 {
			t.Fatalf("class %+v", cl)
		}
		classes[cl.ID] = true
	}
	type at struct {
		d Direction
		p int
	}
	actions := map[at]Action{}
	for _, r := range c.Rules {
		if rules[r.ID] || len(r.Subjects) == 0 || !r.AnyPeer && len(r.Peers)+len(r.Blocks)+len(r.Domains) == 0 || !r.AnyPort && len(r.Ports) == 0 {
			t.Fatalf("rule %+v", r)
		}
		rules[r.ID] = true
		for _, id := range slices.Concat(r.Subjects, r.Peers) {
			if id == 0 || !classes[id] {
				t.Fatalf("rule %+v names class %d, which is not there", r, id)
			}
		}
		if a := actions[at{r.Direction, r.Priority}]; a != 0 && a != r.Action {
			t.Fatalf("at priority %d are %s and %s", r.Priority, a, r.Action)
		}
		actions[at{r.Direction, r.Priority}] = r.Action
	}
}

// TestUnknownIsNeverMoreOpen: what is allowed while something is not known is allowed whatever it
// turns out to be.
func TestUnknownIsNeverMoreOpen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := drawWorld(t, false)
		after := before
		after.Ranges = nil
		after.Networks = slices.Clone(before.Networks)
		after.Endpoints = slices.Clone(before.Endpoints)
		for _, name := range []string{"n0", "n1", "n2"} {
			if !slices.ContainsFunc(before.Networks, func(n Network) bool { return n.Name == name }) {
				after.Networks = append(after.Networks, Network{name, drawLabels(t)})
			}
		}
		for i := range after.Endpoints {
			e := &after.Endpoints[i]
			if e.Known {
				continue
			}
			learnt := drawEndpoint(t, i, true)
			for k, v := range e.Labels {
				learnt.Labels[k] = v
			}
			for k, v := range e.Ports {
				learnt.Ports[k] = v
			}
			e.Known, e.Labels, e.Ports = true, learnt.Labels, learnt.Ports
		}
		hidden := drawEndpoint(t, 10, true)
		hidden.Network, hidden.Addrs = "n0", []netip.Addr{netip.MustParseAddr("10.0.0.10")}
		after.Endpoints = append(after.Endpoints, hidden)
		connections(before, func(from, to Peer, proto uint8, port uint16) {
			if v := before.Verdict(from, to, proto, port); v.Allowed && !after.Verdict(from, to, proto, port).Allowed {
				t.Fatalf("from %v to %v %d/%d was allowed: %+v, %+v", from, to, port, proto, v, after.Verdict(from, to, proto, port))
			}
		})
	})
}

// TestOrderDoesNotMatter: policies and endpoints are sets.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, false)
		turned := w
		turned.Policies, turned.Endpoints = slices.Clone(w.Policies), slices.Clone(w.Endpoints)
		slices.Reverse(turned.Policies)
		slices.Reverse(turned.Endpoints)
		if a, b := w.Compile(), turned.Compile(); !equalCompiled(a, b) {
			t.Fatalf("%+v\n%+v", a, b)
		}
	})
}

func equalCompiled(a, b Compiled) bool { return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b) }
