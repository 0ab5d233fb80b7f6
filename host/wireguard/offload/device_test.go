package offload

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// inside is the device gvwg of a namespace, and over it VXLAN, by which a packet leaves and comes.
type inside struct {
	*device
	raw, index int
}

// since617 reports whether the kernel is Linux 6.17 or later.
func since617(t *testing.T) bool {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	release := unix.ByteSliceToString(name.Release[:])
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("the kernel's release is %q: %v", release, err)
	}
	return major > 6 || major == 6 && minor >= 17
}

// setUp makes them, on the calling thread's namespace. A kernel before 6.17 has no such devices, which is not CI's to mend
// (TestWhole has the other way there); a later one that refuses is a fault.
func setUp(t *testing.T, outer int, checked bool) *inside {
	t.Helper()
	made, err := Create("gvwg", 1400, t.Logf)
	if errors.Is(err, ErrNot) && !(since617(t) && os.Getenv("CI") != "") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Close() })
	addrs := "local fd67::1 remote fd67::2 udp6zerocsumrx"
	if !checked {
		addrs += " udp6zerocsumtx"
	}
	if outer == 4 {
		addrs = "local 192.0.2.1 remote 192.0.2.2 noudpcsum"
		if checked {
			addrs = "local 192.0.2.1 remote 192.0.2.2 udpcsum"
		}
	}
	for _, c := range []string{
		"sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.default.router_solicitations=0 net.ipv6.conf.default.addr_gen_mode=1",
		"sysctl -qw net.ipv6.conf.gvwg.router_solicitations=0 net.ipv6.conf.gvwg.addr_gen_mode=1",
		"ip link set gvwg up", "ip addr add 192.0.2.1/24 dev gvwg", "ip addr add fd67::1/64 dev gvwg nodad",
		"ip link add vx mtu 1330 type vxlan id 77 dstport 4789 " + addrs, "ip link set vx up",
	} {
		if out, err := exec.Command("sh", "-c", c).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c, err, out)
		}
	}
	l, err := net.InterfaceByName("vx")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
	if err == nil {
		err = errors.Join(unix.SetsockoptInt(raw, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
			unix.SetsockoptTimeval(raw, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}),
			unix.Bind(raw, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: l.Index}))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(raw) })
	return &inside{made.(*device), raw, l.Index}
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// plainLen is that of struct virtio_net_hdr, as sockets have it.
const plainLen = 10

// send has a container send the inner packet, whole.
func (i *inside) send(t *testing.T, s shape, payload []byte) {
	t.Helper()
	s.outer, s.checked = 0, false
	h, p := s.whole(payload)
	b := make([]byte, headerLen)
	h.encode(b)
	ether := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0}
	binary.LittleEndian.PutUint16(b[2:], h.headers+14)
	binary.LittleEndian.PutUint16(b[6:], h.csumStart+14)
	kind := uint16(unix.ETH_P_IP)
	if s.inner == 6 {
		ether[12], ether[13], kind = 0x86, 0xdd, unix.ETH_P_IPV6
	}
	if err := unix.Sendto(i.raw, slices.Concat(b[:plainLen], ether, p), 0, &unix.SockaddrLinklayer{Protocol: htons(kind), Ifindex: i.index}); err != nil {
		t.Fatal(err)
	}
}

// sent reads what goes on the wire of a payload of that many bytes.
func (i *inside) sent(t *testing.T, want int) (all [][]byte) {
	t.Helper()
	bufs, sizes := make([][]byte, 128), make([]int, 128)
	for k := range bufs {
		bufs[k] = make([]byte, 2000)
	}
	if err := i.File().SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for got := 0; got < want; {
		n, err := i.Read(bufs, sizes, 16)
		if err != nil {
			t.Fatalf("%d of %d bytes were read: %v", got, want, err)
		}
		for k := range n {
			p := bytes.Clone(bufs[k][16 : 16+sizes[k]])
			all = append(all, p)
			got += len(p) - len(headersOf(p))
		}
	}
	return all
}

