package fastpath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// directHosts are twoHosts in mode direct.
func directHosts(t *testing.T) (a, b *host) {
	a, b = twoHosts(t)
	for h, vtep := range map[*host]string{a: "10.9.0.1", b: "10.9.0.2"} {
		h.path.cfg.Underlay = Underlay{Device: "eth0", VTEP: addrs(vtep)[0], Port: vxlanPort}
		h.Do(func() { must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)) })
		h.direct(true)
	}
	if n := a.ping("10.128.1.7", 56); n != 5 { // the hosts know each other's MAC addresses now
		t.Fatalf("%d of 5 pings were answered", n)
	}
	return a, b
}

// direct switches the mode.
func (h *host) direct(yes bool) {
	h.t.Helper()
	h.Do(func() { must(h.t, h.path.Start(yes)) })
	h.apply()
	if err := h.path.Direct(); err != nil {
		h.t.Fatal(err)
	}
}

// byTunnel is how many packets the VXLAN device has sent and received.
func (h *host) byTunnel() (n uint64) {
	h.Do(func() {
		l, err := netlink.LinkByName("gvvxlan")
		must(h.t, err)
		n = l.Attrs().Statistics.TxPackets + l.Attrs().Statistics.RxPackets
	})
	return n
}

func (h *host) atNIC() bool {
	var id ebpf.ProgramID
	h.Do(func() {
		var err error
		id, err = link.AttachedTCX("eth0", link.Ingress, underlayProgram)
		must(h.t, err)
	})
	return id != 0
}

// Packets of all kinds go past the VXLAN device, whole, and are counted as ever.
func TestDirect(t *testing.T) {
	a, b := directHosts(t)
	before, counted := a.byTunnel(), tally(a)
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Errorf("%d of 5 pings were answered", n)
	}
	if n := a.ping("10.128.1.7", mtu-28); n != 5 {
		t.Errorf("%d of 5 pings that just fit were answered", n)
	}
	want := pipeline.Count{Packets: 10, Bytes: 5*(56+42) + 5*(mtu+14)}
	for what, n := range less(tally(a), counted) {
		w := want
		if strings.HasPrefix(what, "VNID") {
			w = pipeline.Count{Packets: 20, Bytes: 2 * want.Bytes}
		}
		if n != w {
			t.Errorf("%s: %+v, want %+v", what, n, w)
		}
	}
	for _, features := range []map[string]bool{
		nil,
		{"tx-udp_tnl-segmentation": false, "tx-udp_tnl-csum-segmentation": false}, // segmented by the kernel
		{"tx-checksum-ip-generic": false},
	} {
		a.Do(func() { must(t, link.SetFeatures("eth0", features)) })
		b.Do(func() { must(t, link.SetFeatures("eth0", map[string]bool{"rx-gro": features != nil})) })
		for range 3 {
			a.transfer(b, "10.128.1.7:99", 8<<20)
			b.transfer(a, "10.128.0.7:99", 8<<20)
		}
	}
	if n := a.byTunnel() - before; n != 0 {
		t.Errorf("%d packets went by the VXLAN device", n)
	}
}

// giveIPv6 gives the containers of two hosts addresses of IPv6, which it returns.
func giveIPv6(t *testing.T, a, b *host) map[*host]string {
	t.Helper()
	own := map[*host]string{a: "fd00:1::1:7", b: "fd00:1::2:7"}
	for h, other := range map[*host]*host{a: b, b: a} {
		h.in.Ports[0].Addrs = append(h.in.Ports[0].Addrs, addrs(own[h])...)
		h.in.Subnets = append(h.in.Subnets, pipeline.Subnet{Prefix: prefixes("fd00:1::/64")[0], VNID: 5})
		there := netip.PrefixFrom(addrs(own[other])[0], 112).Masked()
		h.in.Routes = append(h.in.Routes, pipeline.Route{Prefix: there, VNID: 5, VTEP: h.in.VTEPs[0].Addr})
		h.apply()
		h.container.Do(func() {
			for _, args := range []string{
				"-6 addr add " + own[h] + "/64 dev gca nodad",
				"-6 neigh add " + own[other] + " lladdr " + pipeline.RouterMAC.String() + " dev gca nud permanent", // nobody answers here
			} {
				must(t, exec.Command("ip", strings.Fields(args)...).Run())
			}
			// The kernel makes an address one of its own a moment after that, on a busy machine.
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				out, err := exec.Command("ip", "-6", "route", "show", "table", "local", own[h]).Output()
				if must(t, err); len(out) > 0 {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%s is not there", own[h])
				}
			}
		})
	}
	return own
}

