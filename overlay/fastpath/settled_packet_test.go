package fastpath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/overlay/tunnel"
)

// ruled is a switch with two containers, a and b, that rules are about, and a fast path beside it.
type ruled struct {
	t          testing.TB
	bare       bool // no policies
	bridge     *ovs.Bridge
	path       *Path
	in         pipeline.Input
	compiler   pipeline.Compiler
	flows      []pipeline.Flow
	containers map[string]*linktest.NS
	epoch      uint16
	gateway    string   // its interface; none: it has none
	callers    []uint32 // classes that may call b
	life       *life    // nil: the agent lives on
}

// life is an agent that is killed before one of what it does to the switch and the maps.
type life struct {
	left    int  // of that; below 0 it is over
	changed bool // the switch goes by the new flows
}

// next is before each of these.
func (l *life) next() error {
	if l == nil {
		return nil
	}
	if l.left--; l.left < 0 {
		return errKilled
	}
	return nil
}

func newRuled(t testing.TB) *ruled {
	_, b := ovstest.Start(t)
	if b.Datapath == ovs.Kernel {
		t.Skip("the kernel's datapath needs no fast path")
	}
	must(t, b.Ensure(t.Context()))
	must(t, b.IgnoreSequences(t.Context()))
	r := &ruled{t: t, bridge: b, containers: map[string]*linktest.NS{}, callers: []uint32{1}}
	var specs []ovs.PortSpec
	for i, e := range []string{"a", "b"} {
		r.containers[e] = r.container(e, fmt.Sprintf("10.128.0.%d", 2+i), fmt.Sprintf("10.128.0.%d", 3-i))
		specs = append(specs, ovs.PortSpec{Name: "gv" + e, Role: "endpoint"})
	}
	s, err := b.SetPorts(t.Context(), specs, nil)
	must(t, err)
	r.in = pipeline.Input{
		Round: pipeline.Round, Tunnel: pipeline.HeaderBits,
		Subnets: []pipeline.Subnet{{Prefix: prefixes("10.128.0.0/22")[0], VNID: 5}},
	}
	for i, e := range []string{"a", "b"} {
		r.in.Ports = append(r.in.Ports, pipeline.Port{OFPort: s.Ports["gv"+e].OFPort, MAC: macs[e], Addrs: addrs(fmt.Sprintf("10.128.0.%d", 2+i)), VNID: 5, Endpoint: e, Guarded: true})
	}
	r.agent()
	return r
}

// container is one as the userspace datapath has it, without the agent's name for its interfaces.
func (r *ruled) container(e, addr, other string) *linktest.NS {
	t, ns := r.t, linktest.New(r.t)
	t.Cleanup(func() {
		for _, name := range []string{"gh" + e, "gv" + e} {
			_ = link.Delete(name)
		}
	})
	must(t, link.Veth{Name: "gh" + e, Peer: "gc" + e, PeerMAC: macs[e], MTU: mtu}.Ensure())
	must(t, link.Veth{Name: "gv" + e, Peer: "gx" + e, MTU: mtu}.Ensure())
	must(t, link.ForUserspace("gx"+e, false))
	must(t, errors.Join(link.Consume("gv"+e), link.Splice("gh"+e, "gx"+e), link.Splice("gx"+e, "gh"+e)))
	for _, name := range []string{"gh", "gv", "gx"} {
		must(t, errors.Join(link.NoIPv6Address(name+e), link.Up(name+e)))
	}
	peer, err := netlink.LinkByName("gc" + e)
	must(t, err)
	must(t, netlink.LinkSetNsFd(peer, ns.FD()))
	ns.Do(func() {
		must(t, os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0o644))
		linktest.Up(t, "gc"+e, addr+"/22")
		eth, err := netlink.LinkByName("gc" + e)
		must(t, err)
		must(t, netlink.NeighSet(&netlink.Neigh{
			LinkIndex: eth.Attrs().Index, IP: netip.MustParseAddr(other).AsSlice(), HardwareAddr: pipeline.RouterMAC, State: netlink.NUD_PERMANENT,
		}))
	})
	return ns
}

