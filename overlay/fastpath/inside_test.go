package fastpath

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// insideHost is a host with a device that stands for WireGuard's: what it sends comes out of the other's.
type insideHost struct {
	*host
	vtep   netip.Addr
	device *os.File
	ways   InsideWays
	plain  *atomic.Int64 // packets of containers that it has sent by the device as they are
}

// tunnelled makes the device, which ends with the file.
func tunnelled(t *testing.T, h *host, addr string) *os.File {
	var f *os.File
	h.Do(func() {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		must(t, err)
		request, err := unix.NewIfreq(link.WireGuard)
		must(t, err)
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		must(t, unix.IoctlIfreq(fd, unix.TUNSETIFF, request))
		must(t, link.SetMTU(link.WireGuard, 1500))
		must(t, link.NoIPv6Address(link.WireGuard))
		linktest.Up(t, link.WireGuard, addr+"/64")
		f = os.NewFile(uintptr(fd), "tun")
	})
	t.Cleanup(func() { f.Close() })
	return f
}

// insideHosts have a network that is encrypted, and all of it goes without VXLAN.
func insideHosts(t *testing.T) (a, b *insideHost) {
	ha, hb := twoHosts(t)
	begin := func(h *host, addr, other, own, theirs string) *insideHost {
		i := &insideHost{host: h, vtep: addrs(addr)[0], device: tunnelled(t, h, addr), plain: new(atomic.Int64)}
		there := addrs(other)[0]
		h.in.VTEPs[0].Addr = there
		h.in.Routes[0].VTEP, h.in.Routes[0].Secure = there, there
		h.in.Encrypted = []uint32{5}
		h.in.Subnets[0].Encrypted, h.in.Ports[0].Encrypted = true, true
		h.apply()
		i.ways = InsideWays{Device: link.WireGuard, VTEP: i.vtep, Port: vxlanPort, Hosts: []netip.Addr{there}, On: true, Ranges: []InsideRange{
			{Prefix: prefixes(own)[0], VTEP: i.vtep, VNID: 5, Own: true}, {Prefix: prefixes(theirs)[0], VTEP: there, VNID: 5},
		}}
		return i
	}
	a = begin(ha, "fd67:7261:7065:1::1", "fd67:7261:7065:1::2", "10.128.0.0/24", "10.128.1.0/24")
	b = begin(hb, "fd67:7261:7065:1::2", "fd67:7261:7065:1::1", "10.128.1.0/24", "10.128.0.0/24")
	carry := func(from, to *insideHost) {
		buf := make([]byte, 1<<16)
		for {
			n, err := from.device.Read(buf)
			if err != nil {
				return
			}
			if buf[0]>>4 == 4 {
				from.plain.Add(1)
			}
			if _, err := to.device.Write(buf[:n]); errors.Is(err, os.ErrClosed) {
				return
			}
		}
	}
	go carry(a, b)
	go carry(b, a)
	for _, h := range []*insideHost{a, b} {
		h.Do(func() { must(t, Inside{h.path}.Begin(link.WireGuard)) })
		h.set(h.ways)
	}
	return a, b
}

func (h *insideHost) set(w InsideWays) {
	h.t.Helper()
	h.Do(func() {
		must(h.t, Inside{h.path}.Narrow(w.Device, nil, w.Ranges))
		must(h.t, Inside{h.path}.Widen(w))
	})
}

func (h *insideHost) counts() InsideCounts {
	h.t.Helper()
	c, err := Inside{h.path}.Counts()
	must(h.t, err)
	return c
}