// Packets in IPv6 go so as well.
func TestDirectIPv6(t *testing.T) {
	a, b := directHosts(t)
	own := giveIPv6(t, a, b)
	before := a.byTunnel()
	for _, size := range []int{56, mtu - 48} {
		if n := a.ping(own[b], size); n != 5 {
			t.Errorf("%d of 5 pings with %d bytes were answered", n, size)
		}
	}
	a.transfer(b, net.JoinHostPort(own[b], "99"), 1<<20)
	b.transfer(a, net.JoinHostPort(own[a], "99"), 1<<20)
	if n := a.byTunnel() - before; n != 0 {
		t.Errorf("%d packets went by the VXLAN device", n)
	}
}

func tally(h *host) pipeline.Tally {
	c, err := h.path.Tally()
	must(h.t, err)
	return c
}

// listenUDP opens a UDP port of the container at 10.128.1.7, with room for what comes at once.
func (h *host) listenUDP(port int) (in *net.UDPConn) {
	h.container.Do(func() {
		var err error
		in, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(10, 128, 1, 7), Port: port})
		must(h.t, err)
		must(h.t, in.SetReadBuffer(8<<20))
	})
	return in
}

// UDP that the kernel segments arrives, and nothing of its flow is overtaken.
func TestDirectSegmentedUDP(t *testing.T) {
	a, b := directHosts(t)
	const rounds, each = 60, 16
	before := b.byTunnel()
	in := b.listenUDP(98)
	defer in.Close()
	a.container.Do(func() {
		c, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(10, 128, 1, 7), Port: 98})
		must(t, err)
		defer c.Close()
		raw, err := c.SyscallConn()
		must(t, err)
		number := uint32(0)
		for range rounds {
			for _, n := range []int{each, 1} { // segmented, and plain
				var all []byte
				for range n {
					all = append(binary.BigEndian.AppendUint32(all, number), make([]byte, 996)...)
					number++
				}
				size := map[bool]int{true: 1000}[n > 1]
				must(t, raw.Control(func(fd uintptr) { must(t, unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size)) }))
				_, err := c.Write(all)
				must(t, err)
			}
			time.Sleep(100 * time.Microsecond)
		}
	})
	buf, last := make([]byte, 2000), -1
	for i := range rounds * (each + 1) {
		must(t, in.SetReadDeadline(time.Now().Add(2*time.Second)))
		n, err := in.Read(buf)
		if err != nil {
			t.Fatalf("%d of %d datagrams arrived: %v", i, rounds*(each+1), err)
		}
		now := int(binary.BigEndian.Uint32(buf))
		if n != 1000 || now != last+1 {
			t.Fatalf("datagram %d, of %d bytes, comes after %d", now, n, last)
		}
		last = now
	}
	if n := b.byTunnel() - before; n < 2*rounds { // one device has both kinds: so their order stays
		t.Errorf("%d packets came by the VXLAN device, want %d", n, 2*rounds)
	}
	before = b.byTunnel()
	a.datagram("10.128.1.7:97")
	if n := b.byTunnel() - before; n != 0 {
		t.Errorf("%d packets of another flow came by the VXLAN device", n)
	}
}

