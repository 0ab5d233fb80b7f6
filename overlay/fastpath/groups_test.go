package fastpath

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// member is a container that has joined a group, and counts what its kernel hands to programs and what comes by its interface.
type member struct {
	mu    sync.Mutex
	heard map[netip.Addr]int // by the sender
	wire  int
}

func (m *member) says(from netip.Addr) (heard, wire int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heard[from], m.wire
}

// listen joins a group, or none, in a container.
func listen(t *testing.T, ns *linktest.NS, ifname string, group netip.AddrPort, joins bool) *member {
	m := &member{heard: map[netip.Addr]int{}}
	var conn *net.UDPConn
	var wire *linktest.Socket
	ns.Do(func() {
		nic, err := net.InterfaceByName(ifname)
		must(t, err)
		wire = linktest.Open(t, ifname)
		switch {
		case !joins:
		case group.Addr().IsMulticast():
			conn, err = net.ListenMulticastUDP("udp", nic, net.UDPAddrFromAddrPort(group))
		default:
			conn, err = net.ListenUDP("udp", &net.UDPAddr{Port: int(group.Port())})
		}
		must(t, err)
	})
	done := make(chan struct{})
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for frame := []byte(nil); ; frame = wire.Receive(20 * time.Millisecond) {
			if bytes.Contains(frame, mark) {
				m.mu.Lock()
				m.wire++
				m.mu.Unlock()
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	if conn != nil {
		must(t, conn.SetReadBuffer(4<<20))
		tasks.Go(func() {
			for b := make([]byte, 2000); ; {
				n, from, err := conn.ReadFromUDPAddrPort(b)
				if err != nil {
					return
				}
				if bytes.Contains(b[:n], mark) {
					m.mu.Lock()
					m.heard[from.Addr().Unmap()]++
					m.mu.Unlock()
				}
			}
		})
	}
	t.Cleanup(func() {
		close(done)
		if conn != nil {
			conn.Close()
		}
		tasks.Wait()
	})
	return m
}

// tell sends datagrams to a group from a container.
func tell(t *testing.T, ns *linktest.NS, ifname string, group netip.AddrPort, times int) {
	ns.Do(func() {
		nic, err := net.InterfaceByName(ifname)
		must(t, err)
		family := unix.AF_INET
		var to unix.Sockaddr = &unix.SockaddrInet4{Port: int(group.Port()), Addr: [4]byte(group.Addr().AsSlice()[:4])}
		if group.Addr().Is6() {
			family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(group.Port()), Addr: group.Addr().As16(), ZoneId: uint32(nic.Index)}
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		defer unix.Close(fd)
		must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1))
		if family == unix.AF_INET {
			must(t, unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(nic.Index)}))
			must(t, unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, 5))
		} else {
			must(t, unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, nic.Index))
			must(t, unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 5))
		}
		for i := range times {
			if i%10 == 9 { // packet sockets hold few
				time.Sleep(5 * time.Millisecond)
			}
			must(t, unix.Sendto(fd, mark, 0, to))
		}
	})
}