// headersOf are those of a packet of TCP in VXLAN over whatever.
func headersOf(p []byte) []byte {
	at := ip6Len
	if p[0]>>4 == 4 {
		at = ip4Len
	}
	at += udpLen + vxlanLen + ethernetLen
	if p[at]>>4 == 4 {
		at += ip4Len
	} else {
		at += ip6Len
	}
	return p[:at+int(p[at+tcpOffset]>>4)*4]
}

// TestAsTheKernel: what is cut here is, byte by byte, what the kernel makes of the same packet for a device that takes
// nothing whole.
func TestAsTheKernel(t *testing.T) {
	for _, outer := range []int{6, 4} {
		for _, checked := range []bool{true, false} {
			t.Run(fmt.Sprintf("IPv%d, checksum %t", outer, checked), func(t *testing.T) {
				linktest.New(t).Do(func() { asTheKernel(t, setUp(t, outer, checked), outer) })
			})
		}
	}
}

func asTheKernel(t *testing.T, i *inside, outer int) {
	r := rand.New(rand.NewPCG(15, uint64(outer)))
	var set error
	whole := 0
	for range 60 {
		s := anyShape(r)
		s.options = min(s.options, 36)
		s.size = 1 + s.size%(1330-60-s.options)
		s.payload = min(s.payload, 50000, 100*s.size)
		s.payload = max(s.payload, s.size+1)
		payload := s.random(r)
		var all [2][][]byte
		for k, flags := range []int{offloads, 0} {
			err := i.device.raw.Control(func(fd uintptr) { set = unix.IoctlSetInt(int(fd), unix.TUNSETOFFLOAD, flags) })
			if err := errors.Join(err, set); err != nil {
				t.Fatal(err)
			}
			i.send(t, s, payload)
			all[k] = i.sent(t, len(payload))
			if k == 0 && i.cut.n > 0 {
				whole++
			}
			if k == 1 && i.cut.left() {
				t.Fatal("the kernel gives packets whole that it is not asked for")
			}
			i.cut = cut{}
		}
		if len(all[0]) != len(all[1]) {
			t.Fatalf("%+v: cut in %d, by the kernel in %d", s, len(all[0]), len(all[1]))
		}
		ids := [2]uint16{be.Uint16(all[0][0][ip4ID:]), be.Uint16(all[1][0][ip4ID:])}
		for n := range all[0] {
			got, want := all[0][n], all[1][n]
			if outer == 4 { // another ID for each that the kernel is given
				for _, p := range [][]byte{got, want} {
					if naive(p[:ip4Len]) != 0xffff {
						t.Fatalf("the checksum of IP is wrong: %x", p)
					}
				}
				if id := be.Uint16(got[ip4ID:]) - ids[0]; id != be.Uint16(want[ip4ID:])-ids[1] {
					t.Errorf("the ID of packet %d is %d more than that of the first", n, id)
				}
				copy(got[ip4ID:], want[ip4ID:ip4ID+2])
				copy(got[ip4Check:], want[ip4Check:ip4Check+2])
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("%+v: packet %d of %d:\n%x\nby the kernel\n%x", s, n, len(all[0]), got, want)
			}
		}
	}
	if whole != 60 || i.odd != 0 {
		t.Errorf("%d of 60 were cut here, %d dropped", whole, i.odd)
	}
}