// What TCP leaves to the kernel to segment has the same segments on the wire and at the container.
func TestDirectSegments(t *testing.T) {
	const segment = mtu - 20 - 20 - 12 // of IP and TCP with timestamps
	a, b := directHosts(t)
	sockets := map[string]*linktest.Socket{}
	b.Do(func() { sockets["eth0"] = linktest.OpenVNet(t, "eth0") })
	b.container.Do(func() { sockets["gca"] = linktest.OpenVNet(t, "gca") })
	before := b.byTunnel()
	a.transfer(b, "10.128.1.7:99", 8<<20)
	if n := b.byTunnel() - before; n != 0 {
		t.Errorf("%d packets came by the VXLAN device", n)
	}
	for where, s := range sockets {
		n := 0
		for frame := s.Receive(time.Second); frame != nil; frame = s.Receive(time.Millisecond) {
			if frame[1] == 0 { // virtio_net_hdr.gso_type
				continue
			}
			n++
			if size := binary.NativeEndian.Uint16(frame[4:]); size != segment {
				t.Fatalf("at %s a packet is to become segments of %d bytes, want %d", where, size, segment)
			}
		}
		if n == 0 {
			t.Errorf("at %s no packet was to be segmented: the test shows nothing", where)
		}
	}
}

// What the NIC has found of checksums is of the outer packet: a wrong inner one is found out.
func TestDirectChecksum(t *testing.T) {
	a, b := directHosts(t)
	const increment = 1 // BPF_CSUM_LEVEL_INC
	nic, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "nic", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R2, increment), asm.FnCsumLevel.Call(), asm.Mov.Imm(asm.R0, -1), asm.Return(),
	}})
	must(t, err)
	defer nic.Close()
	b.Do(func() { must(t, link.AttachTCX("eth0", link.Ingress, nic, "nic")) }) // before ours
	in := b.listenUDP(95)
	defer in.Close()
	var out *linktest.Socket
	a.container.Do(func() { out = linktest.Open(t, "gca") })
	before := b.byTunnel()
	for _, text := range []string{"wrong", "none"} {
		frame := datagram(0, 95, []byte(text))
		if text == "wrong" {
			copy(frame[40:], []byte{0xba, 0xd0})
		}
		out.Send(frame)
	}
	must(t, in.SetReadDeadline(time.Now().Add(5*time.Second)))
	buf := make([]byte, 100)
	n, err := in.Read(buf)
	must(t, err)
	if string(buf[:n]) != "none" {
		t.Errorf("a datagram with a wrong checksum arrives: %q", buf[:n])
	}
	if n := b.byTunnel() - before; n != 0 {
		t.Errorf("%d packets came by the VXLAN device", n)
	}
}

// segments is a frame of TCP from 10.128.0.7 to 10.128.1.7 of which the kernel is to make segments of a
// size (bytes), with the struct virtio_net_hdr that says so.
func segments(size, bytes int) []byte {
	f := slices.Concat(pipeline.RouterMAC, macs["a"], []byte{8, 0, 0x45, 0, 0, 0, 0x12, 0x34, 0, 0, 64, 6, 0, 0},
		addrs("10.128.0.7")[0].AsSlice(), addrs("10.128.1.7")[0].AsSlice(),
		[]byte{0, 7, 0, 7, 0, 0, 0, 1, 0, 0, 0, 1, 5 << 4, 0x10, 1, 0, 0, 0, 0, 0}, mark, make([]byte, bytes-len(mark)))
	binary.BigEndian.PutUint16(f[16:], uint16(len(f)-14))
	binary.BigEndian.PutUint16(f[24:], uint16(sum(f[14:34])))
	pseudo := binary.BigEndian.AppendUint16([]byte{0, 6}, uint16(len(f)-34))
	binary.BigEndian.PutUint16(f[50:], ^uint16(sum(f[26:34], pseudo)))
	h := []byte{unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, unix.VIRTIO_NET_HDR_GSO_TCPV4}
	for _, field := range []int{54, size, 34, 16} { // header, segment, checksum from, at
		h = binary.NativeEndian.AppendUint16(h, uint16(field))
	}
	return append(h, f...)
}

