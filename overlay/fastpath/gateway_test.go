package fastpath

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
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

// gated is a host with a gateway, a tap of which the test is the switch, and an outside that has
// no route to its container's IPv4 address.
type gated struct {
	*host
	outside *linktest.NS
	tap     int
}

func newGated(t *testing.T) *gated {
	h := &gated{host: newHost(t, "10.128.0.7"), outside: linktest.New(t)}
	h.in.VXLANPort, h.in.GossipPort, h.in.VTEP = vxlanPort, gossipPort, addrs("198.51.100.2")[0]
	h.in.Subnets[0].Gateway = addrs("10.128.3.1")[0]
	h.in.Subnets = append(h.in.Subnets, pipeline.Subnet{Prefix: prefixes("fd00:1::/64")[0], VNID: 5, Gateway: addrs("fd00:1::1")[0]})
	h.in.Ports[0].Addrs = append(h.in.Ports[0].Addrs, addrs("fd00:1::7")[0])
	h.gateway = "gv0"
	h.newGateway()
	linktest.Wire(t, "eth1", h.NS, h.outside, []string{"198.51.100.2/24", "2001:db8:7::2/64"}, []string{"198.51.100.1/24", "2001:db8:7::1/64"})
	run(t, h.outside, "ip -6 route add fd00:1::/64 via 2001:db8:7::2")
	h.Do(func() {
		for _, file := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			must(t, os.WriteFile("/proc/sys/net/"+file, []byte("1"), 0))
		}
	})
	run(t, h.NS, "iptables -w -t nat -A POSTROUTING -s 10.128.0.0/22 -o eth1 -j MASQUERADE",
		"iptables -w -t nat -A PREROUTING -i eth1 -p tcp --dport 8080 -j DNAT --to-destination 10.128.0.7:80")
	run(t, h.container, "ip -6 addr add fd00:1::7/64 dev gca nodad",
		"ip neigh replace 10.128.3.1 lladdr "+pipeline.RouterMAC.String()+" dev gca nud permanent",
		"ip neigh replace fd00:1::1 lladdr "+pipeline.RouterMAC.String()+" dev gca nud permanent",
		"ip route add default via 10.128.3.1", "ip -6 route add default via fd00:1::1")
	ovstest.Eventually(t, 10*time.Second, func() error { // the kernel asks for neighbours of IPv6 when its address has settled
		if ping(h.NS, "2001:db8:7::1", 56) != 5 {
			return errors.New("the outside does not answer")
		}
		return nil
	})
	must(t, h.path.Close())
	h.start()
	h.apply()
	return h
}

func run(t *testing.T, ns *linktest.NS, commands ...string) {
	t.Helper()
	ns.Do(func() {
		for _, c := range commands {
			if out, err := exec.Command("sh", "-c", c).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", c, err, out)
			}
		}
	})
}

// silent says that none of three pings is answered at once.
func silent(from *linktest.NS, to string) (none bool) {
	from.Do(func() {
		out, _ := exec.Command("ping", "-c", "3", "-i", "0.01", "-W", "0.2", to).CombinedOutput()
		none = !strings.Contains(string(out), "bytes from")
	})
	return none
}

// newGateway makes gv0, as Open vSwitch's userspace datapath does, in place of a former one.
func (h *gated) newGateway() {
	t := h.t
	if h.tap != 0 {
		must(t, unix.Close(h.tap))
	}
	h.Do(func() {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		must(t, err)
		h.tap = fd
		request, err := unix.NewIfreq("gv0")
		must(t, err)
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		must(t, unix.IoctlIfreq(fd, unix.TUNSETIFF, request))
		l, err := netlink.LinkByName("gv0")
		must(t, err)
		must(t, link.SetMTU("gv0", mtu))
		h.in.GatewayPort, h.in.GatewayMAC = 2, l.Attrs().HardwareAddr
		linktest.Up(t, "gv0", "10.128.3.1/32", "fd00:1::1/128")
	})
	run(t, h.NS, "ip route add 10.128.0.0/22 dev gv0 src 10.128.3.1", "ip -6 route add fd00:1::/64 dev gv0",
		"ip neigh add 10.128.0.7 lladdr "+pipeline.RouterMAC.String()+" dev gv0 nud permanent",
		"ip neigh add fd00:1::7 lladdr "+pipeline.RouterMAC.String()+" dev gv0 nud permanent")
}