// agent is one that begins.
func (r *ruled) agent() {
	r.t.Helper()
	name := func(prefix string) func(string) string { return func(id string) string { return prefix + id } }
	r.path = New(Config{Tunnel: "none", TunnelMTU: "none", Prefix: "gh", Device: name("gh"), InnerPrefix: "gx", Inner: name("gx"), Port: "none", Gateway: r.gateway})
	must(r.t, r.path.Start(false))
	r.t.Cleanup(func() { r.path.Close() })
	r.compiler, r.flows = pipeline.Compiler{}, nil
}

// enforce lets a call ports of b, if it lets anybody do anything. It stops where the agent is killed.
func (r *ruled) enforce(killed string, ports ...pipeline.PortRange) {
	r.t.Helper()
	r.epoch++
	r.in.Policy = pipeline.Policy{Classes: []pipeline.Class{{ID: 1, Addrs: r.in.Ports[0].Addrs}, {ID: 2, Addrs: r.in.Ports[1].Addrs}, {ID: 3, Ranges: prefixes("198.51.100.0/28")}}}
	for _, p := range r.in.Ports {
		r.in.Policy.Guards = append(r.in.Policy.Guards, pipeline.Guard{Endpoint: p.Endpoint, Addrs: p.Addrs, VNID: 5, Ingress: true, Egress: true, IngressEpoch: r.epoch, EgressEpoch: r.epoch})
	}
	if len(ports) > 0 {
		r.in.Policy.Rules = []pipeline.PolicyRule{
			{ID: 7, Direction: pipeline.Ingress, Priority: pipeline.PriorityNetworkPolicy, Action: pipeline.Accept, Subjects: []uint32{2}, Peers: r.callers, Ports: ports, Label: "in", Slot: 1},
			{ID: 8, Direction: pipeline.Egress, Priority: pipeline.PriorityNetworkPolicy, Action: pipeline.Accept, Subjects: []uint32{1}, AnyPeer: true, AnyPort: true, Label: "out", Slot: 2},
		}
	}
	if r.bare {
		r.in.Policy = pipeline.Policy{}
	}
	in := r.in
	var bare map[string]bool
	in.Generation, bare = r.path.Settle(in)
	var err error
	in.Secret, err = r.path.Secret()
	must(r.t, err)
	in.Ports = slices.Clone(in.Ports)
	for i := range in.Ports {
		in.Ports[i].Bare = bare[in.Ports[i].Endpoint]
	}
	in.GatewayBare = bare[pipeline.AtGateway]
	if r.bare {
		in.Generation = 0
	}
	want, _, err := r.compiler.Compile(in)
	must(r.t, err)
	dump, err := r.bridge.DumpFlows(r.t.Context())
	must(r.t, err)
	var have []pipeline.Flow
	for _, f := range dump {
		have = append(have, pipeline.Flow{Table: f.Table, Priority: f.Priority, Cookie: f.Cookie, Match: f.Match, Actions: f.Actions})
	}
	if changes := pipeline.Diff(have, want); changes.TouchPolicy() {
		in.Generation = pipeline.NextGeneration(in.Generation, have)
		want, _, err = r.compiler.Compile(in)
		must(r.t, err)
	}
	changes := pipeline.Diff(have, want)
	r.path.Begin(changes.Begun())
	if r.life != nil {
		r.path.log, r.path.tables.before = slog.New(slog.DiscardHandler), r.life.next
	}
	if dead(r.t, r.path.Narrow(r.t.Context(), in)) || killed == "before the flows change" || dead(r.t, r.life.next()) {
		return
	}
	must(r.t, r.bridge.ForgetConnections(r.t.Context(), pipeline.Zone, changes.Tracked()...))
	if dead(r.t, r.path.Forget(slices.Concat(changes.Tracked(), changes.Left()))) || dead(r.t, r.life.next()) {
		return
	}
	must(r.t, r.bridge.ApplyBundle(r.t.Context(), changes.Lines()))
	// Till then the datapath may go by the flows before.
	ovstest.Eventually(r.t, time.Minute, func() error {
		_, err := r.bridge.Appctl(r.t.Context(), "revalidator/wait")
		return err
	})
	if r.life != nil {
		r.life.changed = true
	}
	if killed == "when the flows have changed" || dead(r.t, r.life.next()) || dead(r.t, r.path.Widen(r.t.Context(), in)) {
		return
	}
	r.flows = want
	if _, trouble := r.path.On(); trouble != nil {
		r.t.Fatal(trouble)
	}
}