// datagram is a frame from 10.128.0.7 to a UDP port of 10.128.1.7, without a checksum of UDP.
func datagram(tos byte, port uint16, payload []byte) []byte {
	f := slices.Concat(pipeline.RouterMAC, macs["a"], []byte{8, 0, 0x45, tos, 0, 0, 0x12, 0x34, 0, 0, 64, 17, 0, 0},
		addrs("10.128.0.7")[0].AsSlice(), addrs("10.128.1.7")[0].AsSlice(), []byte{0, 7, 0, 0, 0, 0, 0, 0}, payload)
	binary.BigEndian.PutUint16(f[16:], uint16(len(f)-14))
	binary.BigEndian.PutUint16(f[24:], uint16(sum(f[14:34])))
	binary.BigEndian.PutUint16(f[36:], port)
	binary.BigEndian.PutUint16(f[38:], uint16(len(f)-34))
	return f
}

// datagram sends one, and waits for the answer that nobody is there.
func (h *host) datagram(to string) {
	h.t.Helper()
	h.container.Do(func() {
		c, err := net.Dial("udp", to)
		must(h.t, err)
		defer c.Close()
		_, err = c.Write(mark)
		must(h.t, err)
		must(h.t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNREFUSED) {
			h.t.Errorf("a datagram to %s: %v", to, err)
		}
	})
}

// What is too big for the container at the end is answered, by the tunnel's program, and
// what is too big for the way is not direct.
func TestDirectTooBig(t *testing.T) {
	const smaller = mtu - 100
	a, b := directHosts(t)
	b.Do(func() { must(t, link.SetMTU("gha", smaller)) })
	a.transfer(b, "10.128.1.7:99", 1<<20) // in pieces that the kernel is to segment
	a.container.Do(func() {
		out, _ := exec.Command("ip", "route", "get", "10.128.1.7").CombinedOutput()
		if want := fmt.Sprintf("mtu %d", smaller); !strings.Contains(string(out), want) {
			t.Errorf("TCP was not told %q: %s", want, out)
		}
		must(t, exec.Command("ip", "route", "flush", "cache").Run())
		out, _ = exec.Command("ping", "-M", "do", "-c", "1", "-W", "1", "-s", strconv.Itoa(smaller-27), "10.128.1.7").CombinedOutput()
		if want := fmt.Sprintf("From 10.128.1.7 icmp_seq=1 Frag needed and DF set (mtu = %d)", smaller); !strings.Contains(string(out), want) {
			t.Errorf("no %q in %s", want, out)
		}
		must(t, exec.Command("ip", "route", "flush", "cache").Run())
	})
	if n := a.ping("10.128.1.7", smaller-28); n != 5 {
		t.Errorf("%d of 5 pings that just fit were answered", n)
	}
	var out, in *linktest.Socket
	a.container.Do(func() { out = linktest.OpenVNet(t, "gca") })
	b.container.Do(func() { in = linktest.OpenVNet(t, "gca") })
	for _, size := range []int{smaller - 40 + 1, smaller - 40} { // of the segments to be
		out.Send(segments(size, 3*size))
	}
	for frame := in.Receive(5 * time.Second); ; frame = in.Receive(5 * time.Second) {
		if frame == nil {
			t.Fatal("segments that just fit do not arrive")
		}
		if !bytes.Contains(frame, mark) {
			continue
		}
		if size := int(binary.NativeEndian.Uint16(frame[4:])); size != smaller-40 {
			t.Errorf("what is to become segments of %d bytes arrives", size)
			continue
		}
		break
	}
	b.Do(func() { must(t, link.SetMTU("gha", mtu)) })

	// With the headers of VXLAN it is longer than an IP packet can say, until it is segmented.
	out.Send(segments(mtu-40, 65500-40)) // of a whole 64 KiB the kernel makes segments at once
	for {
		frame := in.Receive(5 * time.Second)
		if frame == nil {
			t.Fatal("a packet of 64 KiB to be segmented does not arrive")
		}
		if bytes.Contains(frame, mark) {
			break
		}
	}

	// A route with a smaller MTU: the hosts' IP stack makes fragments, as ever.
	a.Do(func() {
		must(t, exec.Command("ip", "route", "replace", "10.9.0.2/32", "dev", "eth0", "mtu", "lock", strconv.Itoa(mtu)).Run())
	})
	a.container.Do(func() { must(t, exec.Command("ip", "route", "flush", "cache").Run()) })
	before := a.byTunnel()
	if n := a.ping("10.128.1.7", mtu-28); n != 5 {
		t.Errorf("%d of 5 pings that the route has to cut were answered", n)
	}
	if n := a.byTunnel() - before; n < 5 {
		t.Errorf("%d packets went by the VXLAN device, of 5 that are too big for their route", n)
	}
	a.transfer(b, "10.128.1.7:99", 1<<20)
}

