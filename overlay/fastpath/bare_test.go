package fastpath

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/host/bypass"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// bareHosts are directHosts that have heard of each other that they take packets without headers.
func bareHosts(t *testing.T) (a, b *host) {
	a, b = directHosts(t)
	a.setBare(b)
	b.setBare(a)
	return a, b
}

// bare is what a host is told of itself and another one.
func (h *host) bareOf(other *host) (list Bare) {
	for _, one := range []*host{h, other} {
		mac, vtep := one.nicMAC(), one.path.cfg.Underlay.VTEP
		for _, s := range one.in.Subnets {
			list.Says = append(list.Says, BareSays{MAC: mac, Prefix: s.Prefix, VTEP: vtep, VNID: one.in.Ports[0].VNID})
		}
		if one != h {
			list.Hosts = append(list.Hosts, BareHost{MAC: mac, VTEP: vtep, Takes: true})
		}
	}
	return list
}

func (h *host) setBare(other *host) {
	h.t.Helper()
	b := h.bareOf(other)
	h.Do(func() { must(h.t, Headerless{h.path}.Set(b)) })
}

func (h *host) nicMAC() (mac bypass.MAC) {
	h.Do(func() {
		l, err := netlink.LinkByName("eth0")
		must(h.t, err)
		mac = bypass.MAC(l.Attrs().HardwareAddr)
	})
	return mac
}

func (h *host) bareCounts() BareCounts {
	h.t.Helper()
	c, err := Headerless{h.path}.Counts()
	must(h.t, err)
	return c
}

// Packets go to a neighbour as they are, whole, and are counted as ever; with headers where somebody does not take them so.
func TestBare(t *testing.T) {
	a, b := bareHosts(t)
	giveIPv6(t, a, b)
	a.setBare(b)
	b.setBare(a)
	before, counted, was, there := a.byTunnel()+b.byTunnel(), tally(a), a.bareCounts(), b.bareCounts()
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Errorf("%d of 5 pings were answered", n)
	}
	if n := a.ping("10.128.1.7", mtu-28); n != 5 {
		t.Errorf("%d of 5 pings that just fit were answered", n)
	}
	want := pipeline.Count{Packets: 10, Bytes: 5*(56+42) + 5*(mtu+14)}
	for what, n := range less(tally(a), counted) {
		w := want
		if what == "VNID 5" {
			w = pipeline.Count{Packets: 20, Bytes: 2 * want.Bytes}
		}
		if n != w {
			t.Errorf("%s: %+v, want %+v", what, n, w)
		}
	}
	if n := a.bareCounts().Sent.Packets - was.Sent.Packets; n != 10 {
		t.Errorf("%d packets went without headers, want 10", n)
	}
	if n := b.bareCounts().Delivered.Packets - there.Delivered.Packets; n != 10 {
		t.Errorf("%d packets that came without headers were delivered, want 10", n)
	}
	for _, h := range [][2]*host{{a, b}, {b, a}} {
		if sent, taken, known, err := (Headerless{h[0].path}).Between(h[1].nicMAC()); err != nil || !known || sent != 10 || taken != 10 {
			t.Errorf("to the neighbour %d packets went without headers, and %d came, want 10 and 10 (%v, %v)", sent, taken, known, err)
		}
	}
	for _, features := range []map[string]bool{nil, {"tx-tcp-segmentation": false, "tx-tcp6-segmentation": false}, {"tx-checksum-ip-generic": false}} {
		a.Do(func() { must(t, link.SetFeatures("eth0", features)) })
		b.Do(func() { must(t, link.SetFeatures("eth0", map[string]bool{"rx-gro": features != nil})) })
		for range 2 {
			a.transfer(b, "10.128.1.7:99", 8<<20)
			b.transfer(a, "10.128.0.7:99", 8<<20)
			a.transfer(b, "[fd00:1::2:7]:99", 8<<20)
		}
	}
	if n := a.byTunnel() + b.byTunnel() - before; n != 0 {
		t.Errorf("%d packets went by a VXLAN device", n)
	}
	if c := b.bareCounts(); c.Switched.Packets+c.Lost.Packets+c.Forged.Packets+c.Kept.Packets > 0 {
		t.Errorf("of what came without headers: %+v", c)
	}

	// Each of these alone keeps the headers.
	for _, c := range []struct {
		what string
		do   func(*Bare)
	}{
		{"it has not heard all", func(l *Bare) { l.Hosts[0].Takes = false }},
		{"it is another one's MAC address", func(l *Bare) { l.Hosts[0].MAC[5]++ }},
		{"it is another host", func(l *Bare) { l.Hosts[0].VTEP = addrs("10.9.0.3")[0] }},
		{"this host does not say it", func(l *Bare) { l.Says = l.Says[2:] }},
		{"this host says it of another network", func(l *Bare) { l.Says[0].VNID = 6 }},
		{"this host says it of another MAC address", func(l *Bare) { l.Says[0].MAC[5]++ }},
	} {
		l := a.bareOf(b)
		c.do(&l)
		a.Do(func() { must(t, Headerless{a.path}.Set(l)) })
		was := a.bareCounts()
		if n := a.ping("10.128.1.7", 56); n != 5 {
			t.Errorf("%s: %d of 5 pings were answered", c.what, n)
		}
		if n := a.bareCounts().Sent.Packets - was.Sent.Packets; n != 0 {
			t.Errorf("%s: %d packets went without headers", c.what, n)
		}
		a.setBare(b)
	}
	// An agent that is gone does not say it again.
	must(t, a.path.objs.GvBareHosts.Put(bareMAC{MAC: b.nicMAC()}, bareHostValue{VTEP: addrs("10.9.0.2")[0].As4(), Token: a.path.bare.token, Until: 1}))
	was = a.bareCounts()
	if n := a.ping("10.128.1.7", 56); n != 5 || a.bareCounts().Sent != was.Sent {
		t.Errorf("when the lease was over %d of 5 pings were answered, and %+v went without headers", n, a.bareCounts().Sent)
	}
}