// Packets go by the device as they are, and are counted as ever; in VXLAN where one of the two does not know it so.
func TestInside(t *testing.T) {
	a, b := insideHosts(t)
	before, counted := a.byTunnel()+b.byTunnel(), tally(a.host)
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Fatalf("%d of 5 pings were answered; %+v, %+v", n, a.counts(), b.counts())
	}
	if n := a.ping("10.128.1.7", mtu-28); n != 5 {
		t.Errorf("%d of 5 pings that just fit were answered", n)
	}
	want := pipeline.Count{Packets: 10, Bytes: 5*(56+42) + 5*(mtu+14)}
	for what, n := range less(tally(a.host), counted) {
		w := want
		if what == "VNID 5" {
			w = pipeline.Count{Packets: 20, Bytes: 2 * want.Bytes}
		}
		if n != w {
			t.Errorf("%s: %+v, want %+v", what, n, w)
		}
	}
	a.transfer(b.host, "10.128.1.7:99", 1<<20)
	if n := a.byTunnel() + b.byTunnel() - before; n != 0 {
		t.Errorf("%d packets went by a VXLAN device", n)
	}
	if c := b.counts(); c.Delivered.Packets < 10 || c.Switched.Packets+c.Lost.Packets+c.Stray.Packets > 0 {
		t.Errorf("of what came: %+v", c)
	}
	for _, c := range []struct {
		what string
		do   func(*InsideWays)
	}{
		{"the other host does not take it", func(w *InsideWays) { w.Hosts = nil }},
		{"another host takes it", func(w *InsideWays) { w.Hosts = addrs("fd67:7261:7065:1::3") }},
		{"the source is no own range", func(w *InsideWays) { w.Ranges = w.Ranges[1:] }},
		{"the source is of another network", func(w *InsideWays) { w.Ranges[0].VNID = 6 }},
		{"the source is another host's", func(w *InsideWays) { w.Ranges[0].Own = false }},
		{"the destination is another host's", func(w *InsideWays) { w.Ranges[1].VTEP = addrs("fd67:7261:7065:1::3")[0] }},
		{"the destination is nobody's", func(w *InsideWays) { w.Ranges = w.Ranges[:1] }},
		{"it is off", func(w *InsideWays) { w.On = false }},
	} {
		w := a.ways
		w.Ranges = slices.Clone(w.Ranges)
		c.do(&w)
		// What comes is as ever.
		was := a.counts().Sent
		a.set(w)
		a.ping("10.128.1.7", 56)
		if n := a.counts().Sent.Packets - was.Packets; n != 0 {
			t.Errorf("%s: %d packets went without VXLAN", c.what, n)
		}
		a.set(a.ways)
	}
	// An agent that is gone does not say it again.
	must(t, a.path.objs.GvInHosts.Put(address(b.vtep.As16()), uint64(1)))
	was := a.counts().Sent
	if n := a.ping("10.128.1.7", 56); n != 5 || a.counts().Sent != was {
		t.Errorf("when the lease was over %d of 5 pings were answered, and %+v went without VXLAN", n, a.counts().Sent)
	}
}

// What the programs do not deliver comes to the switch in VXLAN, from the sender's address inside: whatever the fast path is.
func TestInsideSwitched(t *testing.T) {
	a, b := insideHosts(t)
	comes := func(what string, answered int, do func()) {
		t.Helper()
		b.Do(do)
		var was, sent uint64
		n := 0
		for tries := 0; tries < 5 && (tries == 0 || n != answered); tries++ { // on a busy machine the switch is late with what it gets now
			was, sent = b.byTunnel(), a.counts().Sent.Packets
			n = a.ping("10.128.1.7", 56)
		}
		if n != answered {
			t.Errorf("%s: %d of 5 pings were answered, want %d", what, n, answered)
		}
		if n := a.counts().Sent.Packets - sent; n != 5 {
			t.Errorf("%s: %d packets were sent without VXLAN", what, n)
		}
		if n := b.byTunnel() - was; n < 5 {
			t.Errorf("%s: %d packets came to the VXLAN device", what, n)
		}
	}
	comes("off there", 5, func() {
		w := b.ways
		w.On = false
		must(t, Inside{b.path}.Widen(w))
	})
	b.set(b.ways)
	comes("no fast path, nor a switch", 0, func() { must(t, b.path.Stop()) })
	comes("another agent without", 0, func() {
		must(t, b.path.Close())
		b.path = New(b.path.cfg)
		must(t, b.path.Stop())
		must(t, Inside{b.path}.Narrow(link.WireGuard, nil, b.ways.Ranges))
		w := b.ways
		w.On = false
		must(t, Inside{b.path}.Widen(w))
	})
	b.Do(func() { must(t, b.path.Start(false)) })
	b.apply()
	b.Do(func() { must(t, Inside{b.path}.Begin(link.WireGuard)) })
	b.set(b.ways)
	n := 0
	for tries := 0; tries < 5 && n != 5; tries++ { // on a busy machine the switch is late with what it gets now
		n = a.ping("10.128.1.7", 56)
	}
	if n != 5 || b.counts().Delivered.Packets == 0 {
		t.Errorf("on again %d of 5 pings were answered: %+v", n, b.counts())
	}
	// TCP, whole and in many pieces, by the VXLAN device.
	w := b.ways
	w.On = false
	b.set(w)
	a.transfer(b.host, "10.128.1.7:99", 1<<20)
}