// Routes and rules count as for the host's own packets.
func TestDirectRoutes(t *testing.T) {
	a, _ := directHosts(t)
	a.Do(func() {
		must(t, exec.Command("sh", "-ec", "ip link add other type veth peer name other2; ip link set other2 up; ip link set other up; ip route add default dev other table 77; ip neigh add 10.9.0.2 lladdr 02:42:00:00:00:99 dev other").Run())
	})
	for _, way := range []struct{ what, add, remove string }{
		{"a route that says no", "route add blackhole 10.9.0.2/32", "route del blackhole 10.9.0.2/32"},
		{"a rule that says no", "rule add ipproto udp dport 4789 unreachable", "rule del ipproto udp dport 4789 unreachable"},
		{"another device", "route add 10.9.0.2/32 dev other", "route del 10.9.0.2/32 dev other"},
		{"another table", "rule add to 10.9.0.2 lookup 77", "rule del to 10.9.0.2 lookup 77"},
		{"another table for what this host sends", "rule add iif lo lookup 77", "rule del iif lo lookup 77"},
	} {
		a.Do(func() {
			must(t, exec.Command("ip", strings.Fields(way.add)...).Run())
		})
		if n := a.ping("10.128.1.7", 56); n != 0 {
			t.Errorf("%s: %d pings were answered", way.what, n)
		}
		a.Do(func() { must(t, exec.Command("ip", strings.Fields(way.remove)...).Run()) })
		if n := a.ping("10.128.1.7", 56); n != 5 {
			t.Errorf("%s is gone: %d of 5 pings were answered", way.what, n)
		}
	}
	// A neighbour that is not known yet: the kernel asks.
	a.Do(func() { must(t, exec.Command("ip", "neigh", "flush", "dev", "eth0").Run()) })
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Errorf("%d of 5 pings were answered with a neighbour to be found", n)
	}
}

// The programs at both ends write the same on the wire as the VXLAN device does.
func TestDirectIsWhatTheDeviceSends(t *testing.T) {
	a, b := directHosts(t)
	var wire *linktest.Socket
	var out *linktest.Socket
	b.Do(func() { wire = linktest.Open(t, "eth0") })
	a.container.Do(func() { out = linktest.Open(t, "gca") })
	for tos := range byte(8) {
		frame := datagram(tos, 97, slices.Concat(mark, make([]byte, int(tos)*100)))
		var seen [2][]byte
		for i, direct := range []bool{false, true} {
			a.direct(direct)
			before := a.byTunnel()
			out.Send(frame)
			for seen[i] == nil {
				got := wire.Receive(5 * time.Second)
				if got == nil {
					t.Fatalf("TOS %d, direct %v: nothing arrives", tos, direct)
				}
				if bytes.Contains(got, mark) && len(got) == len(frame)+50 {
					seen[i] = got
				}
			}
			if byTunnel := a.byTunnel() != before; byTunnel == direct {
				t.Fatalf("direct %v: by the VXLAN device: %v", direct, byTunnel)
			}
			if n := sum(seen[i][14:34]); n != 0 {
				t.Errorf("direct %v: the IP header's checksum is wrong", direct)
			}
			copy(seen[i][18:20], []byte{0, 0}) // ID
			copy(seen[i][24:26], []byte{0, 0}) // and so, the checksum
		}
		if !bytes.Equal(seen[0], seen[1]) {
			t.Errorf("TOS %d:\n%x is what the device sends\n%x is direct", tos, seen[0], seen[1])
		}
	}
}