// A router between the two is a neighbour, and the host behind it is none.
func TestBareRoute(t *testing.T) {
	a, b := bareHosts(t)
	a.Do(func() {
		ovstest.Run(t, "ip", "route", "add", "10.9.0.2/32", "via", "10.9.0.77", "dev", "eth0", "onlink")
		ovstest.Run(t, "ip", "neigh", "replace", "10.9.0.77", "lladdr", net.HardwareAddr(func() []byte { m := b.nicMAC(); return m[:] }()).String(), "dev", "eth0")
	})
	was := a.bareCounts()
	if n := a.ping("10.128.1.7", 56); n != 5 || a.bareCounts().Sent != was.Sent {
		t.Errorf("by a router %d of 5 pings were answered, and %+v went without headers", n, a.bareCounts().Sent)
	}
}

// What comes without headers is taken for as long as somebody may send it, whatever the fast path is.
func TestBareEnds(t *testing.T) {
	a, b := bareHosts(t)
	lingers := func(what string, do func()) {
		b.Do(do)
		was, here := b.byTunnel(), a.bareCounts()
		if n := a.ping("10.128.1.7", 56); n != 5 {
			t.Errorf("%s: %d of 5 pings were answered", what, n)
		}
		if n := a.bareCounts().Sent.Packets - here.Sent.Packets; n != 5 {
			t.Errorf("%s: %d packets were sent without headers", what, n)
		}
		if n := b.byTunnel() - was; n < 5 {
			t.Errorf("%s: %d packets went by the VXLAN device", what, n)
		}
	}
	lingers("on", func() {
		must(t, b.path.Start(false))
		must(t, b.path.Narrow(t.Context(), b.in))
		must(t, b.path.Widen(t.Context(), b.in))
		must(t, Headerless{b.path}.Unset())
	})
	lingers("a new agent", func() {
		must(t, b.path.Close())
		cfg := b.path.cfg
		b.path = New(cfg)
		must(t, b.path.Start(false))
		must(t, b.path.Narrow(t.Context(), b.in))
		must(t, b.path.Widen(t.Context(), b.in))
	})
	// Off: all of it is the switch's, which is not there.
	b.Do(func() { must(t, b.path.Stop()) })
	was := b.byTunnel()
	if n := a.ping("10.128.1.7", 56); n != 0 {
		t.Errorf("off: %d pings were answered without a switch", n)
	}
	if n := b.byTunnel() - was; n != 5 {
		t.Errorf("off: %d packets came to the VXLAN device", n)
	}
	// And direct again, with the maps of before.
	b.Do(func() { must(t, b.path.Start(true)) })
	b.apply()
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Errorf("direct again: %d of 5 pings were answered", n)
	}
	b.setBare(a)
	here := b.bareCounts()
	if n := a.ping("10.128.1.7", 56); n != 5 || b.bareCounts().Delivered.Packets-here.Delivered.Packets != 5 {
		t.Errorf("%d of 5 pings were answered in the end, %+v", n, b.bareCounts())
	}
	attached := func() (is bool) {
		b.Do(func() {
			var err error
			is, err = Headerless{b.path}.atNIC()
			must(t, err)
		})
		return is
	}
	b.Do(func() { must(t, Headerless{b.path}.Unset()); must(t, Headerless{b.path}.End()) })
	if attached() {
		t.Error("the program is there when it is over")
	}
	b.setBare(a)
	b.Do(func() { must(t, (Headerless{b.path}).Remove()) })
	if attached() {
		t.Error("the program is there when all is removed")
	}
}