// dead reports whether an agent is; any other error is the test's end.
func dead(t testing.TB, err error) bool {
	if !errors.Is(err, errKilled) {
		must(t, err)
	}
	return err != nil
}

// counted is what the switch and the fast path have counted for a rule, and the latter alone.
func (r *ruled) counted(rule uint32) (all, carried pipeline.Count) {
	dump, err := r.bridge.DumpFlows(r.t.Context())
	must(r.t, err)
	var flows []pipeline.Flow
	var counts []pipeline.Count
	for _, f := range dump {
		flows = append(flows, pipeline.Flow{Table: f.Table, Priority: f.Priority, Cookie: f.Cookie, Match: f.Match, Actions: f.Actions})
		counts = append(counts, pipeline.Count{Packets: f.Packets, Bytes: f.Bytes})
	}
	rules, _ := pipeline.CountRules(flows, counts)
	tally, err := r.path.Tally()
	must(r.t, err)
	carried = tally.Rules[rule]
	all = rules[rule].Passed
	return pipeline.Count{Packets: all.Packets + carried.Packets, Bytes: all.Bytes + carried.Bytes}, carried
}

// sent is what both containers have.
func (r *ruled) sent() (n pipeline.Count) {
	for e, ns := range r.containers {
		ns.Do(func() {
			for name, sum := range map[string]*uint64{"tx_packets": &n.Packets, "tx_bytes": &n.Bytes} {
				l, err := netlink.LinkByName("gc" + e)
				must(r.t, err)
				*sum += map[string]uint64{"tx_packets": l.Attrs().Statistics.TxPackets, "tx_bytes": l.Attrs().Statistics.TxBytes}[name]
			}
		})
	}
	return n
}

// echo is a service of b that says what it hears.
func (r *ruled) echo() {
	r.containers["b"].Do(func() {
		l, err := net.Listen("tcp", "10.128.0.3:80")
		must(r.t, err)
		r.t.Cleanup(func() { _ = l.Close() })
		u, err := net.ListenPacket("udp", "10.128.0.3:53")
		must(r.t, err)
		r.t.Cleanup(func() { _ = u.Close() })
		ovstest.Echo(l, u)
	})
}

func (r *ruled) dial(network string) (c net.Conn) {
	r.t.Helper()
	r.containers["a"].Do(func() {
		var err error
		c, err = net.DialTimeout(network, map[string]string{"tcp": "10.128.0.3:80", "udp": "10.128.0.3:53"}[network], 10*time.Second)
		must(r.t, err)
	})
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// said says something, which comes back within a time.
func said(c net.Conn, within time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(within))
	b := []byte("0123456789")
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(c, b)
	return err
}

var services = []pipeline.PortRange{{Proto: 6, From: 80, To: 80}, {Proto: 17, From: 53, To: 53}}

// TestSettledPackets: connections that rules let through pass the switch by, all but a few packets, and each is counted for both rules.
func TestSettledPackets(t *testing.T) {
	r := newRuled(t)
	r.echo()
	r.enforce("", services...)
	sent := r.sent() // nothing was counted yet
	for _, network := range []string{"tcp", "udp"} {
		_, before := r.counted(7)
		c := r.dial(network)
		for range 500 {
			must(t, said(c, 10*time.Second))
		}
		_ = c.Close()
		var after, carried pipeline.Count
		ovstest.Eventually(t, 10*time.Second, func() error {
			is := r.sent()
			after, carried = r.counted(7)
			other, _ := r.counted(8)
			// The switch's own counters are late by up to half a second or so.
			if is.Packets-sent.Packets != after.Packets || is.Bytes-sent.Bytes != after.Bytes || other != after {
				return fmt.Errorf("%s: of %+v to %+v sent the rules have counted %+v, %+v", network, sent, is, after, other)
			}
			return nil
		})
		if carried.Packets < before.Packets+900 {
			t.Errorf("%s: %+v carried are %+v", network, before, carried)
		}
		t.Logf("%s: %+v were sent, %+v carried", network, after, carried)
	}
	// Both containers know the router by one MAC address only, whoever delivers.
	r.containers["a"].Do(func() {
		list, err := netlink.NeighList(0, netlink.FAMILY_V4)
		must(t, err)
		for _, n := range list {
			if n.HardwareAddr != nil && n.HardwareAddr.String() != pipeline.RouterMAC.String() {
				t.Errorf("neighbour %v", n)
			}
		}
	})
}

