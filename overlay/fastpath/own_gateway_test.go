package fastpath

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// Addresses of the outside, which the host is itself here: of who calls and is called, of a router, and of one whom rules let b not be called by.
const outsider, aRouter, stranger = "198.51.100.1", "198.51.100.2", "198.51.100.77"

// newOutside is newRuled with a gateway, and an outside that may call b.
func newOutside(t testing.TB) *ruled {
	t.Cleanup(func() { _ = link.Delete("gv0") }) // when Open vSwitch is gone
	r := newRuled(t)
	must(t, r.path.Close())
	s, err := r.bridge.SetPorts(t.Context(), []ovs.PortSpec{{Name: "gv0", Type: "internal", Role: "gateway"}}, nil)
	must(t, err)
	l, err := netlink.LinkByName("gv0")
	must(t, err)
	linktest.Up(t, "gv0", "10.128.3.1/32", outsider+"/32", aRouter+"/32", stranger+"/32")
	must(t, netlink.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: cidr(t, "10.128.0.0/22"), Scope: netlink.SCOPE_LINK}))
	for _, a := range []string{"10.128.0.2", "10.128.0.3"} {
		must(t, netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: net.ParseIP(a), HardwareAddr: pipeline.RouterMAC, State: netlink.NUD_PERMANENT}))
	}
	for e, ns := range r.containers {
		ns.Do(func() {
			eth, err := netlink.LinkByName("gc" + e)
			must(t, err)
			must(t, netlink.NeighSet(&netlink.Neigh{LinkIndex: eth.Attrs().Index, IP: net.ParseIP("10.128.3.1"), HardwareAddr: pipeline.RouterMAC, State: netlink.NUD_PERMANENT}))
			must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: net.ParseIP("10.128.3.1")}))
		})
	}
	r.in.GatewayPort, r.in.GatewayMAC, r.in.VTEP = s.Ports["gv0"].OFPort, l.Attrs().HardwareAddr, addrs("203.0.113.1")[0]
	r.in.Subnets[0].Gateway = addrs("10.128.3.1")[0]
	r.gateway, r.callers = "gv0", []uint32{1, 3}
	r.agent()
	return r
}

func cidr(t testing.TB, text string) *net.IPNet {
	_, n, err := net.ParseCIDR(text)
	must(t, err)
	return n
}

// side is one of two that talk by the gateway: a, b or, "", the outside.
func (r *ruled) side(who string, f func()) {
	if who == "" {
		f()
		return
	}
	r.containers[who].Do(f)
}

// between is a connection by the gateway, and the other end of it.
func (r *ruled) between(from, fromAddr string, fromPort int, to, toAddr string, toPort int) (caller, called *net.TCPConn, err error) {
	var l net.Listener
	r.side(to, func() { l, err = net.Listen("tcp", net.JoinHostPort(toAddr, strconv.Itoa(toPort))) })
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	got := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			got <- c
		}
	}()
	var c net.Conn
	r.side(from, func() {
		for port := fromPort; ; port = 33000 + rand.IntN(27000) { // the kernel may remember one of an earlier test
			d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(fromAddr), Port: port}}
			if c, err = d.Dial("tcp", net.JoinHostPort(toAddr, strconv.Itoa(toPort))); !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return
			}
		}
	})
	if err != nil {
		return nil, nil, err
	}
	select {
	case d := <-got:
		caller, called = c.(*net.TCPConn), d.(*net.TCPConn)
	case <-time.After(10 * time.Second):
		return nil, nil, errors.New("nobody calls")
	}
	r.t.Cleanup(func() { _ = caller.Close(); _ = called.Close() })
	return caller, called, nil
}

// out calls the outside from a, and in calls b from the outside.
func (r *ruled) out(from, to int) (caller, called *net.TCPConn) {
	r.t.Helper()
	caller, called, err := r.between("a", "10.128.0.2", from, "", outsider, to)
	must(r.t, err)
	return caller, called
}

func (r *ruled) incoming(from, to int) (caller, called *net.TCPConn) {
	r.t.Helper()
	caller, called, err := r.between("", outsider, from, "b", "10.128.0.3", to)
	must(r.t, err)
	return caller, called
}