// Who is no VTEP, and what has another VNID, is not delivered.
func TestDirectForged(t *testing.T) {
	a, b := directHosts(t)
	var wire, in *linktest.Socket
	a.Do(func() { wire = linktest.Open(t, "eth0") })
	b.container.Do(func() { in = linktest.Open(t, "gca") })
	mac := func(h *host) (m net.HardwareAddr) {
		h.Do(func() {
			l, err := netlink.LinkByName("eth0")
			must(t, err)
			m = l.Attrs().HardwareAddr
		})
		return m
	}
	forge := func(text, from, src string, vnid uint32) []byte {
		f := slices.Concat(pipeline.RouterMAC, pipeline.RouterMAC, []byte{8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0},
			addrs(src)[0].AsSlice(), addrs("10.128.1.7")[0].AsSlice(), []byte{0, 7, 0, 97, 0, 0, 0, 0}, mark, []byte(text))
		binary.BigEndian.PutUint16(f[16:], uint16(len(f)-14))
		binary.BigEndian.PutUint16(f[24:], uint16(sum(f[14:34])))
		binary.BigEndian.PutUint16(f[38:], uint16(len(f)-34))
		f = encapsulated(f, addrs(from)[0], addrs("10.9.0.2")[0], vnid, 0)
		copy(f, slices.Concat(mac(b), mac(a)))
		return f
	}
	wire.Send(forge("stranger", "10.9.0.9", "10.128.0.7", 5))
	wire.Send(forge("other VNID", "10.9.0.1", "10.128.0.7", 6))
	wire.Send(forge("VNID 0", "10.9.0.1", "10.128.0.7", 0))
	wire.Send(forge("other's address", "10.9.0.1", "10.128.2.7", 5))
	wire.Send(forge("good", "10.9.0.1", "10.128.0.7", 5))
	for {
		frame := in.Receive(5 * time.Second)
		if frame == nil {
			t.Fatal("what is good does not arrive")
		}
		if _, text, ok := bytes.Cut(frame, mark); ok {
			if string(text) != "good" {
				t.Errorf("%q arrives", text)
				continue
			}
			return
		}
	}
}

// Switching under traffic loses nothing, and leaves nothing at the NIC.
func TestDirectSwitched(t *testing.T) {
	a, b := directHosts(t)
	in := b.listenUDP(96)
	var got atomic.Uint64
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for buf := make([]byte, 100); ; got.Add(1) {
			if _, err := in.Read(buf); err != nil {
				return
			}
		}
	})
	var out net.Conn
	a.container.Do(func() {
		var err error
		out, err = net.Dial("udp", "10.128.1.7:96")
		must(t, err)
	})
	stop := make(chan struct{})
	var sent atomic.Uint64
	var sender sync.WaitGroup
	sender.Go(func() {
		for tick := time.NewTicker(50 * time.Microsecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				if _, err := out.Write(mark); err == nil {
					sent.Add(1)
				}
			}
		}
	})
	for range 10 {
		for _, direct := range []bool{false, true} {
			for _, h := range []*host{a, b} {
				h.direct(direct)
				if h.atNIC() != direct {
					t.Errorf("direct %v: the program is at the NIC: %v", direct, h.atNIC())
				}
				// Enough packets in each of the 40 ways, however busy the machine is.
				enough := sent.Load() + 30
				ovstest.Eventually(t, 5*time.Second, func() error {
					if n := sent.Load(); n < enough {
						return fmt.Errorf("%d of %d packets were sent", n, enough)
					}
					return nil
				})
			}
		}
	}
	close(stop)
	sender.Wait()
	ovstest.Eventually(t, 5*time.Second, func() error {
		if n := got.Load(); n != sent.Load() {
			return fmt.Errorf("%d of %d packets arrived", n, sent.Load())
		}
		return nil
	})
	in.Close()
	tasks.Wait()

	// Off, by this agent and by another one that finds what this one left.
	for _, restarted := range []bool{false, true} {
		a.direct(true)
		if restarted {
			must(t, a.path.Close())
			a.path = New(a.path.cfg)
		}
		a.Do(func() { must(t, a.path.Stop()) })
		if a.atNIC() {
			t.Errorf("after Stop, restarted %v, the program is at the NIC", restarted)
		}
	}
}