// TestGroups: each member gets each datagram once, on the sender's host and on two others, with and without mode direct, and nobody else
// gets any; all are counted.
func TestGroups(t *testing.T) {
	for _, mode := range []string{"on", "direct"} {
		t.Run(mode, func(t *testing.T) {
			hosts := twoHosts
			if mode == "direct" {
				hosts = directHosts
			}
			a, b := hosts(t)
			c := newHost(t, "10.128.2.7")
			linktest.Wire(t, "eth1", a.NS, c.NS, []string{"10.7.0.1/24"}, []string{"10.7.0.2/24"})
			six := map[*host]string{a: "fd00:1::7", b: "fd00:2::7", c: "fd00:3::7"}
			for h, own := range six {
				h.container.Do(func() { linktest.Up(t, "gca", own+"/16") })
				h.in.Ports[0].OFPort = 3
				h.in.Ports[0].Addrs = append(h.in.Ports[0].Addrs, netip.MustParseAddr(own))
				h.in.Ports[0].Multicast = true
			}
			a.in.VTEPs = append(a.in.VTEPs, pipeline.VTEP{Addr: addrs("10.7.0.2")[0], Index: 2})
			c.in.VTEPs = []pipeline.VTEP{{Addr: addrs("10.7.0.1")[0], Index: 1}}
			c.in.Routes = []pipeline.Route{{Prefix: prefixes("10.128.0.0/24")[0], VNID: 5, VTEP: addrs("10.7.0.1")[0]}, {Prefix: prefixes("fd00:1::/64")[0], VNID: 5, VTEP: addrs("10.7.0.1")[0]}}
			b.in.Routes = append(b.in.Routes, pipeline.Route{Prefix: prefixes("fd00:1::/64")[0], VNID: 5, VTEP: addrs("10.9.0.1")[0]})
			for i, e := range []string{"b", "c", "d"} {
				own := fmt.Sprintf("10.128.0.%d", 20+i)
				a.in.Ports = append(a.in.Ports, pipeline.Port{OFPort: uint32(4 + i), MAC: macs[e], Addrs: addrs(own), VNID: 5, Endpoint: e, Plain: true, Multicast: true})
			}
			here := map[string]*linktest.NS{"b": a.newContainer("b", "10.128.0.20"), "c": a.newContainer("c", "10.128.0.21"), "d": a.newContainer("d", "10.128.0.22")}
			stranger := b.newContainer("d", "10.128.1.22")
			b.in.Ports = append(b.in.Ports, pipeline.Port{OFPort: 6, MAC: macs["d"], Addrs: addrs("10.128.1.22"), VNID: 5, Endpoint: "d", Plain: true, Multicast: true})
			for port, text := range map[uint16]string{5000: "239.1.2.3", 5001: "ff05::1234", 5002: "10.128.3.255"} {
				group := netip.AddrPortFrom(netip.MustParseAddr(text), port)
				from := addrs("10.128.0.7")[0]
				if group.Addr().Is6() {
					from = addrs("fd00:1::7")[0]
				}
				a.in.Groups = []pipeline.Group{{VNID: 5, Addr: group.Addr(), Ports: []uint32{3, 4, 5}, VTEPs: addrs("10.7.0.2", "10.9.0.2")}}
				b.in.Groups = []pipeline.Group{{VNID: 5, Addr: group.Addr(), Ports: []uint32{3}, VTEPs: addrs("10.9.0.1")}} // never back
				c.in.Groups = []pipeline.Group{{VNID: 5, Addr: group.Addr(), Ports: []uint32{3}}}
				for _, h := range []*host{a, b, c} {
					h.apply()
				}
				if !group.Addr().IsMulticast() { // the container's idea of its subnet
					a.container.Do(func() {
						l, err := netlink.LinkByName("gca")
						must(t, err)
						must(t, netlink.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: &net.IPNet{IP: group.Addr().AsSlice(), Mask: net.CIDRMask(32, 32)}, Type: unix.RTN_BROADCAST, Table: unix.RT_TABLE_LOCAL, Scope: unix.RT_SCOPE_LINK}))
					})
				}
				members := map[string]*member{
					"b": listen(t, here["b"], "gcb", group, true), "c": listen(t, here["c"], "gcc", group, true),
					"on another host": listen(t, b.container, "gca", group, true), "on a third": listen(t, c.container, "gca", group, true),
				}
				others := map[string]*member{"here": listen(t, here["d"], "gcd", group, false), "there": listen(t, stranger, "gcd", group, false)}
				before := tally(a).ToGroups[a.in.Groups[0].Key()].Packets
				const times = 60
				tell(t, a.container, "gca", group, times)
				ovstest.Eventually(t, 10*time.Second, func() error {
					var errs []error
					for who, m := range members {
						heard, wire := m.says(from)
						if wire != times || group.Addr().IsMulticast() && heard != times {
							errs = append(errs, fmt.Errorf("%s: member %s heard %d of %d datagrams, and got %d", text, who, heard, times, wire))
						}
					}
					return errors.Join(errs...)
				})
				for who, m := range others {
					if _, wire := m.says(from); wire != 0 {
						t.Errorf("%s: who is no member, %s, got %d datagrams", text, who, wire)
					}
				}
				if n := tally(a).ToGroups[a.in.Groups[0].Key()].Packets - before; n != times {
					t.Errorf("%s: %d were counted", text, n)
				}
				if n := tally(b).InGroups[b.in.Groups[0].Key()].Packets; n != times {
					t.Errorf("%s: %d were counted on the other host", text, n)
				}
				if n := tally(b).ToGroups[b.in.Groups[0].Key()].Packets; n != 0 {
					t.Errorf("%s: %d came back", text, n)
				}

				// The switch, which is not here, sees what a member gets that is not plain.
				a.in.Ports[2].Plain = false
				a.apply()
				tell(t, a.container, "gca", group, 5)
				if n := tally(a).ToGroups[a.in.Groups[0].Key()].Packets; n != 0 {
					t.Errorf("%s: %d were carried past a member that is not plain", text, n)
				}
				a.in.Ports[2].Plain = true
			}
		})
	}
}