// Of an address that is nobody's, for a moment or for good, nothing is taken, nor of this host's own; and what a host sends of another one's
// the switch judges, as if it had come in VXLAN.
func TestInsideStray(t *testing.T) {
	a, b := insideHosts(t)
	for _, c := range []struct {
		what     string
		do       func(*InsideWays)
		switched bool
	}{
		{"nobody's", func(w *InsideWays) { w.Ranges = w.Ranges[:1] }, false},
		{"for a moment", func(w *InsideWays) { w.Ranges[1].VTEP = netip.Addr{} }, false},
		{"its own", func(w *InsideWays) { w.Ranges[1].Own = true }, false},
		{"another host's", func(w *InsideWays) { w.Ranges[1].VTEP = addrs("fd67:7261:7065:1::3")[0] }, true},
		{"of another network", func(w *InsideWays) { w.Ranges[1].VNID = 6 }, true},
	} {
		w := b.ways
		w.Ranges = slices.Clone(w.Ranges)
		c.do(&w)
		b.set(w)
		was := b.counts()
		if n := a.ping("10.128.1.7", 56); n != 0 {
			t.Errorf("%s: %d pings were answered", c.what, n)
		}
		now := b.counts()
		stray, switched := now.Stray.Packets-was.Stray.Packets, now.Switched.Packets-was.Switched.Packets
		if c.switched && switched != 5 || !c.switched && stray != 5 || now.Delivered != was.Delivered {
			t.Errorf("%s: %+v, and before %+v", c.what, now, was)
		}
	}
	b.set(b.ways)
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Errorf("in the end %d of 5 pings were answered", n)
	}
	b.Do(func() { must(t, Inside{b.path}.End(link.WireGuard)) })
	was := b.byTunnel()
	if n := a.ping("10.128.1.7", 56); n != 0 || b.byTunnel() != was {
		t.Errorf("at its end %d pings were answered", n)
	}
}

// With the device gone nothing leaves by another one, not even by one that has its number.
func TestInsideGone(t *testing.T) {
	a, _ := insideHosts(t)
	var index int
	a.Do(func() {
		l, err := link.Get(link.WireGuard)
		must(t, err)
		index = l.Index
	})
	must(t, a.device.Close())
	a.Do(func() {
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if _, err := link.Get(link.WireGuard); errors.Is(err, link.ErrNotFound) {
				break
			} else if time.Now().After(end) {
				t.Fatal("the device stays")
			}
		}
		must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "ghost", Index: index}, PeerName: "ghosts"}))
		linktest.Up(t, "ghosts")
		linktest.Up(t, "ghost")
	})
	was := a.counts().Sent
	if n := a.ping("10.128.1.7", 56); n != 0 {
		t.Errorf("%d pings were answered", n)
	}
	a.Do(func() {
		l, err := netlink.LinkByIndex(index)
		must(t, err)
		text, err := os.ReadFile("/proc/net/dev")
		must(t, err)
		if s := l.Attrs().Statistics; l.Attrs().Name != "ghost" || s.TxPackets > 20 { // its own neighbours it asks for
			t.Errorf("%s with number %s has sent %d packets\n%s", l.Attrs().Name, strconv.Itoa(index), s.TxPackets, text)
		}
	})
	if a.counts().Sent != was {
		t.Error("packets count as sent")
	}
}