// The mode outlives the agent; the next one takes it over, or ends it, also at a NIC that is not its own.
func TestDirectOutlivesTheAgent(t *testing.T) {
	a, _ := directHosts(t)
	must(t, a.path.Close())
	before := a.byTunnel()
	if n := a.ping("10.128.1.7", 56); n != 5 || a.byTunnel() != before {
		t.Errorf("without an agent %d of 5 pings were answered, %d packets went by the VXLAN device", n, a.byTunnel()-before)
	}
	cfg := a.path.cfg
	restart := func(direct bool) {
		a.path = New(cfg)
		a.Do(func() { must(t, a.path.Start(direct)) })
	}
	restart(true)
	if n := a.ping("10.128.1.7", 56); n != 5 || a.byTunnel() != before {
		t.Errorf("before the new agent knew anything %d of 5 pings were answered, %d packets went by the VXLAN device", n, a.byTunnel()-before)
	}
	a.apply()
	if n := a.ping("10.128.1.7", 56); n != 5 || a.byTunnel() != before || !a.atNIC() {
		t.Errorf("with a new agent %d of 5 pings were answered, %d packets went by the VXLAN device", n, a.byTunnel()-before)
	}
	must(t, a.path.Close())
	restart(false)
	a.apply()
	if a.atNIC() {
		t.Error("an agent with the mode on leaves the program at the NIC")
	}
	a.direct(true)
	must(t, a.path.Close())
	cfg.Underlay.Device = "eth1"
	restart(true)
	if a.atNIC() {
		t.Error("an agent with another NIC leaves the program at the old one")
	}
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Errorf("with another NIC %d of 5 pings were answered", n)
	}
	a.apply()
	if a.path.Direct() == nil {
		t.Error("it is direct by a NIC that is not there")
	}
}

// What others have at the NIC stays.
func TestDirectBesideOthers(t *testing.T) {
	a, _ := directHosts(t)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "others", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	must(t, err)
	defer prog.Close()
	a.Do(func() { must(t, link.AttachTCX("eth0", link.Ingress, prog, "others")) })
	for _, direct := range []bool{false, true, false} {
		a.direct(direct)
		a.Do(func() {
			id, err := link.AttachedTCX("eth0", link.Ingress, "others")
			must(t, err)
			if id == 0 {
				t.Errorf("direct %v: somebody else's program is gone", direct)
			}
		})
		if a.atNIC() != direct {
			t.Errorf("direct %v: the program is at the NIC: %v", direct, a.atNIC())
		}
	}
}

// Nothing is direct where it would pass IPsec by, or cannot be.
func TestDirectRests(t *testing.T) {
	a, _ := directHosts(t)
	for _, c := range []struct{ what, begin, end string }{
		{"IPsec", "ip xfrm policy add dir out dst 10.9.0.2/32 tmpl proto esp mode transport", "ip xfrm policy flush"},
		{"forwarding", "sysctl -qw net.ipv4.conf.lo.forwarding=0", "sysctl -qw net.ipv4.conf.lo.forwarding=1"},
		{"the VTEP's address", "ip addr add 10.9.0.3/24 dev eth0; ip addr del 10.9.0.1/24 dev eth0; ip addr add 10.9.0.3/24 dev eth0", "ip addr add 10.9.0.1/24 dev eth0"},
	} {
		a.Do(func() { _ = exec.Command("sh", "-c", c.begin).Run() })
		a.apply()
		if err := a.path.Direct(); err == nil {
			t.Errorf("%s: it is direct", c.what)
		}
		if a.atNIC() {
			t.Errorf("%s: the program is at the NIC", c.what)
		}
		a.Do(func() { must(t, exec.Command("sh", "-c", c.end).Run()) })
		a.apply()
		if err := a.path.Direct(); err != nil || !a.atNIC() {
			t.Errorf("%s is over: %v", c.what, err)
		}
	}
}

