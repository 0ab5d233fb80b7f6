package overlay

import (
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestManyPeers: 20 rules about 10,000 peers are as many flows in the switch as there are rules and peers, and not as their
// product is; a new peer is one flow, and then it gets through.
func TestManyPeers(t *testing.T) {
	const peers, rules = 10_000, 20
	r := newRuled(t)
	serve(t, "a", 5432)
	flows := func() int {
		t.Helper()
		list, err := r.bridge.DumpFlows(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	// Class 3 is that of c, who is no peer yet: his addresses are in none.
	with := func(n int, more ...netip.Addr) pipeline.Policy {
		p := r.policy("a", 1)
		p.Classes = p.Classes[:2]
		many := pipeline.Class{ID: 77, Addrs: append([]netip.Addr(nil), more...)}
		for i := range n {
			many.Addrs = append(many.Addrs, netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}))
		}
		p.Classes = append(p.Classes, many)
		for i := range rules {
			p.Rules = append(p.Rules, pipeline.PolicyRule{
				ID: uint32(100 + i), Direction: pipeline.Ingress, Subjects: []uint32{1}, Peers: []uint32{77}, Action: pipeline.Accept, Priority: pipeline.PriorityNetworkPolicy,
				Ports: []pipeline.PortRange{{Proto: 6, From: uint16(5432 + i), To: uint16(5432 + i)}},
			})
		}
		return p
	}
	r.enforce(with(10))
	few := flows()
	if few > 1000 {
		t.Errorf("%d flows for %d rules about 10 peers", few, rules)
	}
	begin := time.Now()
	r.enforce(with(peers))
	took := time.Since(begin)
	many := flows()
	if grown := many - few; grown != peers-10 {
		t.Errorf("%d peers more are %d flows more, want %d", peers-10, grown, peers-10)
	}
	if c, err := call(t, "c", "tcp", "10.128.0.7:5432", short); err == nil {
		t.Errorf("who is no peer gets through: %v", c.RemoteAddr())
	}
	_, changes, err := r.compiler.Compile(r.in)
	if err != nil || !changes.Empty() {
		t.Fatalf("%v %v", changes, err)
	}
	begin = time.Now()
	r.enforce(with(peers, addr("10.128.0.9")))
	one := time.Since(begin)
	if grown := flows() - many; grown != 1 {
		t.Errorf("a new peer is %d flows more, want one", grown)
	}
	c, err := call(t, "c", "tcp", "10.128.0.7:5432", long)
	if err != nil {
		t.Fatalf("a new peer: %v", err)
	}
	if err := comesBack(c, long); err != nil {
		t.Errorf("a new peer: %v", err)
	}
	t.Logf("%d rules about 10 peers: %d flows; about %d: %d, set in %s; one more in %s", rules, few, peers, many, took, one)
}