// TestOwnAtTheGateway: to the outside and from there all connections but the first begin without the switch, and each packet, byte and connection is counted for its rule.
func TestOwnAtTheGateway(t *testing.T) {
	r := newOutside(t)
	r.enforce("", services...)
	traffic := func(e string) (n pipeline.Count) { // of a container, both ways
		r.containers[e].Do(func() {
			l, err := netlink.LinkByName("gc" + e)
			must(t, err)
			s := l.Attrs().Statistics
			n = pipeline.Count{Packets: s.TxPackets + s.RxPackets, Bytes: s.TxBytes + s.RxBytes}
		})
		return n
	}
	const connections = 50
	for _, way := range []struct {
		name, of string
		rule     uint32
		call     func(from, to int) (caller, called *net.TCPConn)
	}{{"to the outside", "a", 8, r.out}, {"from the outside", "b", 7, r.incoming}} {
		sent := traffic(way.of)
		for i := range connections {
			c, d := way.call(40000+i, 80)
			must(t, errors.Join(hears(c, d), hears(d, c), c.Close(), d.Close()))
		}
		var all, carried pipeline.Count
		ovstest.Eventually(t, 30*time.Second, func() error {
			is := traffic(way.of)
			all, carried = r.counted(way.rule)
			if is.Packets-sent.Packets != all.Packets || is.Bytes-sent.Bytes != all.Bytes {
				return fmt.Errorf("%s: of %d packets, %d bytes the rule counts %+v", way.name, is.Packets-sent.Packets, is.Bytes-sent.Bytes, all)
			}
			return nil
		})
		tally, err := r.path.Tally()
		must(t, err)
		dump, err := r.bridge.DumpFlows(t.Context())
		must(t, err)
		var flows []pipeline.Flow
		var counts []pipeline.Count
		for _, f := range dump {
			flows = append(flows, pipeline.Flow{Table: f.Table, Priority: f.Priority, Cookie: f.Cookie, Match: f.Match, Actions: f.Actions})
			counts = append(counts, pipeline.Count{Packets: f.Packets, Bytes: f.Bytes})
		}
		rules, _ := pipeline.CountRules(flows, counts)
		if n := rules[way.rule].Connections + tally.Begun[way.rule].Packets; n != connections {
			t.Errorf("%s: %d connections are counted, of %d", way.name, n, connections)
		}
		if n := tally.Begun[way.rule].Packets; n < connections*8/10 || carried.Packets < all.Packets*8/10 {
			t.Errorf("%s: %d of %d connections began without the switch, which had %d of %d packets", way.name, n, connections, all.Packets-carried.Packets, all.Packets)
		}
		t.Logf("%s: %d of %d packets were carried", way.name, carried.Packets, all.Packets)
	}
	// What passed would be refused at least: b hears at no port any more.
	for from, to := range map[string]string{outsider: "10.128.0.3:81", stranger: "10.128.0.3:80"} {
		d := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		var late net.Error
		if _, err := d.Dial("tcp", to); !errors.As(err, &late) || !late.Timeout() {
			t.Errorf("%s, which no rule lets call %s, is answered: %v", from, to, err)
		}
	}
}

// owning has a connection begin without the switch.
func (r *ruled) owning(call func(from, to int) (caller, called *net.TCPConn), from, to int) (caller, called *net.TCPConn) {
	r.t.Helper()
	ovstest.Eventually(r.t, 30*time.Second, func() error {
		before := r.owned()
		from++
		if caller, called = call(from, to); r.owned() <= before {
			return errors.Join(errors.New("no connection begins without the switch"), caller.Close(), called.Close())
		}
		return errors.Join(hears(caller, called), hears(called, caller))
	})
	return caller, called
}

// TestOwnAtTheGatewayCut: a connection with the outside that the switch has never seen ends when rules forbid it, and goes on when they allow it again, whoever speaks, by
// ports that do not say who called; and when it is the switch's it stays so.
func TestOwnAtTheGatewayCut(t *testing.T) {
	r := newOutside(t)
	more := append(slices.Clone(wide), pipeline.PortRange{Proto: 6, From: 443, To: 443})
	for _, way := range []struct {
		name string
		call func(from, to int) (caller, called *net.TCPConn)
	}{{"to the outside", r.out}, {"from the outside", r.incoming}} {
		for who, speaks := range []string{"its caller", "who was called"} {
			r.enforce("", wide...)
			c, d := r.owning(way.call, 40000+100*who, 50051+who)
			if speaks != "its caller" {
				c, d = d, c
			}
			r.enforce("", more...)
			if err := hears(c, d); err != nil {
				t.Fatalf("%s: other rules change, and what %s says does not come: %v", way.name, speaks, err)
			}
			r.enforce("")
			_ = d.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Read(make([]byte, 1)); err == nil {
				t.Errorf("%s: what is forbidden goes on, as %s speaks", way.name, speaks)
			}
			r.enforce("", wide...)
			_ = d.SetReadDeadline(time.Now().Add(30 * time.Second))
			if _, err := d.Read(make([]byte, 1)); err != nil {
				t.Errorf("%s: it does not go on when it may: %v", way.name, err)
			}
			r.talked(c, d, 0)
			must(t, errors.Join(c.Close(), d.Close()))
		}
	}
}