func TestPassedBy(t *testing.T) {
	u := Underlay{Device: "eth0", VTEP: netip.MustParseAddr("10.9.0.1"), Port: vxlanPort}
	vteps := []pipeline.VTEP{{Addr: netip.MustParseAddr("10.9.0.2")}, {Addr: netip.MustParseAddr("2001:db8::2")}}
	cidr := func(s string) *net.IPNet {
		_, n, err := net.ParseCIDR(s)
		must(t, err)
		return n
	}
	here, there, all := cidr("10.9.0.1/32"), cidr("10.9.0.0/24"), cidr("0.0.0.0/0")
	esp := []netlink.XfrmPolicyTmpl{{Proto: netlink.XFRM_PROTO_ESP}}
	const in, out, fwd = netlink.XFRM_DIR_IN, netlink.XFRM_DIR_OUT, netlink.XFRM_DIR_FWD
	for _, c := range []struct {
		what string
		p    netlink.XfrmPolicy
		want bool
	}{
		{"to a peer", netlink.XfrmPolicy{Dir: out, Src: here, Dst: there, Tmpls: esp}, true},
		{"from a peer", netlink.XfrmPolicy{Dir: in, Src: there, Dst: here, Tmpls: esp}, true},
		{"from a peer, the wrong way round", netlink.XfrmPolicy{Dir: in, Src: here, Dst: cidr("10.9.0.2/32"), Tmpls: esp}, false},
		{"forwarded", netlink.XfrmPolicy{Dir: fwd, Src: here, Dst: there, Tmpls: esp}, false},
		{"all", netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Tmpls: esp}, true},
		{"our port", netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Proto: 17, DstPort: vxlanPort, Tmpls: esp}, true},
		{"another port", netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Proto: 17, DstPort: 53, Tmpls: esp}, false},
		{"TCP", netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Proto: 6, Tmpls: esp}, false},
		{"block", netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Action: netlink.XFRM_POLICY_BLOCK}, true},
		{"let pass", netlink.XfrmPolicy{Dir: out, Src: all, Dst: all}, false},
		{"a swarm's", netlink.XfrmPolicy{Dir: out, Src: here, Dst: there, Tmpls: esp, Mark: &netlink.XfrmMark{Value: 13681891, Mask: ^uint32(0)}}, false},
		{"mark 0", netlink.XfrmPolicy{Dir: out, Src: here, Dst: there, Tmpls: esp, Mark: &netlink.XfrmMark{Mask: ^uint32(0)}}, true},
		{"XFRM interface", netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Tmpls: esp, Ifid: 3}, false},
		{"our NIC", netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Tmpls: esp, Ifindex: 2}, true},
		{"another NIC", netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Tmpls: esp, Ifindex: 3}, false},
		{"not this host", netlink.XfrmPolicy{Dir: out, Src: cidr("10.9.0.7/32"), Dst: all, Tmpls: esp}, false},
		{"no peer", netlink.XfrmPolicy{Dir: out, Src: here, Dst: cidr("10.9.1.0/24"), Tmpls: esp}, false},
	} {
		if got := passedBy([]netlink.XfrmPolicy{{Dir: fwd}, c.p}, u, 2, vteps); (got != nil) != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	marked := func(dir netlink.Dir, src, dst *net.IPNet) []netlink.XfrmPolicy {
		return []netlink.XfrmPolicy{{Dir: dir, Src: src, Dst: dst, Tmpls: esp, Mark: &netlink.XfrmMark{Value: 7, Mask: 7}}}
	}
	for _, stacked := range []bool{false, true} {
		u.marks = stacked
		if got := passedBy(marked(in, there, here), u, 2, vteps); (got != nil) != stacked {
			t.Errorf("of a mark, what arrives, by a bond %v: %v", stacked, got)
		}
		if got := passedBy(marked(out, here, there), u, 2, vteps); got != nil {
			t.Errorf("of a mark, what leaves, by a bond %v: %v", stacked, got)
		}
	}
}
