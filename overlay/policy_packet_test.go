package overlay

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// ruled is a switch with three containers, whose rules a test changes.
type ruled struct {
	t        *testing.T
	ovs      *ovs.Embedded
	bridge   *ovs.Bridge
	in       pipeline.Input
	compiler pipeline.Compiler
}

// newRuled makes the containers a, b and c, and the host's gateway port gv0.
func newRuled(t *testing.T) *ruled {
	e, b := ovstest.Start(t)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	specs := []ovs.PortSpec{{Name: "gv0", Type: "internal", Role: roleEndpoint}}
	for i, name := range []string{"a", "b", "c"} {
		ovstest.Container(t, ruledName(name), "gv"+ruledName(name), macOf(name[0]), fmt.Sprintf("10.128.0.%d/22", 7+i), "10.128.0.1")
		ovstest.Run(t, "ip", "-n", ruledName(name), "addr", "add", fmt.Sprintf("fd00:1::%d/64", 7+i), "dev", "eth0", "nodad")
		specs = append(specs, ovs.PortSpec{Name: "gv" + ruledName(name), Role: roleEndpoint})
	}
	s, err := b.SetPorts(t.Context(), specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := net.InterfaceByName("gv0")
	if err != nil {
		t.Fatal(err)
	}
	ovstest.Run(t, "ip", "addr", "replace", "10.128.0.1/22", "dev", "gv0")
	t.Cleanup(func() { // the next test has gv0 as this one leaves it
		_ = exec.Command("ip", "addr", "del", "10.128.0.1/22", "dev", "gv0").Run()
		_ = exec.Command("ip", "addr", "del", "198.51.100.9/32", "dev", "lo").Run()
	})
	ovstest.Run(t, "ip", "link", "set", "gv0", "up")
	ovstest.Run(t, "ip", "addr", "replace", "198.51.100.9/32", "dev", "lo")
	mode := pipeline.HeaderBits
	if b.Datapath == ovs.Kernel {
		mode = pipeline.Metadata
	}
	r := &ruled{t: t, ovs: e, bridge: b, in: pipeline.Input{
		Round: pipeline.Round, Tunnel: mode, GatewayPort: s.Ports["gv0"].OFPort, GatewayMAC: gateway.HardwareAddr,
		Subnets: []pipeline.Subnet{{Prefix: prefix("10.128.0.0/22"), VNID: 5, Gateway: addr("10.128.0.1")}, {Prefix: prefix("fd00:1::/64"), VNID: 5, Gateway: addr("fd00:1::1")}},
	}}
	for i, name := range []string{"a", "b", "c"} {
		r.in.Ports = append(r.in.Ports, pipeline.Port{
			OFPort: s.Ports["gv"+ruledName(name)].OFPort, MAC: macOf(name[0]), VNID: 5, Endpoint: name,
			Addrs: []netip.Addr{addr(fmt.Sprintf("10.128.0.%d", 7+i)), addr(fmt.Sprintf("fd00:1::%d", 7+i))},
		})
	}
	r.enforce(pipeline.Policy{})
	return r
}

// ruledName is a container's namespace, and after "gv" its port: no other test's.
func ruledName(container string) string { return "ruled-" + container }

func (r *ruled) enforce(p pipeline.Policy) {
	r.t.Helper()
	r.in.Policy = p
	_, changes, err := r.compiler.Compile(r.in)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.bridge.ForgetConnections(r.t.Context(), pipeline.Zone, changes.Tracked()...); err != nil {
		r.t.Fatal(err)
	}
	if err := r.bridge.ApplyBundle(r.t.Context(), changes.Lines()); err != nil {
		r.t.Fatal(err)
	}
	if err := r.ovs.FlowsInPlace(r.t.Context()); err != nil { // till then the kernel's datapath takes nothing new, and nothing settles
		r.t.Fatal(err)
	}
	ovstest.Settle(r.t, r.bridge)
}

// policy guards endpoints, in both directions, at an epoch; their classes are 1, 2 and 3.
func (r *ruled) policy(guarded string, epoch uint16, rules ...pipeline.PolicyRule) (p pipeline.Policy) {
	for i, e := range r.in.Ports {
		if strings.Contains(guarded, e.Endpoint) {
			p.Guards = append(p.Guards, pipeline.Guard{Endpoint: e.Endpoint, Addrs: e.Addrs, Ingress: true, Egress: true, IngressEpoch: epoch, EgressEpoch: epoch})
		}
		p.Classes = append(p.Classes, pipeline.Class{ID: uint32(i + 1), Addrs: e.Addrs})
	}
	for i, rule := range rules {
		rule.ID, rule.Action, rule.Priority = uint32(i+1), pipeline.Accept, pipeline.PriorityNetworkPolicy
		p.Rules = append(p.Rules, rule)
	}
	return p
}

// lets is the two rules by which a connection passes that goes from a class to a port of another.
func lets(from, to uint32, ports ...pipeline.PortRange) []pipeline.PolicyRule {
	return []pipeline.PolicyRule{
		{Direction: pipeline.Egress, Subjects: []uint32{from}, Peers: []uint32{to}, AnyPort: len(ports) == 0, Ports: ports},
		{Direction: pipeline.Ingress, Subjects: []uint32{to}, Peers: []uint32{from}, AnyPort: len(ports) == 0, Ports: ports},
	}
}

// inNetns runs f in a container's network namespace.
func inNetns(t *testing.T, container string, f func() error) error {
	t.Helper()
	return inNamespace(ruledName(container), f)
}

func inNamespace(name string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with f
		fd, err := unix.Open("/run/netns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			_ = unix.Close(fd)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// serve echoes lines at a port of all addresses of a container; TCP and UDP.
func serve(t *testing.T, container string, port int) {
	t.Helper()
	if err := inNetns(t, container, func() error { return echoAt(t, fmt.Sprintf(":%d", port)) }); err != nil {
		t.Fatal(err)
	}
}

// echoAt is serve, of the host.
func echoAt(t *testing.T, at string) error {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	u, err := net.ListenPacket("udp", at)
	if err != nil {
		_ = l.Close()
		return err
	}
	t.Cleanup(func() { _, _ = l.Close(), u.Close() })
	ovstest.Echo(l, u)
	return nil
}

func call(t *testing.T, from, network, to string, timeout time.Duration) (c net.Conn, err error) {
	t.Helper()
	err = inNetns(t, from, func() error {
		c, err = net.DialTimeout(network, to, timeout)
		return err
	})
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// comesBack says whether what is sent on a connection comes back in time.
func comesBack(c net.Conn, within time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(within))
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 5))
	return err
}

// short is how long the test waits for what must not come, long for what must.
const short, long = 300 * time.Millisecond, 10 * time.Second

func TestPolicyOfPackets(t *testing.T) {
	r := newRuled(t)
	serve(t, "b", 80)
	serve(t, "b", 81)
	tcp80 := pipeline.PortRange{Proto: 6, From: 80, To: 80}
	udp80 := pipeline.PortRange{Proto: 17, From: 80, To: 80}
	echo := []pipeline.PortRange{{Proto: 1, From: 8, To: 0}, {Proto: 58, From: 128, To: 65535}}
	reach := func(network, to string, want bool) {
		t.Helper()
		wait := long
		if !want {
			wait = short
		}
		c, err := call(t, "a", network, to, wait)
		if err == nil {
			err = comesBack(c, wait)
		}
		if (err == nil) != want {
			t.Errorf("%s to %s: %v, want that it passes: %v", network, to, err, want)
		}
	}
	fragments := func(to string, want bool) {
		t.Helper()
		c, err := call(t, "a", "udp", to, long)
		if err != nil {
			t.Fatal(err)
		}
		wait := long
		if !want {
			wait = short
		}
		_ = c.SetDeadline(time.Now().Add(wait))
		sent, got := bytes.Repeat([]byte("0123456789"), 180), make([]byte, 2048)
		if _, err := c.Write(sent); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(got); (err == nil && bytes.Equal(got[:n], sent)) != want {
			t.Errorf("fragments to %s: %d bytes come back, %v", to, n, err)
		}
	}
	reach("tcp", "10.128.0.8:81", true)
	fragments("10.128.0.8:80", true)
	r.enforce(r.policy("ab", 1, lets(1, 2, tcp80, udp80)...))
	for _, family := range []string{"10.128.0.8", "[fd00:1::8]"} {
		reach("tcp", family+":80", true)
		reach("udp", family+":80", true)
		reach("tcp", family+":81", false)
		fragments(family+":80", true)
		fragments(family+":81", false)
		reach("udp", family+":81", false)
	}
	silent := func(from string, args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", append([]string{"netns", "exec", ruledName(from), "busybox", "ping", "-c1", "-W1"}, args...)...).CombinedOutput(); err == nil {
			t.Errorf("%s reaches %v:\n%s", from, args, out)
		}
	}
	pings := func(from string, args ...string) {
		t.Helper()
		if from != "" {
			from = ruledName(from)
		}
		if err := ping(from, args...); err != nil {
			t.Error(err)
		}
	}
	silent("a", "10.128.0.8")
	silent("c", "10.128.0.8")
	pings("", "10.128.0.8") // the host itself
	for _, network := range []string{"tcp", "udp"} {
		c, err := net.DialTimeout(network, "10.128.0.8:81", long)
		if err == nil {
			err = comesBack(c, long)
			_ = c.Close()
		}
		if err != nil {
			t.Errorf("the host's %s: %v", network, err)
		}
	}
	silent("a", "198.51.100.9") // egress to the outside
	pings("c", "198.51.100.9")  // who has no rules
	r.enforce(r.policy("ab", 2, append(lets(1, 2, append(echo, tcp80, udp80)...), pipeline.PolicyRule{
		Direction: pipeline.Egress, Subjects: []uint32{1}, Blocks: []netip.Prefix{prefix("198.51.100.0/24")}, AnyPort: true,
	})...))
	pings("a", "10.128.0.8")
	pings("a", "-6", "fd00:1::8")
	pings("a", "198.51.100.9")
	silent("b", "10.128.0.7")

	// An ICMP error is part of the connection: at a port of UDP where nobody listens.
	r.enforce(r.policy("ab", 3, lets(1, 2, pipeline.PortRange{Proto: 17, From: 9, To: 9})...))
	for _, to := range []string{"10.128.0.8:9", "[fd00:1::8]:9"} {
		c, err := call(t, "a", "udp", to, long)
		if err != nil {
			t.Fatal(err)
		}
		if err := comesBack(c, long); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("UDP to %s, where nobody listens: %v", to, err)
		}
	}
}