// Agents end and start under traffic, with the mode on and off: nothing is lost.
func TestBareSwitched(t *testing.T) {
	a, b := bareHosts(t)
	in := b.listenUDP(96)
	defer in.Close()
	must(t, in.SetReadBuffer(1<<20))
	var out net.Conn
	a.container.Do(func() {
		var err error
		out, err = net.Dial("udp", "10.128.1.7:96")
		must(t, err)
	})
	defer out.Close()
	stop, sent := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for tick := time.NewTicker(200 * time.Microsecond); ; {
			select {
			case <-stop:
				tick.Stop()
				sent <- n
				return
			case <-tick.C:
				if _, err := out.Write(mark); err == nil {
					n++
				}
			}
		}
	}()
	got := make(chan int, 1)
	go func() {
		n := 0
		for buf := make([]byte, 100); ; n++ {
			if _, err := in.Read(buf); err != nil {
				got <- n
				return
			}
		}
	}()
	for range 3 {
		for _, h := range []*host{a, b} {
			other := map[*host]*host{a: b, b: a}[h]
			// The others hear of it only then.
			h.Do(func() { must(t, Headerless{h.path}.Unset()) })
			h.direct(false)
			h.direct(true)
			h.setBare(other)
			must(t, h.path.Close()) // killed
			cfg := h.path.cfg
			h.path = New(cfg)
			h.direct(true)
			h.setBare(other)
		}
	}
	close(stop)
	n := <-sent
	time.Sleep(100 * time.Millisecond)
	must(t, in.SetReadDeadline(time.Now().Add(time.Second)))
	if g := <-got; g != n {
		t.Errorf("%d of %d datagrams arrived", g, n)
	}
}