// switched is how many packets to the container have come to the switch since the last call.
func (h *gated) switched() (n int) {
	buf := make([]byte, 1<<16)
	for {
		size, err := unix.Read(h.tap, buf)
		if err != nil {
			return n
		}
		if _, dst := addressesOf(buf[:size]); dst == addrs("10.128.0.7")[0] || dst == addrs("fd00:1::7")[0] {
			n++
		}
	}
}

func addressesOf(frame []byte) (src, dst netip.Addr) {
	if len(frame) < 54 || frame[12] != 8 && frame[12] != 0x86 || frame[13] == 6 {
		return src, dst
	}
	return addresses(frame)
}

// attachedGateway says whether the program is at gv0.
func (h *gated) atGateway() (yes bool) {
	h.Do(func() {
		id, err := link.AttachedTC("gv0", link.Egress, gatewayProgram)
		must(h.t, err)
		yes = id != 0
	})
	return yes
}

// What a container, its host and the outside say to each other passes by the switch, whole, and by all
// of the host's own: its NAT, both ways.
func TestGateway(t *testing.T) {
	h := newGated(t)
	for _, x := range []struct {
		from *linktest.NS
		to   string
	}{
		{h.container, "10.128.3.1"}, {h.container, "198.51.100.2"}, {h.container, "198.51.100.1"}, {h.NS, "10.128.0.7"},
		{h.container, "fd00:1::1"}, {h.container, "2001:db8:7::1"}, {h.NS, "fd00:1::7"}, {h.outside, "fd00:1::7"},
	} {
		for _, size := range []int{56, mtu - 48} {
			if n := ping(x.from, x.to, size); n != 5 {
				t.Errorf("%d of 5 pings of %d bytes to %s were answered", n, size, x.to)
			}
		}
	}
	got := tally(h.host)
	for what, n := range map[string]pipeline.Count{
		"to the gateway's address": got.ToGateway[prefixes("10.128.3.1/32")[0]], "from it": got.FromGateway[prefixes("10.128.3.1/32")[0]],
		"to the host": got.ToGateway[prefixes("198.51.100.2/32")[0]], "from it ": got.FromGateway[prefixes("198.51.100.2/32")[0]],
		"to the outside": got.ToGateway[prefixes("0.0.0.0/0")[0]], "from it  ": got.FromGateway[prefixes("0.0.0.0/0")[0]],
	} {
		if want := map[bool]uint64{true: 20, false: 10}[strings.Contains(what, "gateway") || what == "from it"]; n.Packets != want {
			t.Errorf("%s: %d packets, want %d", what, n.Packets, want)
		}
	}
	for _, features := range []map[string]bool{
		nil,
		{"rx-gro": false},
		{"tx-checksum-ip-generic": false},
	} {
		h.Do(func() { must(t, link.SetFeatures("eth1", features)) })
		const size = 4 << 20
		transfer(t, h.container, h.outside, "198.51.100.1:99", "198.51.100.1:99", size)
		transfer(t, h.container, h.outside, "[2001:db8:7::1]:99", "[2001:db8:7::1]:99", size)
		transfer(t, h.outside, h.container, "10.128.0.7:80", "198.51.100.2:8080", size)
		transfer(t, h.outside, h.container, "[fd00:1::7]:80", "[fd00:1::7]:80", size)
		transfer(t, h.container, h.NS, "10.128.3.1:99", "10.128.3.1:99", size)
		transfer(t, h.NS, h.container, "10.128.0.7:80", "10.128.0.7:80", size)
	}
	if n := h.switched(); n != 0 {
		t.Errorf("%d packets went by the switch", n)
	}
	outside := func() (n uint64) {
		for p, count := range tally(h.host).ToGateway {
			if p.Bits() == 0 {
				n += count.Packets
			}
		}
		return n
	}
	before := outside()
	run(t, h.container, "ping -c 1 -W 0.2 -s 3000 198.51.100.1 || true", "ping -c 1 -W 0.2 -s 3000 2001:db8:7::1 || true")
	if n := outside() - before; n != 0 {
		t.Errorf("%d fragments were carried", n)
	}
}