// TestSettledCountsBegin: what was carried counts for a rule as long as what the switch counted: not when it went and came again, nor
// when Open vSwitch has begun anew; and over a change of other rules, and of agents, it does.
func TestSettledCountsBegin(t *testing.T) {
	r := newRuled(t)
	r.echo()
	talk := func(when string) {
		t.Helper()
		before, _ := r.counted(7)
		c := r.dial("udp") // which says no word when it ends
		for range 200 {
			must(t, said(c, 10*time.Second))
		}
		_ = c.Close()
		ovstest.Eventually(t, 10*time.Second, func() error {
			all, carried := r.counted(7)
			if more := all.Packets - before.Packets; more != 400 || carried.Packets < 350 {
				return fmt.Errorf("%s, of 400 packets %d were counted; %d were carried", when, more, carried.Packets)
			}
			return nil
		})
	}
	begins := func(when string) {
		t.Helper()
		for _, rule := range []uint32{7, 8} {
			if all, _ := r.counted(rule); all != (pipeline.Count{}) {
				t.Errorf("%s rule %d has %+v", when, rule, all)
			}
		}
		talk(when)
	}
	r.enforce("", services...)
	begins("when a rule comes to be")
	r.enforce("")
	r.enforce("", services...)
	begins("when a rule has gone and come again")
	r.enforce("")
	must(t, r.path.Close())
	r.agent()
	r.enforce("", services...)
	begins("when a rule has gone and come again, by another agent")
	must(t, r.bridge.ApplyBundle(t.Context(), []string{"delete"}))
	r.enforce("", services...)
	begins("when the switch has begun anew")
	was, _ := r.counted(7)
	must(t, r.path.Close())
	r.agent()
	r.enforce("", append(services, pipeline.PortRange{Proto: 6, From: 81, To: 81})...)
	if is, _ := r.counted(7); is != was {
		t.Errorf("%+v are %+v by another agent, when a rule's ports change", was, is)
	}
	talk("by another agent")
}

// TestSettledBare: a container at whose interface nothing notes gets no marks, and is the switch's; the others' connections are noted.
func TestSettledBare(t *testing.T) {
	r := newRuled(t)
	r.echo()
	r.path.cfg.Inner = func(id string) string { return map[string]string{"a": "gxa", "b": "gxgone"}[id] }
	var got *linktest.Socket
	r.containers["b"].Do(func() { got = linktest.Open(t, "gcb") })
	r.enforce("", services...)
	c := r.dial("udp")
	for range 20 {
		must(t, said(c, 10*time.Second))
	}
	_, carried := r.counted(7)
	if carried != (pipeline.Count{}) {
		t.Errorf("%+v were carried", carried)
	}
	frames := 0
	for f := got.Receive(time.Second); f != nil; f = got.Receive(100 * time.Millisecond) {
		if slices.Equal(f[:6], macs["b"]) {
			if frames++; !slices.Equal(f[6:12], pipeline.RouterMAC) {
				t.Errorf("%x arrives", f)
			}
		}
	}
	if frames < 20 {
		t.Errorf("%d frames arrived", frames)
	}
	noted, it := 0, r.path.objs.GvSettled.Iterate()
	for k, v := []byte(nil), []byte(nil); it.Next(&k, &v); noted++ {
	}
	if err := it.Err(); err != nil || noted != 1 {
		t.Errorf("%d connections are noted, where the other container is: %v", noted, err)
	}
}

// TestSettledEnds: what notes is there while rules are, and goes when none have been there for a moment.
func TestSettledEnds(t *testing.T) {
	r := newRuled(t)
	there := func(when string, want bool) {
		t.Helper()
		program, err := link.AttachedTC("gxa", link.Ingress, noteLocalProgram)
		if must(t, err); (program != 0) != want {
			t.Errorf("%s there is program %d", when, program)
		}
	}
	r.enforce("", services...)
	there("with rules", true)
	r.bare = true
	r.enforce("")
	r.enforce("")
	there("just without rules", true)
	r.path.lull.since = r.path.lull.since.Add(-inFlight)
	r.enforce("")
	there("a moment later", false)
	r.bare = false
	r.enforce("", services...)
	there("with rules again", true)
}