// What somebody else sends in a neighbour's name is not delivered, and counted.
func TestBareForged(t *testing.T) {
	a, b := bareHosts(t)
	in := b.listenUDP(95)
	defer in.Close()
	var wire *linktest.Socket
	a.Do(func() { wire = linktest.Open(t, "eth0") })
	here, there := a.nicMAC(), b.nicMAC()
	frame := func(from bypass.MAC, src, text string) []byte {
		f := slices.Concat(there[:], from[:], []byte{8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0}, addrs(src)[0].AsSlice(), addrs("10.128.1.7")[0].AsSlice(), []byte{0x9c, 0x40, 0, 95, 0, 0, 0, 0}, []byte(text))
		binary.BigEndian.PutUint16(f[16:], uint16(len(f)-14))
		binary.BigEndian.PutUint16(f[38:], uint16(len(f)-34))
		sumOuter(f)
		return f
	}
	other := here
	other[5]++
	for _, c := range []struct {
		what, src string
		mac       bypass.MAC
		counted   func(BareCounts) pipeline.Count
		change    func(*Bare)
	}{
		{"another MAC address", "10.128.0.7", other, func(c BareCounts) pipeline.Count { return c.Forged }, nil},
		{"the receiver's own", "10.128.0.7", there, func(c BareCounts) pipeline.Count { return c.Forged }, nil},
		// These are the switch's, as with headers.
		{"another host's range", "10.128.1.99", here, func(c BareCounts) pipeline.Count { return c.Switched }, nil},
		{"of another network", "10.128.0.7", here, func(c BareCounts) pipeline.Count { return c.Switched }, func(l *Bare) { l.Says[1].VNID = 6 }},
		{"of another VTEP", "10.128.0.7", here, func(c BareCounts) pipeline.Count { return c.Switched }, func(l *Bare) { l.Says[1].VTEP = addrs("10.9.0.3")[0] }},
	} {
		l := b.bareOf(a)
		if c.change != nil {
			c.change(&l)
		}
		b.Do(func() { must(t, Headerless{b.path}.Set(l)) })
		was := c.counted(b.bareCounts()).Packets
		wire.Send(frame(c.mac, c.src, "forged"))
		for end := time.Now().Add(10 * time.Second); c.counted(b.bareCounts()).Packets != was+1; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("%s: it is not counted: %+v", c.what, b.bareCounts())
				break
			}
		}
		b.setBare(a)
	}
	// To an encrypted network, of which the ranges are inside what encrypts.
	b.in.VTEPs = append(b.in.VTEPs, pipeline.VTEP{Addr: inside, Index: 9, Secure: true, Beside: true})
	b.in.Routes[0].VTEP, b.in.Routes[0].Secure = inside, inside
	b.in.Encrypted = []uint32{5}
	b.in.Ports[0].Encrypted = true
	b.apply()
	was := b.bareCounts().Switched.Packets
	wire.Send(frame(here, "10.128.0.7", "forged"))
	for end := time.Now().Add(10 * time.Second); b.bareCounts().Switched.Packets != was+1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("to an encrypted network: it is not counted: %+v", b.bareCounts())
		}
	}
	b.in.VTEPs, b.in.Encrypted, b.in.Ports[0].Encrypted = b.in.VTEPs[:1], nil, false
	b.in.Routes[0].VTEP, b.in.Routes[0].Secure = addrs("10.9.0.1")[0], netip.Addr{}
	b.apply()
	// A host that says nothing any more may not have heard yet that it is taken no more.
	l := b.bareOf(a)
	l.Says, l.Hosts = l.Says[:1], nil
	b.Do(func() { must(t, Headerless{b.path}.Set(l)) })
	wire.Send(frame(here, "10.128.0.7", "true"))
	must(t, in.SetReadDeadline(time.Now().Add(10*time.Second)))
	buf := make([]byte, 100)
	n, err := in.Read(buf)
	must(t, err)
	if string(buf[:n]) != "true" {
		t.Errorf("%q was delivered", buf[:n])
	}
}