// Datagrams that the kernel is to segment arrive at the outside and at the container, each by itself.
func TestGatewaySegmentedUDP(t *testing.T) {
	h := newGated(t)
	for _, x := range []struct {
		from, to *linktest.NS
		addr     string
	}{{h.container, h.outside, "198.51.100.1:98"}, {h.NS, h.container, "10.128.0.7:98"}, {h.container, h.outside, "[2001:db8:7::1]:98"}, {h.outside, h.container, "[fd00:1::7]:98"}} {
		var in *net.UDPConn
		x.to.Do(func() {
			at, err := net.ResolveUDPAddr("udp", x.addr)
			must(t, err)
			in, err = net.ListenUDP("udp", at)
			must(t, err)
		})
		x.from.Do(func() {
			c, err := net.Dial("udp", x.addr)
			must(t, err)
			defer c.Close()
			raw, err := c.(*net.UDPConn).SyscallConn()
			must(t, err)
			must(t, raw.Control(func(fd uintptr) { must(t, unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1000)) }))
			_, err = c.Write(make([]byte, 8000))
			must(t, err)
		})
		buf := make([]byte, 9000)
		for i := range 8 {
			must(t, in.SetReadDeadline(time.Now().Add(10*time.Second)))
			if n, err := in.Read(buf); err != nil || n != 1000 {
				t.Errorf("to %s: datagram %d has %d bytes, %v", x.addr, i, n, err)
				break
			}
		}
		must(t, in.Close())
	}
	if n := h.switched(); n != 0 {
		t.Errorf("%d packets went by the switch", n)
	}
}

// Whoever knows nothing of the program at the gateway, an older agent, cannot look after the addresses that
// it delivers to. So it ends with the agent that does, and the switch delivers.
func TestGatewayIsHeld(t *testing.T) {
	h := newGated(t)
	if n := ping(h.NS, "10.128.0.7", 56); n != 5 || h.switched() != 0 {
		t.Fatalf("%d of 5 pings were answered", n)
	}
	must(t, h.path.Close())
	if !h.atGateway() {
		t.Fatal("the program went with the agent")
	}
	ovstest.Eventually(t, 10*time.Second, func() error { // the kernel closes maps some time after
		if silent(h.NS, "10.128.0.7"); h.switched() != 3 {
			return errors.New("without an agent, not all that the host sends to the container comes to the switch")
		}
		return nil
	})
	h.start() // with what the former agent knew
	if n := ping(h.NS, "10.128.0.7", 56); n != 5 {
		t.Errorf("%d of 5 pings were answered before the next agent knew anything", n)
	}
	h.apply()
	if n := ping(h.container, "198.51.100.1", 56); n != 5 {
		t.Errorf("%d of 5 pings were answered in the end", n)
	}
	if n := h.switched(); n != 0 {
		t.Errorf("%d packets went by the switch", n)
	}
}

// The switch carries what somebody shapes, and all while the path is off, and the way of a new gateway is found.
func TestGatewayComesAndGoes(t *testing.T) {
	h := newGated(t)
	carried := func(yes bool, when string) {
		t.Helper()
		if !yes {
			if quiet, by := silent(h.NS, "10.128.0.7"), h.switched(); !quiet || by != 3 {
				t.Errorf("%s: pings were answered: %v, %d of 3 came to the switch", when, !quiet, by)
			}
		} else if n, by := ping(h.NS, "10.128.0.7", 56), h.switched(); n != 5 || by != 0 {
			t.Errorf("%s: %d of 5 pings were answered, %d came to the switch", when, n, by)
		}
		if h.atGateway() != yes {
			t.Errorf("%s: the program is at the gateway: %v", when, !yes)
		}
	}
	carried(true, "at first")
	run(t, h.NS, "tc qdisc add dev gv0 root tbf rate 1gbit burst 100k latency 50ms")
	h.apply()
	carried(false, "with somebody's qdisc")
	if !silent(h.container, "198.51.100.1") {
		t.Error("with somebody's qdisc: pings of the container were answered")
	}
	run(t, h.NS, "tc qdisc del dev gv0 root")
	h.apply()
	carried(true, "without it")
	h.newGateway()
	if !silent(h.container, "198.51.100.1") {
		t.Error("pings of the container were answered by a gateway that is another one")
	}
	h.apply()
	carried(true, "with a new gateway")
	port := h.in.GatewayPort
	h.in.GatewayPort = 0
	h.apply()
	carried(false, "without its port")
	h.in.GatewayPort = port
	h.apply()
	carried(true, "with its port")
	h.Do(func() { must(t, h.path.Stop()) })
	carried(false, "off")
	h.Do(func() { must(t, h.path.Start(false)) })
	h.apply()
	carried(true, "on again")
	must(t, h.path.Close())
	h.path = New(h.path.cfg)
	h.Do(func() { must(t, h.path.Stop()) })
	carried(false, "off in the next agent")
}