// inside says that what comes by WireGuard without VXLAN is delivered if it would be in VXLAN, to the same and counted alike; and comes to the
// switch in the VXLAN that its sender would have written if not.
func (w *judges) inside(t *rapid.T, p Packet, frame []byte, got Verdict, mtu int, out []byte, counted map[string]pipeline.Count) bool {
	if len(frame) < 14+40 || !p.From.IsValid() || p.VNID == 0 {
		return false
	}
	src, dst := addresses(frame)
	key := keyOf(netip.PrefixFrom(src, src.BitLen()))
	must(t, w.objs.GvInRanges.Put(key, insideValue{VTEP: addressOf(p.From), VNID: p.VNID}))
	must(t, w.objs.GvInSelf.Put(uint32(0), insideSelf{VTEP: addressOf(vtep), Port: w.config.Port, On: 1}))
	defer func() {
		must(t, errors.Join(w.objs.GvInRanges.Delete(key), w.objs.GvInSelf.Put(uint32(0), insideSelf{})))
	}()
	before, err := w.tables.tally()
	must(t, err)
	run := &ebpf.RunOptions{Data: slices.Concat(make([]byte, 12), frame[12:]), DataOut: make([]byte, len(frame)+256), Context: [48]uint32{}}
	ret, err := w.objs.GvInside.Run(run)
	must(t, err)
	const shot = 2
	if ret == shot { // it is none of a container's
		if mtu == 0 && got.Ifindex != 0 && got.Copies == "" {
			t.Fatalf("%v:\n%x\nis delivered as %+v, and without VXLAN it is dropped", p, frame, got)
		}
		return false
	}
	again, _, wire := w.verdict(t, p, ret, run.DataOut)
	after, err := w.tables.tally()
	must(t, err)
	if again == (Verdict{}) {
		if mtu == 0 && got.Ifindex != 0 && got.Copies == "" {
			t.Fatalf("%v:\n%x\nis delivered as %+v, and without VXLAN it goes on", p, frame, got)
		}
		if len(less(after, before)) != 0 {
			t.Fatalf("%v goes on without VXLAN, and is counted", p)
		}
		if len(wire) == len(frame) {
			return false // of a host inside, which sends VXLAN
		}
		inner := slices.Concat([]byte(pipeline.RouterMAC), pipeline.RouterMAC, frame[12:])
		if err := wrongInside(wire, inner, p, w.config.Port); err != nil {
			t.Fatalf("%v:\n%x\nfrom %s to %s goes on as\n%x\n%v", p, frame, src, dst, wire, err)
		}
		return false
	}
	if again != got || !slices.Equal(wire, out) {
		t.Fatalf("%v:\n%x\nis delivered as %+v\n%x\nand without VXLAN as %+v\n%x", p, frame, got, out, again, wire)
	}
	if again := less(after, before); !sameCounts(again, counted) {
		t.Fatalf("%v is counted as %+v, and without VXLAN as %+v", p, counted, again)
	}
	return true
}

// wrongInside says what is wrong with the headers that a packet has that came without.
func wrongInside(wire, inner []byte, p Packet, port [2]byte) error {
	const outer = 14 + 40 + 8 + 8
	if len(wire) != outer+len(inner) || !slices.Equal(wire[outer:], inner) {
		return errors.New("it is another packet")
	}
	ip, udp, vxlan := wire[14:54], wire[54:62], wire[62:70]
	length := len(inner) + 16
	self, from := addressOf(vtep), addressOf(p.From)
	switch {
	case wire[12] != 0x86 || wire[13] != 0xdd || ip[0] != 0x60 || ip[6] != unix.IPPROTO_UDP || int(ip[4])<<8|int(ip[5]) != length:
		return errors.New("it is no UDP of IPv6 of that length")
	case !slices.Equal(ip[8:24], from[:]) || !slices.Equal(ip[24:40], self[:]):
		return errors.New("it is between other hosts")
	case udp[2] != port[0] || udp[3] != port[1] || int(udp[4])<<8|int(udp[5]) != length || udp[6]|udp[7] != 0:
		return fmt.Errorf("UDP %x", udp)
	case vxlan[0] != 8 || uint32(vxlan[4])<<16|uint32(vxlan[5])<<8|uint32(vxlan[6]) != p.VNID:
		return fmt.Errorf("VXLAN %x", vxlan)
	}
	return nil
}