// TestReadsMuch: one Read brings what has come by then and waits for no more, in its order: packets that the kernel gave
// whole, until two messages are full, and of those that came alone no more than mostAlone. Nothing is lost between two.
func TestReadsMuch(t *testing.T) {
	linktest.New(t).Do(func() {
		i := setUp(t, 6, true)
		quiet := exec.Command("nft", "-f", "-")
		quiet.Stdin = strings.NewReader("table inet quiet {\n chain out {\n type filter hook output priority 0\n meta l4proto icmpv6 drop\n }\n}")
		if out, err := quiet.CombinedOutput(); err != nil {
			t.Fatalf("nft: %v: %s", err, out)
		}
		for { // what the kernel has said of itself by then
			got, err := i.next(false)
			if err != nil {
				t.Fatal(err)
			}
			if got == 0 {
				break
			}
		}
		s := shape{inner: 4, flags: ack, size: 1000, payload: 20_000}
		for _, c := range []struct {
			what    string
			n       int
			offload int
			want    []int
		}{
			{"three that are whole", 3, offloads, []int{60}},
			{"six that are whole", 6, offloads, []int{most, 6*20 - most}},
			{"two that the kernel cuts", 2, 0, []int{mostAlone, mostAlone, 40 - 2*mostAlone}},
		} {
			var set error
			err := i.device.raw.Control(func(fd uintptr) { set = unix.IoctlSetInt(int(fd), unix.TUNSETOFFLOAD, c.offload) })
			if err := errors.Join(err, set); err != nil {
				t.Fatal(err)
			}
			var payload []byte
			for range c.n {
				more := s.random(rand.New(rand.NewPCG(uint64(len(payload)), 1)))
				i.send(t, s, more)
				payload = append(payload, more...)
			}
			var got []byte
			bufs, sizes := make([][]byte, 128), make([]int, 128)
			for k := range bufs {
				bufs[k] = make([]byte, 2000)
			}
			for call, want := range c.want {
				if err := i.File().SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
					t.Fatal(err)
				}
				n, err := i.Read(bufs, sizes, 16)
				if err != nil || n != want {
					t.Fatalf("%s: call %d brings %d packets, not %d: %v", c.what, call+1, n, want, err)
				}
				for k := range n {
					p := bufs[k][16 : 16+sizes[k]]
					got = append(got, p[len(headersOf(p)):]...)
				}
			}
			if !bytes.Equal(got, payload) {
				t.Errorf("%s: other bytes have come than were sent", c.what)
			}
		}
	})
}

