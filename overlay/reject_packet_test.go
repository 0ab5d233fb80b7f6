package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/overlay/reject"
)

// rejecting is rules by which nothing but what is named is rejected: of what begins at subjects, or what goes to them.
func (r *ruled) rejecting(guarded string, epoch uint16, rules ...pipeline.PolicyRule) {
	p := r.policy(guarded, epoch, rules...)
	for i := range p.Rules {
		p.Rules[i].Action, p.Rules[i].Priority = pipeline.Reject, pipeline.PriorityNetworkPolicy+1
	}
	for i, d := range []pipeline.Direction{pipeline.Ingress, pipeline.Egress} {
		p.Rules = append(p.Rules, pipeline.PolicyRule{ID: uint32(100 + i), Direction: d, Action: pipeline.Accept, Subjects: []uint32{1, 2, 3}, AnyPeer: true, AnyPort: true})
	}
	r.in.Ports = slices.Clone(r.in.Ports) // the compiler keeps those that it was given
	for i := range r.in.Ports {
		r.in.Ports[i].Rejects = strings.Contains(guarded, r.in.Ports[i].Endpoint)
	}
	r.enforce(p)
}

// answering runs what answers on gv0, until stop.
func answering(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	d, done := reject.New("gv0", slog.New(slog.DiscardHandler)), make(chan struct{})
	d.Set(true)
	go func() { defer close(done); _ = d.Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// TestRejected: who is rejected is told at once, by whichever protocol and family, whoever's rules it is and wherever the
// packet comes from; without who answers it is only dropped.
func TestRejected(t *testing.T) {
	r := newRuled(t)
	serve(t, "b", 80)
	serve(t, "b", 81)
	// The host's end of the veth has an address of the host's too, and would answer ARP before the switch does.
	ovstest.Run(t, "ip", "-n", ruledName("a"), "neigh", "replace", "10.128.0.1", "lladdr", pipeline.RouterMAC.String(), "dev", "eth0", "nud", "permanent")
	ports := []pipeline.PortRange{{Proto: 6, From: 81, To: 81}, {Proto: 17, From: 81, To: 81}}
	ingress := pipeline.PolicyRule{Direction: pipeline.Ingress, Subjects: []uint32{2}, AnyPeer: true, Ports: ports}
	r.rejecting("b", 1, ingress)
	stop := answering(t)
	// refused wants a call of a container's to have this answer; nil: its echo.
	refused := func(from, network, to string, want error) {
		t.Helper()
		wait := time.Second // a datagram may be lost while the switch learns what to do with it
		if errors.Is(want, context.DeadlineExceeded) {
			wait = short
		}
		ovstest.Eventually(t, long, func() error { // till it answers
			c, err := call(t, from, network, to, wait)
			if err == nil {
				err = comesBack(c, wait)
			}
			if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() && wait == short {
				err = context.DeadlineExceeded
			}
			if !errors.Is(err, want) {
				return fmt.Errorf("%s's %s to %s: %w, want %w", from, network, to, err, want)
			}
			return nil
		})
	}
	both := func(from string, tcp4, udp4, udp6 error) {
		t.Helper()
		refused(from, "tcp", "10.128.0.8:81", tcp4)
		refused(from, "tcp", "[fd00:1::8]:81", tcp4)
		refused(from, "udp", "10.128.0.8:81", udp4)
		refused(from, "udp", "[fd00:1::8]:81", udp6)
		refused(from, "tcp", "10.128.0.8:80", nil)
		refused(from, "tcp", "[fd00:1::8]:80", nil)
	}
	both("a", unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.EACCES)
	// Of both ends on one host, each may be the one that rules are about.
	egress := pipeline.PolicyRule{Direction: pipeline.Egress, Subjects: []uint32{1}, AnyPeer: true, Ports: ports}
	r.rejecting("a", 2, egress)
	both("a", unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.EACCES)
	refused("a", "tcp", "198.51.100.9:81", unix.ECONNREFUSED)
	refused("a", "udp", "198.51.100.9:81", unix.EHOSTUNREACH)
	refused("a", "tcp", "10.128.0.1:81", unix.ECONNREFUSED)
	both("c", nil, nil, nil)
	r.rejecting("ab", 3, ingress)
	both("a", unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.EACCES)
	r.rejecting("abc", 4, egress, ingress)
	both("c", unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.EACCES)

	// From outside, by the gateway: the answer goes back by the port that the call came by.
	from := func(port int) error {
		d := net.Dialer{Timeout: long, LocalAddr: &net.TCPAddr{IP: net.IPv4(198, 51, 100, 9)}}
		c, err := d.Dial("tcp", fmt.Sprintf("10.128.0.8:%d", port))
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := from(81); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("from outside: %v", err)
	}
	if err := from(80); err != nil {
		t.Errorf("from outside, allowed: %v", err)
	}
	stop()
	both("a", context.DeadlineExceeded, context.DeadlineExceeded, context.DeadlineExceeded)
}

// TestRejectedBesideAFlood: who floods what rejects it takes no answers from others.
func TestRejectedBesideAFlood(t *testing.T) {
	r := newRuled(t)
	serve(t, "b", 80)
	r.rejecting("b", 1, pipeline.PolicyRule{Direction: pipeline.Ingress, Subjects: []uint32{2}, AnyPeer: true, Ports: []pipeline.PortRange{{Proto: 6, From: 81, To: 81}, {Proto: 17, From: 81, To: 81}}})
	answering(t)
	refused := func(within time.Duration) bool {
		_, err := call(t, "c", "tcp", "10.128.0.8:81", within)
		return errors.Is(err, unix.ECONNREFUSED)
	}
	ovstest.Eventually(t, long, func() error { // till it answers
		if !refused(time.Second) {
			return errors.New("nobody answers")
		}
		return nil
	})
	var flood net.Conn
	if err := inNetns(t, "a", func() (err error) { flood, err = net.Dial("udp", "10.128.0.8:81"); return err }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	sent, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; sent++ {
			_, _ = flood.Write(make([]byte, 100))
		}
	}()
	time.Sleep(short) // the queues are full
	const calls = 20
	n := 0
	for range calls {
		if refused(short) {
			n++
		}
	}
	cancel()
	<-done
	_ = flood.Close()
	t.Logf("%d of %d calls refused beside %d datagrams", n, calls, sent)
	if n < calls/2 {
		t.Errorf("beside a flood %d of %d calls of another container are refused at once", n, calls)
	}
}

// TestRejectCuts: of a connection that rules do not let go on, whoever speaks next is told.
func TestRejectCuts(t *testing.T) {
	r := newRuled(t)
	answering(t)
	var l net.Listener
	if err := inNetns(t, "b", func() (err error) { l, err = net.Listen("tcp", ":82"); return err }); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for i, guarded := range []string{"a", "b", "ab"} {
		for j, caller := range []bool{true, false} {
			epoch := uint16(10*i + 3*j + 1)
			r.rejecting(guarded, epoch, pipeline.PolicyRule{Direction: pipeline.Ingress, Subjects: []uint32{3}, AnyPeer: true, AnyPort: true})
			c, err := call(t, "a", "tcp", "10.128.0.8:82", long)
			if err != nil {
				t.Fatal(err)
			}
			s, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			d, subject := pipeline.Egress, uint32(1)
			if guarded == "b" {
				d, subject = pipeline.Ingress, 2
			}
			speaks := c
			if !caller {
				speaks = s
			}
			r.rejecting(guarded, epoch+1, pipeline.PolicyRule{Direction: d, Subjects: []uint32{subject}, AnyPeer: true, AnyPort: true})
			ovstest.Eventually(t, long, func() error { // it speaks until it is told, and is told for good
				if err := comesBack(speaks, short); !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
					return fmt.Errorf("rules of %s, the caller speaks: %v: %w", guarded, caller, err)
				}
				return nil
			})
			_, _ = c.Close(), s.Close()
		}
	}
}

// TestAnswersAreGuarded: nobody but the agent answers for others, and it in no way but a RST and one error, and to nobody but
// those whom rules are about, or in the place of these.
func TestAnswersAreGuarded(t *testing.T) {
	b, port := sceneSwitch(t, pipeline.HeaderBits)
	in := scene(pipeline.HeaderBits, port)
	in.Ports[0].Rejects = true
	flows, err := pipeline.Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	before, err := pipeline.Compile(scene(pipeline.HeaderBits, port))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ApplyBundle(t.Context(), pipeline.Diff(before, flows).Lines()); err != nil {
		t.Fatal(err)
	}
	ends := func(src, dst netip.Addr) string {
		if src.Is6() {
			return fmt.Sprintf("ipv6_src=%s,ipv6_dst=%s", src, dst)
		}
		return fmt.Sprintf("nw_src=%s,nw_dst=%s", src, dst)
	}
	const rst, prohibited, prohibited6 = "tcp,tcp_flags=rst", "icmp,icmp_type=3,icmp_code=13", "icmp6,icmpv6_type=1,icmpv6_code=1"
	own, own6, there, outside := addr("10.128.0.7"), addr("fd00:1::7"), addr("10.128.2.9"), addr("198.51.100.1")
	gv0, gva := fmt.Sprint("in_port=", port["gv0"]), fmt.Sprint("in_port=", port["gva"])
	to := func(name string) string { return fmt.Sprint("output:", port[name]) }
	for _, c := range []struct{ what, packet, ends, want string }{
		{"to who is rejected", gv0 + "," + rst, ends(outside, own), to("gva")},
		{"an error to it", gv0 + "," + prohibited, ends(there, own), to("gva")},
		{"an error of IPv6", gv0 + "," + prohibited6, ends(addr("2001:db8::1"), own6), to("gva")},
		{"in its place to another host", gv0 + "," + rst, ends(own, there), to("gvtun")},
		{"in its place to the outside", gv0 + "," + rst, ends(own, outside), to("gv0")},
		{"a call", gv0 + ",tcp,tcp_flags=syn", ends(outside, own), ""},
		{"what is no RST", gv0 + ",tcp,tcp_flags=ack", ends(own, there), ""},
		{"a datagram", gv0 + ",udp", ends(outside, own), ""},
		{"another error", gv0 + ",icmp,icmp_type=3,icmp_code=4", ends(outside, own), ""},
		{"a redirect", gv0 + ",icmp,icmp_type=5,icmp_code=1", ends(outside, own), ""},
		{"between others", gv0 + "," + rst, ends(outside, there), ""},
		{"in the place of another one here", gv0 + "," + rst, ends(addr("10.130.0.7"), there), ""},
		{"from a container", gva + "," + rst, ends(there, own), ""},
	} {
		text := c.packet + "," + c.ends + ",dl_src=" + pipeline.RejectMAC.String() + ",dl_dst=" + pipeline.RouterMAC.String()
		if strings.Contains(c.ends, "ipv6") {
			text = strings.Replace(text, ",tcp,", ",tcp6,", 1)
		}
		got, trace := verdict(t, b, in, text)
		if c.want == "" && strings.HasPrefix(got, "output") || c.want != "" && got != c.want && got != strings.Replace(c.want, "output:", "output ", 1) {
			t.Errorf("%s: %q, want %q\n%s", c.what, got, c.want, trace)
		}
	}
}