// insideOut says that what goes by WireGuard without VXLAN goes where it would in VXLAN, as of the same network, and is counted alike; where anything
// that is said of it differs it goes in VXLAN.
func (w *judges) insideOut(t *rapid.T, p Packet, frame []byte, got Verdict, mtu int, counted map[string]pipeline.Count) bool {
	if len(frame) < 14+40 || p.From.IsValid() || p.Gateway || mtu != 0 || !got.VTEP.Is6() || got.Copies != "" || got.VNID == 0 {
		return false
	}
	src, dst := addresses(frame)
	own, to := keyOf(netip.PrefixFrom(src, src.BitLen())), keyOf(netip.PrefixFrom(dst, dst.BitLen()))
	said := rapid.SampledFrom([]uint32{got.VNID, got.VNID, got.VNID, 6, 7}).Draw(t, "said VNID inside")
	whose := rapid.SampledFrom([]netip.Addr{got.VTEP, got.VTEP, got.VTEP, vtep}).Draw(t, "whose inside")
	must(t, w.objs.GvInRanges.Put(own, insideValue{VTEP: addressOf(vtep), VNID: said, Own: 1}))
	must(t, w.objs.GvInRanges.Put(to, insideValue{VTEP: addressOf(whose), VNID: 99}))
	must(t, w.objs.GvInHosts.Put(addressOf(got.VTEP), ^uint64(0)))
	must(t, w.objs.GvInSelf.Put(uint32(0), insideSelf{VTEP: addressOf(vtep), Port: w.config.Port, On: 1}))
	sent := w.insideSent(t)
	before, err := w.tables.tally()
	must(t, err)
	again, _, _ := w.program(t, p, frame)
	after, err := w.tables.tally()
	must(t, err)
	without := w.insideSent(t) != sent
	// Where nothing but what goes so is carried to other hosts, the rest goes on as it came, and is counted by nobody here.
	config := w.config
	config.On |= carriesSecure
	must(t, w.objs.GvConfig.Put(uint32(0), config))
	only, _, out := w.program(t, p, frame)
	must(t, w.objs.GvConfig.Put(uint32(0), w.config))
	last, err := w.tables.tally()
	must(t, err)
	if without && (only != got || !sameCounts(less(last, after), counted)) || !without && (only != (Verdict{}) || !bytes.Equal(out, frame) || !sameCounts(less(last, after), nil)) {
		t.Fatalf("%v:\n%x\ngoes as %+v, without VXLAN %v, and as %+v where only that goes", p, frame, again, without, only)
	}
	must(t, errors.Join(w.objs.GvInRanges.Delete(own), w.objs.GvInRanges.Delete(to), w.objs.GvInHosts.Delete(addressOf(got.VTEP)), w.objs.GvInSelf.Put(uint32(0), insideSelf{})))
	if again != got || !sameCounts(less(after, before), counted) {
		t.Fatalf("%v:\n%x\ngoes as %+v, and by WireGuard as %+v", p, frame, got, again)
	}
	if without && (said != got.VNID || whose != got.VTEP) {
		t.Fatalf("%v:\n%x\ngoes as %+v without VXLAN, and is said to be of VNID %d, for %v", p, frame, got, said, whose)
	}
	return without
}

func (w *judges) insideSent(t *rapid.T) (n uint64) {
	var cpus []bareCounter
	must(t, w.objs.GvInCounts.Lookup(uint32(0), &cpus))
	for _, one := range cpus {
		n += one.Packets
	}
	return n
}

