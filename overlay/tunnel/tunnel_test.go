package tunnel

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

var ctx = context.Background()

// wrapping is how the tunnels of the tests wrap packets. The machine's own kernel may have no Geneve: tests/uml has.
var wrapping = flag.String("encap", encap.VXLAN.Name, "how packets are wrapped: vxlan or geneve, or gre for TestOneFamily")

// wrapped is what there is of it.
func wrapped(t *testing.T) encap.Kind {
	t.Helper()
	k, err := encap.Parse(*wrapping)
	ok(t, err)
	return k
}

// host is a host of the test, with a tunnel and what the switch would see of it.
type host struct {
	*linktest.NS
	t      *testing.T
	tunnel *Tunnel
	port   *linktest.Socket
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start makes or takes over the tunnel, as an agent that starts.
func (h *host) start(vteps map[uint32]string) {
	h.t.Helper()
	h.tunnel = New(Config{Kind: wrapped(h.t), MTU: 1400})
	h.t.Cleanup(func() { _ = h.tunnel.Close() })
	h.Do(func() {
		name, err := h.tunnel.Ensure(ctx)
		ok(h.t, err)
		if name != "gvtun" {
			h.t.Errorf("the port is called %q", name)
		}
		linktest.WaitUp(h.t, Port)
	})
	h.set(vteps)
}

func (h *host) set(vteps map[uint32]string) {
	h.t.Helper()
	m := make(map[uint32]netip.Addr)
	for i, a := range vteps {
		m[i] = netip.MustParseAddr(a)
	}
	ok(h.t, h.tunnel.SetVTEPs(ctx, m))
}

func (h *host) counters() Counters {
	h.t.Helper()
	c, err := h.tunnel.Counters(ctx)
	ok(h.t, err)
	return c
}

// What the hosts of pair know each other by.
var (
	vtepsOfA = map[uint32]string{0x01020304: "10.9.0.2", 6: "fd09::2"}
	vtepsOfB = map[uint32]string{9: "10.9.0.1", 0xfffffffe: "fd09::1"}
)

// pair returns two hosts joined over IPv4 and IPv6, with tunnels that know each other.
func pair(t *testing.T) (a, b *host) {
	a, b = &host{NS: linktest.New(t), t: t}, &host{NS: linktest.New(t), t: t}
	linktest.Wire(t, "eth0", a.NS, b.NS, []string{"10.9.0.1/24", "fd09::1/64"}, []string{"10.9.0.2/24", "fd09::2/64"})
	a.start(vtepsOfA)
	b.start(vtepsOfB)
	for _, h := range []*host{a, b} {
		h.Do(func() { h.port = linktest.Open(t, Port) })
	}
	return a, b
}

// frame is what the switch sends to a VTEP, or receives from one.
func frame(index, vni uint32, payload string) []byte {
	f := binary.BigEndian.AppendUint32([]byte{2, 1}, index)
	f = binary.BigEndian.AppendUint32(append(f, 2, 0), vni)
	f = append(f, 0x88, 0xb5) // IEEE 802 local experimental
	return append(f, payload+strings.Repeat(" ", max(46-len(payload), 0))...)
}

// expect fails unless the next frame at the host's port is want (nil: none).
func (h *host) expect(want []byte) {
	h.t.Helper()
	timeout := 2 * time.Second
	if want == nil {
		timeout = 50 * time.Millisecond
	}
	if diff := cmp.Diff(want, h.port.Receive(timeout)); diff != "" {
		h.t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBothWays(t *testing.T) {
	a, b := pair(t)
	big := strings.Repeat("x", 1400)
	for _, c := range []struct {
		from, to   *host
		send, want []byte
	}{
		{a, b, frame(0x01020304, 100, "over IPv4"), frame(9, 100, "over IPv4")},
		{a, b, frame(6, 0xabcdef, "over IPv6"), frame(0xfffffffe, 0xabcdef, "over IPv6")},
		{b, a, frame(9, 0xffffff, "back"), frame(0x01020304, 0xffffff, "back")},
		{b, a, frame(0xfffffffe, 0, "back"), frame(6, 0, "back")},
		{a, b, frame(0x01020304, 1, big), frame(9, 1, big)},
		{a, b, frame(6, 1, big), frame(0xfffffffe, 1, big)},
	} {
		c.from.port.Send(c.send)
		c.to.expect(c.want)
	}
	if a.counters() != (Counters{}) || b.counters() != (Counters{}) {
		t.Errorf("counted %+v and %+v", a.counters(), b.counters())
	}
}

// Between hosts of one family packets of all sizes go both ways, and the agent of before may have been one of the other family,
// for which GRE has another device.
func TestOneFamily(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		addrs := [2]string{"10.9.0.1", "10.9.0.2"}
		if v6 {
			addrs = [2]string{"fd09::1", "fd09::2"}
		}
		a, b := &host{NS: linktest.New(t), t: t}, &host{NS: linktest.New(t), t: t}
		linktest.Wire(t, "eth0", a.NS, b.NS, []string{"10.9.0.1/24", "fd09::1/64"}, []string{"10.9.0.2/24", "fd09::2/64"})
		for i, h := range []*host{a, b} {
			h.Do(func() {
				for _, of := range []bool{!v6, v6, v6} {
					if h.tunnel != nil {
						ok(t, h.tunnel.Close())
					}
					h.tunnel = New(Config{Kind: wrapped(t), MTU: 1400, V6: of, Source: netip.MustParseAddr(addrs[i])})
					_, err := h.tunnel.Ensure(ctx)
					ok(t, err)
				}
				t.Cleanup(func() { _ = h.tunnel.Close() })
				linktest.WaitUp(t, Port)
				h.port = linktest.Open(t, Port)
			})
			h.set(map[uint32]string{7: addrs[1-i]})
		}
		big := strings.Repeat("x", 1400)
		for range 2 {
			for _, f := range [][]byte{frame(7, 100, "small"), frame(7, 0xabcdef, big), frame(7, 0, "of no network")} {
				a.port.Send(f)
				b.expect(f)
				b.port.Send(f)
				a.expect(f)
			}
		}
		a.set(map[uint32]string{8: "10.9.0.99"})
		b.port.Send(frame(7, 1, "from who is no host"))
		a.expect(nil)
		if got := a.counters(); got != (Counters{RxUnknownVTEP: 1}) || b.counters() != (Counters{}) {
			t.Errorf("IPv6 %v: counted %+v and %+v", v6, got, b.counters())
		}
		a.Do(func() {
			ok(t, a.tunnel.Remove(ctx))
			if left, err := link.List("gv"); err != nil || len(left) != 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// A host of several addresses sends from the one that the others know, whatever the route says;
// of a VTEP of the other family it has none to send from.
func TestSource(t *testing.T) {
	for source, other := range map[string]string{"10.9.0.11": "fd09::11", "fd09::1": "10.9.0.1"} { // of IPv6 the kernel takes the newest
		t.Run(source, func(t *testing.T) {
			a, b := pair(t)
			a.Do(func() { linktest.Up(t, "eth0", "10.9.0.11/24", "fd09::11/64") })
			b.set(map[uint32]string{9: source, 7: other})
			ok(t, a.tunnel.Close())
			a.tunnel = New(Config{Kind: wrapped(t), MTU: 1400, Source: netip.MustParseAddr(source)})
			a.Do(func() {
				can, err := link.TunnelSource()
				ok(t, err)
				if !can && os.Getenv("CI") == "" {
					t.Skip("this kernel takes no source")
				}
				_, err = a.tunnel.Ensure(ctx)
				ok(t, err)
			})
			same, another := uint32(0x01020304), uint32(6)
			if netip.MustParseAddr(source).Is6() {
				same, another = another, same
			}
			a.port.Send(frame(same, 5, "from its own"))
			b.expect(frame(9, 5, "from its own"))
			a.port.Send(frame(another, 5, "from another"))
			b.expect(frame(7, 5, "from another"))
		})
	}
}

// What goes to a host inside what encrypts is sent from inside, though the underlay is of IPv6 as well.
func TestInside(t *testing.T) {
	if can, err := link.TunnelSource(); !can && os.Getenv("CI") == "" {
		t.Skip("this kernel takes no source:", err)
	}
	a, b := pair(t)
	for i, h := range []*host{a, b} {
		h.Do(func() { linktest.Up(t, "eth0", fmt.Sprintf("fd67:7261:7065:1::%d/64", i+1)) })
	}
	ok(t, a.tunnel.Close())
	a.tunnel = New(Config{Kind: wrapped(t), MTU: 1400, Source: netip.MustParseAddr("fd09::1")})
	a.Do(func() {
		_, err := a.tunnel.Ensure(ctx)
		ok(t, err)
	})
	a.set(map[uint32]string{6: "fd09::2", 8: "fd67:7261:7065:1::2"})
	b.set(map[uint32]string{9: "fd09::1", 7: "fd67:7261:7065:1::1"})
	for range 2 {
		a.port.Send(frame(8, 5, "inside"))
		b.expect(frame(7, 5, "inside"))
		a.port.Send(frame(6, 5, "beside"))
		b.expect(frame(9, 5, "beside"))
	}
}

func TestUnknownIsDroppedAndCounted(t *testing.T) {
	a, b := pair(t)
	b.set(map[uint32]string{0xfffffffe: "fd09::1"})
	wrongDestination, wrongSource := frame(6, 100, ""), frame(6, 100, "")
	wrongDestination[1], wrongSource[8] = 2, 1
	for _, f := range [][]byte{
		frame(0x01020304, 100, "from a VTEP that host B does not know"),
		frame(7, 100, "to an index that nobody has"),
		wrongDestination, wrongSource,
		frame(6, 100, "good"),
	} {
		a.port.Send(f)
	}
	b.expect(frame(0xfffffffe, 100, "good"))
	b.expect(nil)
	if got := a.counters(); got != (Counters{TxNotOurs: 2, TxUnknownIndex: 1}) {
		t.Errorf("host A counted %+v", got)
	}
	if got := b.counters(); got != (Counters{RxUnknownVTEP: 1}) {
		t.Errorf("host B counted %+v", got)
	}
}

// Agents come and go on both hosts while a packet a millisecond passes.
func TestRestartLosesNothing(t *testing.T) {
	a, b := pair(t)
	b.Do(func() { ok(t, link.GrowBuffers(os.Getpid())) }) // we read after the last packet
	const packets = 500
	sent := make(chan bool)
	go func() {
		defer close(sent)
		for i := range packets {
			a.port.Send(frame(0x01020304, 100, fmt.Sprint("packet ", i)))
			time.Sleep(time.Millisecond)
		}
	}()
	restarts := 0
	for running := true; running; restarts++ {
		select {
		case <-sent:
			running = false
		default:
			ok(t, a.tunnel.Close())
			a.start(vtepsOfA)
			ok(t, b.tunnel.Close())
			b.start(vtepsOfB)
		}
	}
	if restarts < 5 {
		t.Errorf("only %d restarts", restarts)
	}
	for i := range packets {
		b.expect(frame(9, 100, fmt.Sprint("packet ", i)))
		if t.Failed() {
			t.Fatalf("packet %d, %d restarts", i, restarts)
		}
	}
}

func TestEnsureRepairs(t *testing.T) {
	a, b := pair(t)
	for name, destroy := range map[string]func(){
		"device": func() { ok(t, link.Delete(a.tunnel.wire())) },
		"port":   func() { ok(t, link.Delete(Port)) },
		"programs": func() {
			detach(t, a.tunnel.wire())
			detach(t, Port)
		},
		"set down": func() {
			l, err := netlink.LinkByName(a.tunnel.wire())
			ok(t, err)
			ok(t, netlink.LinkSetDown(l))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a.Do(func() {
				destroy()
				_, err := a.tunnel.Ensure(ctx)
				ok(t, err)
				linktest.WaitUp(t, Port)
				a.port = linktest.Open(t, Port)
			})
			a.port.Send(frame(0x01020304, 1, name))
			b.expect(frame(9, 1, name))
			b.port.Send(frame(9, 1, name))
			a.expect(frame(0x01020304, 1, name))
		})
	}
}

// detach takes all tc programs off a device.
func detach(t *testing.T, dev string) {
	l, err := netlink.LinkByName(dev)
	ok(t, err)
	ok(t, netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}))
}

func TestVTEPsOutliveTheAgent(t *testing.T) {
	a, _ := pair(t)
	ok(t, a.tunnel.Close())
	a.Do(func() {
		next := New(Config{Kind: wrapped(t)})
		defer next.Close()
		got, err := next.VTEPs(ctx)
		ok(t, err)
		want := map[uint32]netip.Addr{0x01020304: netip.MustParseAddr("10.9.0.2"), 6: netip.MustParseAddr("fd09::2")}
		if !maps.Equal(got, want) {
			t.Errorf("the next agent finds %v", got)
		}
	})
}

func TestRemove(t *testing.T) {
	a, _ := pair(t)
	a.Do(func() {
		for range 2 {
			ok(t, a.tunnel.Remove(ctx))
			if left, err := link.List("gv"); err != nil || len(left) != 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		}
		_, err := a.tunnel.Ensure(ctx)
		ok(t, err)
		if got, err := a.tunnel.VTEPs(ctx); err != nil || len(got) != 0 {
			t.Errorf("after a removal it knows %v, %v", got, err)
		}
	})
}

// An agent that is told to wrap packets in another way takes the device of the way before, by which nothing is taken any more.
// What is on the wire is what it is called.
func TestAnotherWrapping(t *testing.T) {
	a, b := pair(t)
	header := map[string][]byte{encap.VXLAN.Name: {8, 0, 0, 0}, encap.Geneve.Name: {0, 0, 0x65, 0x58}} // RFC 7348, 5; RFC 8926, 3.4
	for _, k := range []encap.Kind{encap.VXLAN, wrapped(t), encap.VXLAN} {
		for _, h := range []*host{a, b} {
			ok(t, h.tunnel.Close())
			h.tunnel = New(Config{Kind: k, MTU: 1400})
			h.Do(func() {
				_, err := h.tunnel.Ensure(ctx)
				ok(t, err)
				for _, name := range wires {
					if _, err := link.Get(name); name == Wire(k) == (err != nil) {
						t.Errorf("%s, with %s: %v", name, k.Name, err)
					}
				}
			})
		}
		var wire *linktest.Socket
		b.Do(func() { wire = linktest.Open(t, "eth0") })
		a.port.Send(frame(0x01020304, 7, k.Name))
		b.expect(frame(9, 7, k.Name))
		want := slices.Concat(binary.BigEndian.AppendUint16(nil, k.Port), header[k.Name], []byte{0, 0, 7, 0})
		for {
			f := wire.Receive(2 * time.Second)
			if f == nil {
				t.Fatalf("no %s is on the wire", k.Title)
			}
			const udp = 14 + 20
			if len(f) < udp+16 || f[12] != 8 || f[13] != 0 || f[14+9] != 17 {
				continue
			}
			if got := slices.Concat(f[udp+2:udp+4], f[udp+8:udp+16]); !slices.Equal(got, want) {
				t.Errorf("on the wire is % x, want % x", got, want)
			}
			break
		}
		wire.Close()
	}
}

// others are devices that Docker Swarm, or another user of a wrapping, may have on the same UDP port.
var others = map[string]map[string]netlink.Link{
	encap.VXLAN.Name: {
		"device of one VNI":   &netlink.Vxlan{VxlanId: 5, Port: 4789},
		"device of all VNIs":  &netlink.Vxlan{FlowBased: true, Port: 4789, UDP6ZeroCSumRx: true},
		"device of other use": &netlink.Vxlan{FlowBased: true, Port: 4789},
	},
	encap.Geneve.Name: {
		"device of one VNI":  &netlink.Geneve{ID: 5, Remote: net.IPv4(10, 9, 0, 2), Dport: 6081},
		"device of all VNIs": &netlink.Geneve{FlowBased: true, Dport: 6081},
	},
}

func TestPortIsTaken(t *testing.T) {
	kind := wrapped(t)
	for name, other := range others[kind.Name] {
		t.Run(name, func(t *testing.T) {
			linktest.New(t).Do(func() {
				other.Attrs().Name = "theirs"
				ok(t, netlink.LinkAdd(other))
				linktest.Up(t, "theirs")
				tun := New(Config{Kind: kind})
				defer tun.Close()
				_, err := tun.Ensure(ctx)
				if err == nil || !strings.Contains(err.Error(), "set GRAPEVINE_VXLAN_PORT to another") {
					t.Errorf("on the same port: %v", err)
				}
				tun = New(Config{Kind: kind, UDPPort: kind.Port + 1})
				defer tun.Close()
				_, err = tun.Ensure(ctx)
				ok(t, err)
			})
		})
	}
}

func TestOtherDevicesAreLeftAlone(t *testing.T) {
	linktest.New(t).Do(func() {
		bridge := &netlink.Bridge{}
		kind := wrapped(t)
		bridge.Name = Wire(kind)
		ok(t, netlink.LinkAdd(bridge))
		tun := New(Config{Kind: kind})
		defer tun.Close()
		if _, err := tun.Ensure(ctx); err == nil || !strings.Contains(err.Error(), Wire(kind)+" is a bridge") {
			t.Errorf("ensure: %v", err)
		}
		if err := tun.Remove(ctx); err == nil || !strings.Contains(err.Error(), Wire(kind)+" is a bridge") {
			t.Errorf("remove: %v", err)
		}
		if _, err := link.Get(Wire(kind)); err != nil {
			t.Error("it is gone")
		}
	})
}