// TestKilledBetweenGroups: while a container sends to a group, who its members are changes, and the agent is killed between any two writes.
func TestKilledBetweenGroups(t *testing.T) {
	a, b := twoHosts(t)
	a.in.Ports[0].OFPort, b.in.Ports[0].OFPort = 3, 3
	group := addrs("239.1.2.3")[0]
	b.in.Groups = []pipeline.Group{{VNID: 5, Addr: group, Ports: []uint32{3}}}
	b.apply()
	traffic := newTraffic(t)
	traffic.receive("b", a.newContainer("b", "10.128.0.20"), "gcb")
	traffic.receive("c", a.newContainer("c", "10.128.0.21"), "gcc")
	traffic.receive("there", b.container, "gca")
	a.in.Ports = append(a.in.Ports,
		pipeline.Port{OFPort: 4, MAC: macs["b"], Addrs: addrs("10.128.0.20"), VNID: 5, Endpoint: "b", Plain: true},
		pipeline.Port{OFPort: 5, MAC: macs["c"], Addrs: addrs("10.128.0.21"), VNID: 5, Endpoint: "c", Plain: true})
	state := func(edit func(*pipeline.Input), ports []uint32, vteps ...netip.Addr) pipeline.Input {
		in := a.in
		in.Ports = slices.Clone(in.Ports)
		in.Groups = []pipeline.Group{{VNID: 5, Addr: group, Ports: ports, VTEPs: vteps}}
		if edit != nil {
			edit(&in)
		}
		return in
	}
	from, there := state(nil, []uint32{4}), addrs("10.9.0.2")[0]
	a.container.Do(func() {
		l, err := netlink.LinkByName("gca")
		must(t, err)
		must(t, netlink.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4(239, 0, 0, 0), Mask: net.CIDRMask(8, 32)}}))
	})
	traffic.send(a.container, "239.1.2.3:9")
	for _, c := range []change{
		{"another container is the member", from, state(nil, []uint32{5}), "b", "c"},
		{"the member is on another host", from, state(nil, nil, there), "b", "there"},
		{"what the member gets is limited", from, state(func(in *pipeline.Input) { in.Ports[1].Plain = false }, []uint32{4}), "b", ""},
	} {
		a.changed(traffic, c)
	}
	traffic.judge()
}

// TestVerified: the steps of the kernel's check are few: it takes a million for a program, and an older kernel needs more than this one for the same.
func TestVerified(t *testing.T) {
	var objs bpfObjects
	must(t, loadBpfObjects(&objs, nil))
	defer objs.Close()
	programs := reflect.ValueOf(objs.bpfPrograms)
	for i := range programs.NumField() {
		info, err := programs.Field(i).Interface().(*ebpf.Program).Info()
		must(t, err)
		steps, known := info.VerifiedInstructions()
		if !known && os.Getenv("CI") == "" {
			t.Skip("this kernel does not tell how many steps it took")
		}
		if !known || steps > 60_000 {
			t.Errorf("the kernel needs %d steps to check %s", steps, programs.Type().Field(i).Name)
		}
	}
}