// TestOwnWithoutTheAgent: where no agent holds what delivers from the gateway, what has begun without the switch goes on, and what begins does so by the switch.
func TestOwnWithoutTheAgent(t *testing.T) {
	r := newOutside(t)
	r.enforce("", wide...)
	var pairs [][2]*net.TCPConn
	for i, call := range []func(from, to int) (caller, called *net.TCPConn){r.out, r.incoming} {
		c, d := r.owning(call, 40000+100*i, 50051+i)
		pairs = append(pairs, [2]*net.TCPConn{c, d})
		c, d = r.owning(call, 41000+100*i, 50053+i)
		pairs = append(pairs, [2]*net.TCPConn{d, c})
	}
	own, err := r.path.objs.GvOwn.Clone()
	must(t, err)
	must(t, r.path.Close())
	defer own.Close()
	owned := func() map[ownKey]ownValue {
		list, err := batch[ownKey, ownValue](own)
		must(t, err)
		return list
	}
	var before map[ownKey]ownValue
	ovstest.Eventually(t, 60*time.Second, func() error { // the kernel closes maps some time after
		had := owned()
		c, d := r.out(0, 50055)
		must(t, errors.Join(hears(c, d), c.Close(), d.Close()))
		before = owned()
		for k := range before {
			if _, was := had[k]; !was {
				return fmt.Errorf("without an agent a connection begins that the switch does not know: %v", k)
			}
		}
		return nil
	})
	for i, call := range []func(from, to int) (caller, called *net.TCPConn){r.out, r.incoming, r.out, r.incoming} {
		c, d := call(42000+i, 50055)
		must(t, errors.Join(hears(c, d), hears(d, c), c.Close(), d.Close()))
		for k := range owned() {
			if _, was := before[k]; !was {
				t.Error("without an agent a connection begins that the switch does not know:", k)
			}
		}
	}
	for i, p := range pairs { // by ports of which nobody would say who called
		if err := errors.Join(hears(p[0], p[1]), hears(p[1], p[0])); err != nil {
			t.Errorf("connection %d does not go on: %v", i, err)
		}
	}
	r.agent()
	r.epoch--
	r.enforce("", wide...)
	for i, p := range pairs {
		if err := errors.Join(hears(p[0], p[1]), hears(p[1], p[0])); err != nil {
			t.Errorf("connection %d does not go on with the next agent: %v", i, err)
		}
	}
}

// TestOwnErrorsFromRouters: a router's ICMP error about a connection of which the switch knows nothing comes, and one about a connection that there is not does not.
func TestOwnErrorsFromRouters(t *testing.T) {
	r := newOutside(t)
	r.enforce("", services...)
	tell := func(from, port uint16) {
		raw, err := net.DialIP("ip4:icmp", &net.IPAddr{IP: net.ParseIP(aRouter)}, &net.IPAddr{IP: net.ParseIP("10.128.0.2")})
		must(t, err)
		_, err = raw.Write(unreachable(1, netip.AddrPortFrom(netip.MustParseAddr("10.128.0.2"), from), netip.AddrPortFrom(netip.MustParseAddr(outsider), port)))
		must(t, errors.Join(err, raw.Close()))
	}
	c, _ := r.owning(r.out, 40000, 80)
	at := uint16(c.LocalAddr().(*net.TCPAddr).Port)
	before, had := r.heard(), r.owned()
	tell(at, 80)
	ovstest.Eventually(t, 10*time.Second, func() error {
		if n := r.heard(); n != before+1 {
			return fmt.Errorf("%d errors have come, of 1", n-before)
		}
		return nil
	})
	if r.owned() != had {
		t.Fatal("the switch knows the connection: the test shows nothing")
	}
	tell(at+1000, 80)
	tell(at, 80) // what comes last says that the one before does not
	ovstest.Eventually(t, 10*time.Second, func() error {
		if n := r.heard(); n != before+2 {
			return fmt.Errorf("%d errors have come, of 2", n-before)
		}
		return nil
	})
}
