package overlay

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestFirstRulesFindTheCaller: a container gets its first rules while it talks. What these deny ends, in both directions,
// though whoever is called speaks first from then on, and goes on speaking; and what they let goes on.
func TestFirstRulesFindTheCaller(t *testing.T) {
	r := newRuled(t)
	const all, none = 1, 2 // what is let through in a direction; 0: it has no rules
	// first is the first rules of a container, 0, a, or 1, b.
	first := func(at int, young bool, in, out int) (p pipeline.Policy) {
		e := r.in.Ports[at]
		p.Guards = []pipeline.Guard{{Endpoint: e.Endpoint, Addrs: e.Addrs, Young: young, Ingress: in > 0, Egress: out > 0, IngressEpoch: 1, EgressEpoch: 1}}
		for i, e := range r.in.Ports {
			p.Classes = append(p.Classes, pipeline.Class{ID: uint32(i + 1), Addrs: e.Addrs})
		}
		for d, what := range map[pipeline.Direction]int{pipeline.Ingress: in, pipeline.Egress: out} {
			if what == all {
				p.Rules = append(p.Rules, pipeline.PolicyRule{
					ID: uint32(d), Direction: d, Priority: pipeline.PriorityNetworkPolicy, Action: pipeline.Accept, Subjects: []uint32{uint32(at + 1)}, AnyPeer: true, AnyPort: true,
				})
			}
		}
		return p
	}
	open := func(network string, from, to int) (caller, called net.Conn) {
		t.Helper()
		address := fmt.Sprintf("10.128.0.8:%d", to)
		if network == "udp" {
			for _, end := range []struct {
				conn          *net.Conn
				name          string
				local, remote string
			}{{&caller, "a", fmt.Sprintf("10.128.0.7:%d", from), address}, {&called, "b", address, fmt.Sprintf("10.128.0.7:%d", from)}} {
				if err := inNetns(t, end.name, func() (err error) {
					l, _ := net.ResolveUDPAddr("udp", end.local)
					far, _ := net.ResolveUDPAddr("udp", end.remote)
					*end.conn, err = net.DialUDP("udp", l, far)
					return err
				}); err != nil {
					t.Fatal(err)
				}
			}
			return caller, called
		}
		var l net.Listener
		if err := inNetns(t, "b", func() (err error) { l, err = net.Listen("tcp", address); return err }); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		caller, err := call(t, "a", "tcp", address, long)
		if err != nil {
			t.Fatal(err)
		}
		if called, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		return caller, called
	}
	port := 100
	for _, c := range []struct {
		what     string
		network  string
		from, to int // ports, but for TCP's caller; to: and those after it
		at       int // who gets rules
		in, out  int
		want     bool // what is said by the caller arrives
	}{
		{"a server denies it", "udp", 40000, 100, 1, none, 0, false},
		{"a server denies it, and may call all", "udp", 40000, 100, 1, none, all, false},
		{"a caller may not, and is open", "udp", 40000, 100, 0, 0, none, false},
		{"a caller may not, and lets all in", "udp", 40000, 100, 0, all, none, false},
		{"a server denies it, high ports", "udp", 51820, 51820, 1, none, 0, false},
		{"a caller may not, high ports", "udp", 51820, 51820, 0, 0, none, false},
		{"a server denies it, low ports", "udp", 500, 500, 1, none, 0, false},
		{"a server lets it, and may call nobody", "udp", 40000, 100, 1, all, none, true},
		{"a server lets it, high ports", "udp", 51820, 51820, 1, all, none, true},
		{"a server lets it, low ports", "udp", 500, 500, 1, all, none, true},
		{"a caller may, and is closed", "udp", 40000, 100, 0, none, all, true},
		{"a server denies it", "tcp", 0, 100, 1, none, 0, false},
		{"a server denies it, and may call all", "tcp", 0, 100, 1, none, all, false},
		{"a caller may not, and is open", "tcp", 0, 100, 0, 0, none, false},
		{"a caller may not, and lets all in", "tcp", 0, 100, 0, all, none, false},
		{"a server lets it, and may call nobody", "tcp", 0, 100, 1, all, none, true},
		{"a caller may, and is closed", "tcp", 0, 100, 0, none, all, true},
	} {
		t.Run(c.network+" "+c.what, func(t *testing.T) {
			r.enforce(pipeline.Policy{})
			port++
			caller, called := open(c.network, c.from+port, c.to+port)
			defer func() { _, _ = caller.Close(), called.Close() }()
			ovstest.Eventually(t, long, func() error { return hears(caller, called, short) })
			ovstest.Eventually(t, long, func() error { return hears(called, caller, short) })
			r.enforce(first(c.at, true, c.in, c.out))
			for range 3 { // whether it arrives or not
				_ = hears(called, caller, short/10)
			}
			if c.want {
				ovstest.Eventually(t, long, func() error { return hears(caller, called, short) })
				ovstest.Eventually(t, long, func() error { return hears(called, caller, short) })
			} else if hears(caller, called, short) == nil {
				t.Error("what is denied goes on")
			}
			// The rules are not young for ever; what was open before them does not come back then.
			r.enforce(first(c.at, false, c.in, c.out))
			_ = hears(called, caller, short/10)
			if err := hears(caller, called, short); (err == nil) != c.want {
				t.Errorf("later: %v, want that it goes on: %v", err, c.want)
			}
		})
	}
	// A call that begins while rules are young is one as any.
	r.enforce(pipeline.Policy{})
	serve(t, "b", 80)
	r.enforce(first(1, true, all, none))
	for _, network := range []string{"tcp", "udp"} {
		c, err := call(t, "a", network, "[fd00:1::8]:80", long)
		if err == nil {
			err = comesBack(c, long)
		}
		if err != nil {
			t.Errorf("%s: %v", network, err)
		}
	}
}

// hears says whether one line does.
func hears(from, to net.Conn, within time.Duration) error {
	now := time.Now()
	line := fmt.Sprintf("%020d", now.UnixNano())
	_ = from.SetWriteDeadline(now.Add(within))
	if _, err := from.Write([]byte(line)); err != nil {
		return err
	}
	_ = to.SetReadDeadline(now.Add(within))
	got := ""
	for buf := make([]byte, len(line)); !strings.HasSuffix(got, line); {
		n, err := to.Read(buf)
		if err != nil {
			return err
		}
		got += string(buf[:n])
	}
	return nil
}
