package policy

import (
	"fmt"
	"net/netip"
	"testing"
)

// jobs is a world with so many peers that a rule lets in, and one local endpoint that was told much by name.
func jobs(peers int) World {
	w := World{Networks: []Network{{Name: "n0"}}}
	for range peers {
		add(&w, "n0", map[string]string{"app": "peer"})
	}
	add(&w, "n0", map[string]string{"app": "job"})
	job := &w.Endpoints[len(w.Endpoints)-1]
	job.Local = true
	name, _ := ParseDomain("*.example.com")
	w.Policies = []Policy{{
		Key: Key{Kind: NetworkPolicy, Network: "n0", Name: "job"}, Subject: Set{Network: "n0", Endpoints: is("app", "job")}, IsolatesIngress: true, IsolatesEgress: true,
		Ingress: []Rule{{Action: Accept, Peers: []Set{{Network: "n0", Endpoints: is("app", "peer")}}, Ports: []Port{{Proto: TCP, From: 80, To: 80}}}},
	}, {
		Key: Key{Kind: ClusterNetworkPolicy, Name: "names"}, Tier: Admin, Subject: Set{Networks: Selector{}, Endpoints: is("app", "job")},
		Egress: []Rule{{Action: Accept, Domains: []Domain{name}, AnyPort: true}},
	}}
	for i := range 512 {
		w.Answers = append(w.Answers, Answer{Endpoint: job.ID, Name: fmt.Sprintf("h%d.example.com", i), Addr: netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})})
	}
	return w
}

// BenchmarkOpenings: what an answer costs while so many peers are in a rule, and how much the switch has of them: objects is
// members of classes, subjects, peers and ports of rules, as many as there are flows but for a factor.
func BenchmarkOpenings(b *testing.B) {
	for _, peers := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprint(peers), func(b *testing.B) {
			w := jobs(peers)
			c := w.Compile()
			objects := 0
			for _, cl := range c.Classes {
				objects += len(cl.Addrs)
			}
			for _, r := range c.Rules {
				objects += len(r.Subjects) + len(r.Peers) + len(r.Ports) + len(r.Blocks)
			}
			for b.Loop() {
				if n := len(c.Openings(w.Answers)); n != len(w.Answers) {
					b.Fatalf("%d openings of %d answers", n, len(w.Answers))
				}
			}
			b.ReportMetric(float64(objects)/float64(peers), "objects/peer")
		})
	}
}