// Whoever stands at gv0 sees what the programs carry as he saw it before: tc programs, nftables of the device, packet
// sockets of what arrives. On the way to a container packet sockets see it at its own device.
func TestGatewayBesideOthers(t *testing.T) {
	h := newGated(t)
	var arriving *linktest.Socket
	h.Do(func() { arriving = linktest.Open(t, "gv0") })
	if n := h.ping("198.51.100.1", 56); n != 5 {
		t.Fatalf("%d of 5 pings were answered", n)
	}
	seen := 0
	for frame := arriving.Receive(time.Second); frame != nil && seen < 5; frame = arriving.Receive(time.Second) {
		if _, dst := addressesOf(frame); dst == addrs("198.51.100.1")[0] {
			seen++
		}
	}
	if seen != 5 {
		t.Errorf("a packet socket at gv0 saw %d of 5 packets of the container", seen)
	}
	drops := func(what string, rule, undo func()) {
		t.Helper()
		rule()
		if !silent(h.container, "198.51.100.1") {
			t.Errorf("%s: pings were answered", what)
		}
		undo()
		if n := h.ping("198.51.100.1", 56); n != 5 {
			t.Errorf("%s: %d of 5 pings were answered without it", what, n)
		}
	}
	drop, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2 /* TC_ACT_SHOT */), asm.Return()}})
	must(t, err)
	defer drop.Close()
	for what, hook := range map[string]link.Hook{"tc, arriving": link.Ingress, "tc, leaving": link.Egress} {
		h.Do(func() {
			l, err := netlink.LinkByName("gv0")
			must(t, err)
			filter := &netlink.BpfFilter{
				FilterAttrs: netlink.FilterAttrs{LinkIndex: l.Attrs().Index, Parent: uint32(hook), Handle: 7, Priority: 10, Protocol: unix.ETH_P_ALL},
				Fd:          drop.FD(), Name: "others", DirectAction: true,
			}
			drops(what, func() { must(t, netlink.FilterAdd(filter)) }, func() { must(t, netlink.FilterDel(filter)) })
		})
	}
	xdp, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1 /* XDP_DROP */), asm.Return()}})
	must(t, err)
	defer xdp.Close()
	for what, mode := range map[string]int{"XDP of the driver": unix.XDP_FLAGS_DRV_MODE, "XDP of the kernel": unix.XDP_FLAGS_SKB_MODE} {
		put := func(fd int) {
			h.Do(func() {
				l, err := netlink.LinkByName("gv0")
				must(t, err)
				must(t, netlink.LinkSetXdpFdWithFlags(l, fd, mode))
			})
			h.apply()
		}
		drops(what, func() { put(xdp.FD()) }, func() { put(-1) })
	}
	for what, do := range map[string][2]string{
		"nftables, arriving": {"nft 'add table netdev x; add chain netdev x y { type filter hook ingress device gv0 priority 0; policy drop; }'", "nft delete table netdev x"},
		"nftables, leaving":  {"nft 'add table netdev x; add chain netdev x y { type filter hook egress device gv0 priority 0; policy drop; }'", "nft delete table netdev x"},
		"iptables, forward":  {"iptables -w -I FORWARD -i gv0 -j DROP", "iptables -w -D FORWARD -i gv0 -j DROP"},
		"iptables, back":     {"iptables -w -I FORWARD -o gv0 -j DROP", "iptables -w -D FORWARD -o gv0 -j DROP"},
	} {
		drops(what, func() { run(t, h.NS, do[0]) }, func() { run(t, h.NS, do[1]) })
	}
}
