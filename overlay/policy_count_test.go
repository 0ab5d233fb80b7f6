package overlay

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// counted is what the switch has counted for rules, and for what none of them matched.
func (r *ruled) counted() (map[uint32]pipeline.RuleCount, map[pipeline.Unmatched]pipeline.Count) {
	r.t.Helper()
	ovstest.Settle(r.t, r.bridge)
	flows, counts, err := ruleFlows(r.t.Context(), r.bridge)
	if err != nil {
		r.t.Fatal(err)
	}
	return pipeline.CountRules(flows, counts)
}

// TestRuleCounts: a rule counts all packets and bytes of the connections that it let begin, both ways, and each connection
// once, answered or not; and what is denied is counted for the rule, or for the address that no rule lets be sent it.
func TestRuleCounts(t *testing.T) {
	r := newRuled(t)
	serve(t, "b", 80)
	var mute net.PacketConn
	if err := inNetns(t, "b", func() (err error) { mute, err = net.ListenPacket("udp", ":4242"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	p := r.policy("ab", 1, lets(1, 2)...)
	p.Rules = append(p.Rules, pipeline.PolicyRule{
		ID: 9, Direction: pipeline.Ingress, Action: pipeline.Drop, Priority: pipeline.PriorityNetworkPolicy + 1, Subjects: []uint32{2}, AnyPeer: true,
		Ports: []pipeline.PortRange{{Proto: 17, From: 9, To: 9}},
	})
	r.enforce(p)
	const out, in = 1, 2 // the IDs of the two rules of lets
	type want struct{ packets, bytes, connections uint64 }
	counts := func(what string, w want) {
		t.Helper()
		ovstest.Eventually(t, long, func() error {
			rules, _ := r.counted()
			for _, rule := range []uint32{out, in} {
				if got := rules[rule]; got.Connections != w.connections || got.Passed != (pipeline.Count{Packets: w.packets, Bytes: w.bytes}) {
					return fmt.Errorf("%s: rule %d counts %+v, want %+v", what, rule, got, w)
				}
			}
			return nil
		})
	}
	const size = 14 + 20 + 8 + 5 // Ethernet, IPv4, UDP, "hello"
	for range 2 {
		c, err := call(t, "a", "udp", "10.128.0.8:80", long)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := comesBack(c, long); err != nil {
				t.Fatal(err)
			}
		}
	}
	counts("20 echoes on two sockets", want{80, 80 * size, 2})
	c, err := call(t, "a", "udp", "10.128.0.8:4242", long)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 { // one by one: what comes before the first one is noted may begin as well
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			counts("a datagram that nobody answers", want{81, 81 * size, 3})
		}
	}
	counts("10 datagrams that nobody answers", want{90, 90 * size, 3})

	// What is still allowed under other rules is judged anew, and is no other connection.
	p.Guards[0].EgressEpoch, p.Guards[1].IngressEpoch = 2, 2
	r.enforce(p)
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	counts("a datagram after rules have changed", want{91, 91 * size, 3})

	tcp, err := call(t, "a", "tcp", "10.128.0.8:80", long)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := comesBack(tcp, long); err != nil {
			t.Fatal(err)
		}
	}
	ovstest.Eventually(t, long, func() error {
		rules, _ := r.counted()
		// At least a segment each way for each echo, and an acknowledgement of the last; both rules the same.
		if o, i := rules[out], rules[in]; o != i || o.Connections != 4 || o.Passed.Packets < 91+41 || o.Passed.Bytes < (91*size)+40*(14+20+20+5) {
			return fmt.Errorf("20 echoes by TCP: %+v, %+v", o, i)
		}
		return nil
	})

	for range 7 {
		for _, to := range []struct{ from, addr string }{{"a", "10.128.0.8:9"}, {"c", "10.128.0.8:80"}, {"c", "[fd00:1::8]:80"}} {
			c, err := call(t, to.from, "udp", to.addr, long)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
		}
	}
	ovstest.Eventually(t, long, func() error {
		rules, rest := r.counted()
		denied := rules[9].Denied
		v4, v6 := rest[pipeline.Unmatched{Addr: addr("10.128.0.8"), Direction: pipeline.Ingress}], rest[pipeline.Unmatched{Addr: addr("fd00:1::8"), Direction: pipeline.Ingress}]
		if want := (pipeline.Count{Packets: 7, Bytes: 7 * size}); denied != want || v4 != want || v6 != (pipeline.Count{Packets: 7, Bytes: 7 * (size + 20)}) {
			return fmt.Errorf("7 datagrams each: the rule denied %+v, no rule let in %+v and %+v", denied, v4, v6)
		}
		return nil
	})
}

// TestRuleCountsOfFragments: a connection that begins with a datagram in fragments counts once it has a whole packet, once, and
// its fragments do from then on; and one in fragments does not make forget what a connection was noted with.
func TestRuleCountsOfFragments(t *testing.T) {
	r := newRuled(t)
	serve(t, "b", 80)
	var mute net.PacketConn
	if err := inNetns(t, "b", func() (err error) { mute, err = net.ListenPacket("udp", ":4242"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	r.enforce(r.policy("ab", 1, lets(1, 2)...))
	// The kernel's conntrack puts fragments together: so many of the packets are one with another there.
	counts := func(what string, connections, packets, together uint64) {
		t.Helper()
		least := packets
		if r.bridge.Datapath == ovs.Kernel {
			least -= together
		}
		ovstest.Eventually(t, long, func() error {
			rules, _ := r.counted()
			for _, rule := range []uint32{1, 2} {
				got := rules[rule]
				if exact := r.bridge.Datapath != ovs.Kernel; got.Connections != connections || got.Passed.Packets < least || exact && got.Passed.Packets > packets {
					return fmt.Errorf("%s: rule %d counts %+v, want %d connections, %d to %d packets", what, rule, got, connections, least, packets)
				}
			}
			return nil
		})
	}
	large := func(c net.Conn) {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(long))
		if _, err := c.Write(make([]byte, 2048)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 4096)); err != nil || n != 2048 {
			t.Fatalf("of a datagram in fragments %d bytes come back, %v", n, err)
		}
	}
	c, err := call(t, "a", "udp", "10.128.0.8:80", long)
	if err != nil {
		t.Fatal(err)
	}
	large(c)
	for range 5 {
		if err := comesBack(c, long); err != nil {
			t.Fatal(err)
		}
	}
	counts("5 echoes after one in fragments", 1, 10, 0)
	large(c)
	counts("and another one in fragments", 1, 14, 2)

	if c, err = call(t, "a", "udp", "10.128.0.8:4242", long); err != nil {
		t.Fatal(err)
	}
	for i, size := range []int{5, 2048, 5} {
		if _, err := c.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		counts("datagrams that nobody answers", 2, []uint64{15, 17, 18}[i], []uint64{2, 3, 3}[i])
	}
}