// TestPolicyCuts: open connections go on while rules change and let them, and end with the
// next packet when they do not, whoever sends it; also those that are older than the rules.
func TestPolicyCuts(t *testing.T) {
	r := newRuled(t)
	serve(t, "b", 80)
	tcp80 := pipeline.PortRange{Proto: 6, From: 80, To: 80}
	connect := func() (net.Conn, net.Conn) {
		t.Helper()
		var l net.Listener
		if err := inNetns(t, "b", func() (err error) { l, err = net.Listen("tcp", ":82"); return err }); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		c, err := call(t, "a", "tcp", "10.128.0.8:82", long)
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return c, s
	}
	passes := func(from, to net.Conn, want bool) {
		t.Helper()
		wait := long
		if !want {
			wait = short
		}
		_ = to.SetReadDeadline(time.Now().Add(wait))
		_ = from.SetWriteDeadline(time.Now().Add(wait))
		_, err := from.Write([]byte("hello"))
		if err == nil {
			_, err = io.ReadFull(to, make([]byte, 5))
		}
		if (err == nil) != want {
			t.Errorf("%v to %v: %v, want that it passes: %v", from.LocalAddr(), to.LocalAddr(), err, want)
		}
	}
	tcp82 := pipeline.PortRange{Proto: 6, From: 82, To: 82}

	// Older than the rules, which let it: it goes on as soon as the caller speaks.
	c, s := connect()
	passes(c, s, true)
	r.enforce(r.policy("ab", 1, lets(1, 2, tcp80, tcp82)...))
	passes(c, s, true)
	passes(s, c, true)
	// Other rules that let it, too.
	r.enforce(r.policy("ab", 2, lets(1, 2, tcp82)...))
	passes(s, c, true)
	passes(c, s, true)
	r.enforce(r.policy("b", 3, lets(1, 2, tcp82)...))
	passes(c, s, true)
	passes(s, c, true)
	// And rules that do not.
	r.enforce(r.policy("b", 4, lets(1, 2, tcp80)...))
	passes(s, c, false)
	passes(c, s, false)
	r.enforce(r.policy("b", 5, lets(1, 2, tcp82)...))
	ovstest.Eventually(t, long, func() error { // TCP sends again what was lost
		_ = s.SetReadDeadline(time.Now().Add(long))
		_, err := io.ReadFull(s, make([]byte, 5))
		return err
	})

	// The rules go, and come again: meanwhile much was said that conntrack did not see.
	r.enforce(pipeline.Policy{})
	for from, to := range map[net.Conn]net.Conn{c: s, s: c} {
		const much = 2 << 20
		done := make(chan error, 1)
		go func() {
			_ = to.SetReadDeadline(time.Now().Add(long))
			_, err := io.CopyN(io.Discard, to, much)
			done <- err
		}()
		_ = from.SetWriteDeadline(time.Now().Add(long))
		if _, err := from.Write(make([]byte, much)); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	r.enforce(r.policy("b", 5, lets(1, 2, tcp82)...))
	passes(s, c, true)
	passes(c, s, true)
	passes(s, c, true)

	// Older than the rules, which do not let it: neither end gets through.
	for _, first := range []bool{true, false} {
		r.enforce(pipeline.Policy{})
		c, s := connect()
		passes(c, s, true)
		passes(s, c, true)
		r.enforce(r.policy("b", 6, lets(1, 2, tcp80)...))
		if first {
			passes(s, c, false)
		}
		passes(c, s, false)
		passes(s, c, false)
	}
}