// TestSettledLarge: a stream of many bytes comes through whole, also while the rules change, and change again.
func TestSettledLarge(t *testing.T) {
	r := newRuled(t)
	r.echo()
	r.enforce("", services...)
	c := r.dial("tcp")
	const size = 64 << 20
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	wrote := make(chan error, 1)
	go func() {
		b := make([]byte, 1<<16)
		for at := 0; at < size; at += len(b) {
			for i := range b {
				b[i] = byte((at + i) * 7 >> 3)
			}
			if _, err := c.Write(b); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- nil
	}()
	b := make([]byte, 1<<16)
	for at := 0; at < size; at += len(b) {
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(at, err)
		}
		for i := range b {
			if b[i] != byte((at+i)*7>>3) {
				t.Fatalf("byte %d is wrong", at+i)
			}
		}
		if at%(16<<20) == 0 {
			r.enforce("", append(services, pipeline.PortRange{Proto: 6, From: uint16(100 + at>>20), To: 200})...)
		}
	}
	must(t, <-wrote)
	_, carried := r.counted(7)
	t.Logf("%+v were carried", carried)
	if carried.Bytes < size {
		t.Errorf("of %d bytes and their answers %d were carried", size, carried.Bytes)
	}
}

// TestSettledCut: a connection ends, in both directions, when rules forbid it, wherever an agent is killed meanwhile; when
// they allow it again it goes on.
func TestSettledCut(t *testing.T) {
	r := newRuled(t)
	r.echo()
	for _, killed := range []string{"", "before the flows change", "when the flows have changed"} {
		r.enforce("", services...)
		conns := map[string]net.Conn{"tcp": r.dial("tcp"), "udp": r.dial("udp")}
		for network, c := range conns {
			for range 20 {
				if err := said(c, 10*time.Second); err != nil {
					t.Fatal(killed, network, err)
				}
			}
		}
		_, before := r.counted(7)
		if before.Packets < 60 {
			t.Errorf("%q: %+v were carried", killed, before)
		}
		r.enforce(killed)
		if killed == "before the flows change" {
			_, before = r.counted(7) // an acknowledgement may have been on its way until then
			// The rules that allow it are in force still, by the switch alone.
			for network, c := range conns {
				if err := said(c, 10*time.Second); err != nil {
					t.Fatal(killed, network, err)
				}
			}
			if _, after := r.counted(7); after != before {
				t.Errorf("%s: %+v were carried, and then %+v", killed, before, after)
			}
		}
		if killed != "" {
			must(t, r.path.Close())
			r.agent()
			r.epoch--
			r.enforce("")
		}
		for network, c := range conns {
			if err := said(c, 500*time.Millisecond); err == nil {
				t.Errorf("%q: what is forbidden goes on: %s", killed, network)
			}
		}
		r.enforce("", services...)
		if err := said(conns["udp"], 10*time.Second); err != nil {
			t.Error(killed, "udp does not go on", err)
		}
		// TCP sends again what was lost; what it said before comes first.
		_ = conns["tcp"].SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadFull(conns["tcp"], make([]byte, 10)); err != nil {
			t.Error(killed, "tcp does not go on", err)
		}
		for _, c := range conns {
			_ = c.Close()
		}
	}
}

// BenchmarkSettled has a round trip, a connection with one, and a stream of 1 MB between two containers of a host without rules, with rules, and
// by the switch alone, in turns.
func BenchmarkSettled(b *testing.B) {
	r := newRuled(b)
	r.echo()
	for range 3 {
		for _, by := range []string{"plain", "rules", "switch"} {
			for i := range r.in.Ports {
				r.in.Ports[i].Plain, r.in.Ports[i].Guarded = by == "plain", by == "rules"
			}
			r.bare = by == "plain"
			r.enforce("", services...)
			b.Run("round-trip/"+by, func(b *testing.B) {
				c := r.dial("tcp")
				for b.Loop() {
					must(b, said(c, 10*time.Second))
				}
			})
			b.Run("connection/"+by, func(b *testing.B) {
				for b.Loop() {
					c := r.dial("tcp")
					must(b, said(c, 10*time.Second))
					_ = c.Close()
				}
			})
			b.Run("stream/"+by, func(b *testing.B) {
				c := r.dial("tcp")
				out, in := make([]byte, 1<<20), make([]byte, 1<<20)
				b.SetBytes(2 << 20)
				for b.Loop() {
					_ = c.SetDeadline(time.Now().Add(30 * time.Second))
					wrote := make(chan error, 1)
					go func() { _, err := c.Write(out); wrote <- err }()
					_, err := io.ReadFull(c, in)
					must(b, errors.Join(err, <-wrote))
				}
			})
		}
	}
}