// What a host routes for others has its MAC address, and leaves it by the NIC only if it is in no container's name.
func TestBareRouted(t *testing.T) {
	a, b := bareHosts(t)
	guest := linktest.New(t)
	linktest.Wire(t, "eth1", a.NS, guest, []string{"172.30.0.1/24"}, []string{"172.30.0.2/24"})
	a.Do(func() {
		ovstest.Run(t, "ip", "route", "add", "10.128.1.0/24", "via", "10.9.0.2") // as a host that does not know the network yet
		for _, dev := range []string{"all", "eth1"} {
			must(t, os.WriteFile("/proc/sys/net/ipv4/conf/"+dev+"/rp_filter", []byte("0"), 0))
		}
	})
	in := b.listenUDP(95)
	defer in.Close()
	var out net.Conn
	guest.Do(func() {
		linktest.Up(t, "eth1", "10.128.0.9/32")
		ovstest.Run(t, "ip", "route", "add", "10.128.1.0/24", "via", "172.30.0.1", "src", "10.128.0.9")
		var err error
		out, err = net.Dial("udp", "10.128.1.7:95")
		must(t, err)
	})
	defer out.Close()
	_, err := out.Write([]byte("forged"))
	must(t, err)
	for end := time.Now().Add(10 * time.Second); a.bareCounts().Kept.Packets != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is not kept: %+v here, %+v there", a.bareCounts(), b.bareCounts())
		}
	}
	if c := b.bareCounts(); c.Forged.Packets+c.Switched.Packets > 0 {
		t.Errorf("it came: %+v", c)
	}
	// Nothing else kept it.
	a.Do(func() { must(t, link.DetachTCX("eth0", link.Egress, bareOutProgram)) })
	_, err = out.Write([]byte("forged"))
	must(t, err)
	must(t, in.SetReadDeadline(time.Now().Add(10*time.Second)))
	if _, err := in.Read(make([]byte, 100)); err != nil {
		t.Errorf("the test shows nothing: %v", err)
	}
}

// bare says that what the programs make of a packet without headers they make of the same one with them, and that what they do not
// deliver goes on with those that its sender would have written.
func (w *judges) bare(t *rapid.T, p Packet, frame []byte, got Verdict, mtu int, out []byte, counted map[string]pipeline.Count) bool {
	if len(frame) < 14+40 || !p.From.Is4() || p.VNID == 0 { // of which nobody says anything
		return false
	}
	mac := [6]byte{2, 9}
	copy(mac[2:], p.From.AsSlice())
	src, dst := addresses(frame)
	key := keyOf(netip.PrefixFrom(src, src.BitLen()))
	says := bareKey{Bits: bareBits + key.Bits, MAC: mac, Addr: key.Addr}
	must(t, w.objs.GvBareFrom.Put(says, bareValue{p.From.As4(), p.VNID}))
	defer func() { must(t, w.objs.GvBareFrom.Delete(says)) }()
	sent := slices.Concat([]byte{0, 0, 0, 0, 0, 0}, mac[:], frame[12:])
	before, err := w.tables.tally()
	must(t, err)
	run := &ebpf.RunOptions{Data: sent, DataOut: make([]byte, len(sent)+256), Context: [48]uint32{}}
	must(t, w.objs.GvConfig.Put(uint32(0), w.directConfig))
	ret, err := w.objs.GvBare.Run(run)
	must(t, w.objs.GvConfig.Put(uint32(0), w.config))
	must(t, err)
	again, _, wire := w.verdict(t, p, ret, run.DataOut)
	after, err := w.tables.tally()
	must(t, err)
	inside := slices.Concat([]byte(pipeline.RouterMAC), pipeline.RouterMAC, frame[12:])
	if again == (Verdict{}) {
		if mtu == 0 && got.Ifindex != 0 && got.Copies == "" {
			t.Fatalf("%v:\n%x\nis delivered as %+v, and without headers it goes on", p, frame, got)
		}
		if len(less(after, before)) != 0 {
			t.Fatalf("%v goes on without headers, and is counted", p)
		}
		if len(wire) == len(sent) { // as it came: it is none of the cluster's
			return false
		}
		if err := wrongOuterFrom(wire, inside, p.From, Verdict{VTEP: vtep, VNID: p.VNID}); err != nil {
			t.Fatalf("%v:\n%x\nfrom %s to %s goes on as\n%x\n%v", p, frame, src, dst, wire, err)
		}
		return false
	}
	if again != got || !slices.Equal(wire, out) {
		t.Fatalf("%v:\n%x\nis delivered as %+v\n%x\nand without headers as %+v\n%x", p, frame, got, out, again, wire)
	}
	if again := less(after, before); !sameCounts(again, counted) {
		t.Fatalf("%v is counted as %+v, and without headers as %+v", p, counted, again)
	}
	return true
}