// TestInsideForged: of what a host of the cluster may say in WireGuard, with its own keys and any packet, its containers' networks get what
// they would in VXLAN, and nobody else gets anything; what no host sends so is dropped.
func TestInsideForged(t *testing.T) {
	_, b := insideHosts(t)
	b.newContainer("b", "10.128.1.8")
	b.in.Subnets = append(b.in.Subnets, pipeline.Subnet{Prefix: prefixes("10.128.4.0/22")[0], VNID: 6, Encrypted: true})
	b.in.Ports = append(b.in.Ports, pipeline.Port{MAC: macs["b"], Addrs: addrs("10.128.4.8"), VNID: 6, Endpoint: "b", Plain: true, Encrypted: true})
	b.in.Encrypted = append(b.in.Encrypted, 6)
	b.apply()
	packet := func(src, dst string, edit func(ip []byte)) []byte {
		s, d := addrs(src)[0], addrs(dst)[0]
		var p []byte
		if s.Is4() {
			p = make([]byte, 28)
			p[0], p[3], p[8], p[9] = 0x45, 28, 64, unix.IPPROTO_UDP
			copy(p[12:], s.AsSlice())
			copy(p[16:], d.AsSlice())
			p[25] = 8
		} else {
			p = make([]byte, 48)
			p[0], p[5], p[6], p[7] = 0x60, 8, unix.IPPROTO_UDP, 64
			copy(p[8:], s.AsSlice())
			copy(p[24:], d.AsSlice())
			p[45] = 8
		}
		if edit != nil {
			edit(p)
		}
		return p
	}
	const in = "10.128.1.7"
	more, later := func(p []byte) { p[6] = 0x20 }, func(p []byte) { p[7] = 9 }
	for _, c := range []struct {
		what     string
		src, dst string
		edit     func([]byte)
		want     InsideCounts
	}{
		{"its network", "10.128.0.7", in, nil, delivered},
		{"a first fragment", "10.128.0.7", in, more, delivered},
		{"without a hop left", "10.128.0.7", in, func(p []byte) { p[8] = 0 }, delivered},
		{"another network", "10.128.0.7", "10.128.4.8", nil, switched},
		{"a first fragment to another network", "10.128.0.7", "10.128.4.8", more, switched},
		{"a later fragment to another network", "10.128.0.7", "10.128.4.8", later, switched},
		{"nobody", "10.128.0.7", "10.128.1.99", nil, switched},
		{"back", "10.128.0.7", "10.128.0.9", nil, switched},
		{"the outside", "10.128.0.7", "198.51.100.7", nil, switched},
		{"the host", "10.128.0.7", "10.9.0.2", nil, switched},
		{"this machine", "10.128.0.7", "127.0.0.1", nil, switched},
		{"a group", "10.128.0.7", "239.1.2.3", nil, switched},
		{"all", "10.128.0.7", "255.255.255.255", nil, switched},
		{"with an address of another network", "10.128.4.9", in, nil, stray},
		{"with this host's", "10.128.1.9", in, nil, stray},
		{"with a host's", "10.9.0.1", in, nil, stray},
		{"from this machine", "127.0.0.1", in, nil, stray},
		{"from nowhere", "0.0.0.0", in, nil, stray},
		{"longer than it is", "10.128.0.7", in, func(p []byte) { p[2] = 1 }, stray},
		{"with a header of 16 bytes", "10.128.0.7", in, func(p []byte) { p[0] = 0x44 }, stray},
		{"with options", "10.128.0.7", in, func(p []byte) { p[0] = 0x46 }, stray},
		{"of IPv6 from nobody", "fd00::7", "fd00::8", nil, stray},
		{"of IPv4 in IPv6", "::ffff:10.128.0.7", "::ffff:10.128.1.7", nil, stray},
		{"of IPv6 with what is between", "fd00::7", "fd00::8", func(p []byte) { p[6] = unix.IPPROTO_FRAGMENT }, stray},
		{"from a host inside", "fd67:7261:7065:1::1", "fd67:7261:7065:1::2", nil, InsideCounts{}},
	} {
		was := b.counts()
		_, err := b.device.Write(packet(c.src, c.dst, c.edit))
		must(t, err)
		var got InsideCounts
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			now := b.counts()
			for _, n := range [][3]*pipeline.Count{{&got.Delivered, &now.Delivered, &was.Delivered}, {&got.Switched, &now.Switched, &was.Switched}, {&got.Stray, &now.Stray, &was.Stray}, {&got.Lost, &now.Lost, &was.Lost}} {
				n[0].Packets = n[1].Packets - n[2].Packets
			}
			if got == c.want || time.Now().After(end) {
				break
			}
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

// What becomes of one packet.
var (
	delivered = InsideCounts{Delivered: pipeline.Count{Packets: 1}}
	switched  = InsideCounts{Switched: pipeline.Count{Packets: 1}}
	stray     = InsideCounts{Stray: pipeline.Count{Packets: 1}}
)