// TestSettledTunnel: what the switch marks on its way to another host arrives there as it would without a mark, with the program that
// notes it or, as when that is just being taken away, without; and then the container's next packets pass the switch by.
func TestSettledTunnel(t *testing.T) {
	a, b := twoHosts(t)
	a.Do(func() {
		tun := tunnel.New(tunnel.Config{MTU: mtu})
		_, err := tun.Ensure(t.Context())
		must(t, err)
		must(t, tun.SetVTEPs(t.Context(), map[uint32]netip.Addr{1: addrs("10.9.0.2")[0]}))
		must(t, tun.Close())
	})
	must(t, a.path.Close())
	name := func(prefix string) func(string) string { return func(id string) string { return prefix + id } }
	a.path = New(Config{Tunnel: "gvvxlan", TunnelMTU: "gvvxlan", Prefix: "gh", Device: name("gh"), InnerPrefix: "gx", Inner: name("gx"), Port: "gvtun"})
	t.Cleanup(func() { a.path.Close() })
	a.Do(func() { must(t, a.path.Start(false)) })
	a.in.Ports = slices.Clone(a.in.Ports)
	a.in.Ports[0].Plain, a.in.Ports[0].Guarded = false, true
	var switched, sent, got *linktest.Socket
	a.Do(func() {
		if generation, bare := a.path.Settle(a.in); generation == 0 || len(bare) > 0 {
			t.Fatal("nothing is to be noted")
		}
		switched = linktest.Open(t, "gvtun")
	})
	a.in.Generation = 0xabcd
	a.apply()
	a.container.Do(func() { sent = linktest.Open(t, "gca") })
	b.container.Do(func() { got = linktest.Open(t, "gca") })
	segment := func(port byte, macs ...byte) []byte {
		l4 := []byte{0x9c, 0x40, 0, port, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0, 'h', 'i'}
		ip := []byte{0x45, 0, 0, byte(20 + len(l4)), 0, 0, 0, 0, 64, 6, 0, 0, 10, 128, 0, 7, 10, 128, 1, 7}
		binary.BigEndian.PutUint16(ip[10:], uint16(sum(ip)))
		return slices.Concat(macs, []byte{8, 0}, ip, l4)
	}
	arrives := func(port byte) bool {
		for end := time.Now().Add(time.Second); time.Now().Before(end); {
			f := got.Receive(200 * time.Millisecond)
			if len(f) >= 56 && f[12] == 8 && f[23] == 6 && f[37] == port {
				if want := segment(port, slices.Concat(macs["a"], pipeline.RouterMAC)...); !slices.Equal(f, want) {
					t.Errorf("%x arrives, want %x", f, want)
				}
				return true
			}
		}
		return false
	}
	plain := slices.Concat(pipeline.RouterMAC, macs["a"])
	if sent.Send(segment(80, plain...)); arrives(80) {
		t.Error("what the switch has not seen is carried")
	}
	const slot = 0x5a3
	marked := []byte{2 | 0x40 | slot>>8<<2, slot & 0xff, 0, 0, 0, 1, 3, 0xab, 0xcd, 0, 0, 5}
	if switched.Send(segment(80, marked...)); !arrives(80) {
		t.Error("what is marked does not arrive")
	}
	if sent.Send(segment(80, plain...)); !arrives(80) {
		t.Error("what is noted is not carried")
	}
	if sent.Send(segment(81, plain...)); arrives(81) {
		t.Error("another connection is carried")
	}
	a.Do(func() { must(t, link.DetachTC("gvtun", link.Egress, noteTunnelProgram)) })
	if switched.Send(segment(82, marked...)); !arrives(82) {
		t.Error("without the program that notes, what is marked does not arrive")
	}
	a.Do(func() { must(t, a.path.Stop()) })
	if switched.Send(segment(83, marked...)); !arrives(83) {
		t.Error("with the fast path off, what is marked does not arrive")
	}
}