// TestClosed: who waits for a packet is told that the device is closed, as wireguard-go asks of it.
func TestClosed(t *testing.T) {
	linktest.New(t).Do(func() {
		i := setUp(t, 6, true)
		said := make(chan error)
		go func() {
			_, err := i.Read([][]byte{make([]byte, 2000)}, make([]int, 1), 16)
			said <- err
		}()
		if err := i.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-said; !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestOlder: a kernel that does not know what it is asked for says so, and is left with nothing.
func TestOlder(t *testing.T) {
	linktest.New(t).Do(func() {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := prepare(fd, "gvwg", offloads|1<<30); !errors.Is(err, ErrNot) {
			t.Error(err)
		}
		unix.Close(fd)
		if _, err := net.InterfaceByName("gvwg"); err == nil {
			t.Error("the device is there")
		}
	})
}

// rules let in VXLAN, and nothing else, as a host's do: UDP is found behind what joined packets have before it.
const rules = `table inet grapevine {
	chain in {
		type filter hook input priority 0
		iifname "gvwg" meta l4proto udp udp dport 4789 accept
		iifname "gvwg" meta l4proto udp udp dport 4790 counter drop comment "another port"
		iifname "gvwg" meta l4proto != icmpv6 counter drop comment "no UDP"
	}
}`

// TestWrite: what is joined comes out of VXLAN in one piece, which says into what it is to be cut, and is what came; and so it
// is if the kernel takes nothing that is joined. Rules of nftables judge it as they judge each packet.
func TestWrite(t *testing.T) {
	for _, plain := range []bool{false, true} {
		for _, checked := range []bool{true, false} {
			t.Run(fmt.Sprintf("one by one %t, checksum %t", plain, checked), func(t *testing.T) {
				linktest.New(t).Do(func() {
					i := setUp(t, 6, checked)
					comesOut(t, i, plain)
					if i.plain != plain {
						t.Errorf("goes on one by one: %t", i.plain)
					}
				})
			})
		}
	}
}

func comesOut(t *testing.T, i *inside, plain bool) {
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(rules)
	if out, err := nft.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	r := rand.New(rand.NewPCG(17, 18))
	for round := range 40 {
		s := joinable(r)
		s.options, s.size = min(s.options, 36), 1+s.size%1200
		s.payload = max(min(s.payload, 50000, 100*s.size), s.size+1)
		payload := s.random(r)
		// As the other host sends it, by its VXLAN: with our addresses.
		s.vni = 77
		batch := s.coming(payload, 4789)
		write := func() (int, error) { return i.Write(batch, 16) }
		if plain && round == 0 { // the kernel refuses it: of no bytes in each
			write = func() (int, error) {
				packet := func(k int) []byte { return batch[k][16:] }
				g := i.join.plan(len(batch), packet)[0]
				g.size = 0
				return i.writeGroup(&g, packet)
			}
		}
		if n, err := write(); n != len(batch) || err != nil {
			t.Fatalf("%d of %d are written: %v", n, len(batch), err)
		}
		want := 1
		if plain {
			want = len(batch)
		}
		var got []byte
		for n := range want {
			read := make([]byte, 1<<17)
			l, err := unix.Read(i.raw, read)
			if err != nil {
				t.Fatalf("%+v: %d of %d have come out: %v", s, n, want, err)
			}
			read = read[:l]
			tcp := plainLen + ethernetLen + ip4Len
			if s.inner == 6 {
				tcp = plainLen + ethernetLen + ip6Len
			}
			size := binary.LittleEndian.Uint16(read[4:])
			if !plain && (read[1]&^(ecn) != map[int]byte{4: tcp4, 6: tcp6}[s.inner] || int(size) != s.size) {
				t.Fatalf("%+v: it comes as type %d with %d bytes in each", s, read[1], size)
			}
			data := tcp + 20 + s.options
			if last := n == want-1; last && read[tcp+tcpFlags] != s.flags {
				t.Errorf("%+v: flags %#x", s, read[tcp+tcpFlags])
			}
			if seq := be.Uint32(read[tcp+tcpSeq:]); seq != s.seq+uint32(len(got)) {
				t.Errorf("%+v: sequence %d", s, seq)
			}
			got = append(got, read[data:]...)
		}
		if !bytes.Equal(got, payload) {
			t.Fatalf("%+v: %d bytes came of %d, or others", s, len(got), len(payload))
		}
	}
	s := shape{outer: 6, checked: true, inner: 4, flags: ack, size: 1000, payload: 3000, vni: 77}
	if _, err := i.Write(s.coming(make([]byte, s.payload), 4790), 16); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("nft", "list", "table", "inet", "grapevine").CombinedOutput()
	if want := map[bool]string{false: "packets 1 ", true: "packets 3 "}[plain]; err != nil ||
		!regexp.MustCompile(want+`.* comment "another port"`).Match(out) || !regexp.MustCompile(`packets 0 .* comment "no UDP"`).Match(out) {
		t.Errorf("%v: %s", err, out)
	}
	if i.odd != 0 {
		t.Error(i.odd)
	}
}

// coming is a batch as WireGuard has it of another host's VXLAN, or of somebody who uses another port.
func (s shape) coming(payload []byte, port uint16) [][]byte {
	batch := s.wire(payload)
	for k, p := range batch {
		copy(p[ip6From:], net.ParseIP("fd67::2"))
		copy(p[ip6From+16:], net.ParseIP("fd67::1"))
		be.PutUint16(p[ip6Len+2:], port)
		if s.checked {
			naiveCheck(p, ip6Len, udpCheck, protocolUDP)
		}
		batch[k] = append(make([]byte, 16), p...)
	}
	return batch
}