// bareOut says that what is sent without headers would have been sent with those that this host has said, to the same one, and is counted alike.
func (w *judges) bareOut(t *rapid.T, p Packet, frame []byte, got Verdict, mtu int, counted map[string]pipeline.Count) bool {
	if len(frame) < 14+40 || p.From.IsValid() || p.Gateway || mtu != 0 || !got.VTEP.Is4() || got.Copies != "" {
		return false
	}
	mac := func(a netip.Addr) (m bypass.MAC) {
		m = bypass.MAC{2, 9}
		copy(m[2:], a.AsSlice())
		return m
	}
	src, _ := addresses(frame)
	key := keyOf(netip.PrefixFrom(src, src.BitLen()))
	said := rapid.SampledFrom([]uint32{got.VNID, got.VNID, got.VNID, 6, 7}).Draw(t, "said VNID")
	heard := rapid.IntRange(0, 4).Draw(t, "heard") > 0
	says, host := bareKey{Bits: bareBits + key.Bits, MAC: mac(vtep), Addr: key.Addr}, bareMAC{MAC: mac(got.VTEP)}
	to := bareHostValue{VTEP: got.VTEP.As4(), Token: 99}
	if heard {
		to.Until = ^uint64(0)
	}
	must(t, w.objs.GvBareFrom.Put(says, bareValue{vtep.As4(), said}))
	must(t, w.objs.GvBareHosts.Put(host, to))
	before, err := w.tables.tally()
	must(t, err)
	config := w.directConfig
	config.Bare = 1
	must(t, w.objs.GvConfig.Put(uint32(0), config))
	var skb [48]uint32
	const ifindex = 10
	skb[ifindex] = p.Ifindex
	run := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: skb}
	ret, err := w.objs.GvEndpoint.Run(run)
	must(t, w.objs.GvConfig.Put(uint32(0), w.config))
	must(t, w.objs.GvBareFrom.Delete(says))
	must(t, w.objs.GvBareHosts.Delete(host))
	must(t, err)
	after, err := w.tables.tally()
	must(t, err)
	if again := less(after, before); !sameCounts(again, counted) {
		t.Fatalf("%v is counted as %+v, and without headers as %+v", p, counted, again)
	}
	wire, there, here := run.DataOut, mac(got.VTEP), mac(vtep)
	if ret != 7 || len(wire) != len(frame) { // with headers: TestAgree has seen these
		plain := heard && said == got.VNID && said != 0 && frame[12] == 8 && frame[20]&0x3f == 0 && frame[21] == 0 && frame[23] == 6
		if plain || len(wire) != len(frame)+50 {
			t.Fatalf("%v:\n%x\nis to go without headers to %s, and goes as\n%x", p, frame, got.VTEP, wire)
		}
		return false
	}
	if !heard || said != got.VNID || said == 0 || frame[12] == 8 && (frame[20]&0x3f != 0 || frame[21] != 0) {
		t.Fatalf("%v:\n%x\ngoes without headers to %s, which has heard: %v, of VNID %d and not %d", p, frame, got.VTEP, heard, said, got.VNID)
	}
	if !slices.Equal(wire, slices.Concat(there[:], here[:], frame[12:])) {
		t.Fatalf("%v:\n%x\ngoes without headers as\n%x", p, frame, wire)
	}
	return true
}

func sameCounts(a, b map[string]pipeline.Count) bool {
	if len(a) != len(b) {
		return false
	}
	for k, n := range a {
		if b[k] != n {
			return false
		}
	}
	return true
}
