package fastpath

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/overlay/tunnel"
)

// host is a host without a switch: what it does not carry is lost, and seen to be.
type host struct {
	*linktest.NS
	t         *testing.T
	path      *Path
	container *linktest.NS
	in        pipeline.Input
	source    netip.Addr
	gateway   string
}

const mtu = 1400

// newHost makes a host with a container that has the address, in VNID 5.
func newHost(t *testing.T, addr string) *host {
	h := &host{NS: linktest.New(t), t: t}
	h.in = pipeline.Input{
		TunnelPort: 1,
		Ports:      []pipeline.Port{{MAC: macs["a"], Addrs: addrs(addr), VNID: 5, Endpoint: "a", Plain: true}},
		Subnets:    []pipeline.Subnet{{Prefix: prefixes("10.128.0.0/22")[0], VNID: 5}},
	}
	h.Do(func() {
		tun := tunnel.New(tunnel.Config{MTU: mtu})
		_, err := tun.Ensure(t.Context())
		must(t, err)
		must(t, tun.Close())
	})
	h.container = h.newContainer("a", addr)
	h.start()
	return h
}

// newContainer makes a container, of which the path knows nothing yet.
func (h *host) newContainer(endpoint, addr string) *linktest.NS {
	t, ns := h.t, linktest.New(h.t)
	h.Do(func() {
		must(t, link.Veth{Name: "gh" + endpoint, Peer: "gc" + endpoint, PeerMAC: macs[endpoint], MTU: mtu}.Ensure())
		must(t, link.Veth{Name: "gv" + endpoint, Peer: "gx" + endpoint, MTU: mtu}.Ensure())
		must(t, link.Splice("gh"+endpoint, "gx"+endpoint))
		peer, err := netlink.LinkByName("gc" + endpoint)
		must(t, err)
		must(t, netlink.LinkSetNsFd(peer, ns.FD()))
	})
	ns.Do(func() {
		linktest.Up(t, "gc"+endpoint, addr+"/16")
		eth, err := netlink.LinkByName("gc" + endpoint)
		must(t, err)
		for _, other := range addrs("10.128.0.7", "10.128.0.8", "10.128.1.7") { // nobody answers ARP here
			if other.String() == addr {
				continue
			}
			must(t, netlink.NeighSet(&netlink.Neigh{
				LinkIndex: eth.Attrs().Index, IP: other.AsSlice(), HardwareAddr: pipeline.RouterMAC, State: netlink.NUD_PERMANENT,
			}))
		}
	})
	return ns
}

// start is an agent that starts, after another one that is gone.
func (h *host) start() {
	h.t.Helper()
	h.path = New(Config{Tunnel: "gvvxlan", TunnelMTU: "gvvxlan", Prefix: "gh", Device: func(id string) string { return "gh" + id }, Source: h.source, Gateway: h.gateway})
	h.Do(func() { must(h.t, h.path.Start(false)) })
	h.t.Cleanup(func() { h.path.Close() })
}

func (h *host) apply() {
	h.t.Helper()
	h.Do(func() {
		must(h.t, h.path.Narrow(h.t.Context(), h.in))
		must(h.t, h.path.Widen(h.t.Context(), h.in))
		if _, trouble := h.path.On(); trouble != nil {
			h.t.Fatal(trouble)
		}
	})
}

func (h *host) programs() (n int) {
	h.Do(func() {
		for name, program := range map[string]string{"gha": endpointProgram, "gvvxlan": tunnelProgram} {
			id, err := link.AttachedTC(name, link.Ingress, program)
			must(h.t, err)
			if id != 0 {
				n++
			}
		}
	})
	return n
}

// ping sends five of a size, and returns how many were answered.
func (h *host) ping(to string, size int) (n int) {
	h.t.Helper()
	return ping(h.container, to, size)
}

func ping(from *linktest.NS, to string, size int) (n int) {
	from.Do(func() {
		out, _ := exec.Command("ping", "-M", "do", "-c", "5", "-i", "0.01", "-W", "1", "-s", strconv.Itoa(size), to).CombinedOutput()
		n = strings.Count(string(out), "bytes from")
	})
	return n
}

// twoHosts have a container each: 10.128.0.7 and 10.128.1.7.
func twoHosts(t *testing.T) (a, b *host) {
	a, b = newHost(t, "10.128.0.7"), newHost(t, "10.128.1.7")
	linktest.Wire(t, "eth0", a.NS, b.NS, []string{"10.9.0.1/24"}, []string{"10.9.0.2/24"})
	other := func(h *host, vtep, of string) {
		h.in.VTEPs = []pipeline.VTEP{{Addr: addrs(vtep)[0], Index: 1}}
		h.in.Routes = []pipeline.Route{{Prefix: prefixes(of)[0], VNID: 5, VTEP: addrs(vtep)[0]}}
		h.apply()
	}
	other(a, "10.9.0.2", "10.128.1.0/24")
	other(b, "10.9.0.1", "10.128.0.0/24")
	return a, b
}

// The other host knows an address that is not the one which the kernel would choose. Inside what encrypts, the kernel chooses.
func TestSource(t *testing.T) {
	if can, err := link.TunnelSource(); !can && os.Getenv("CI") == "" {
		t.Skip("this kernel takes no source:", err)
	}
	for _, c := range [][]string{{"10.9.0.2", "10.9.0.11", "10.9.0.11"}, {"fd09::2", "fd09::11", "fd09::11"}, {"fd67:7261:7065:1::2", "fd67:7261:7065:1::1", "fd09::11"}} {
		a, b := twoHosts(t)
		a.Do(func() { linktest.Up(t, "eth0", "10.9.0.11/24", "fd09::11/64", "fd09::1/64", "fd67:7261:7065:1::1/64") })
		b.Do(func() { linktest.Up(t, "eth0", "fd09::2/64", "fd67:7261:7065:1::2/64") })
		there, here := addrs(c[0])[0], addrs(c[1])[0]
		a.in.VTEPs[0].Addr, a.in.Routes[0].VTEP = there, there
		b.in.VTEPs[0].Addr, b.in.Routes[0].VTEP = here, here
		b.apply()
		a.apply()
		if n := a.ping("10.128.1.7", 56); n != 0 && c[1] == c[2] {
			t.Errorf("to %s: %d pings were answered without a source", there, n)
		}
		must(t, a.path.Close())
		a.source = addrs(c[2])[0]
		a.start()
		a.apply()
		if n := a.ping("10.128.1.7", 56); n != 5 {
			t.Errorf("from %s: %d of 5 pings were answered", here, n)
		}
	}
}

func TestCarries(t *testing.T) {
	a, b := twoHosts(t)
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Fatalf("%d of 5 pings between hosts were answered", n)
	}
	if n := a.ping("10.128.1.7", mtu-28); n != 5 {
		t.Errorf("%d of 5 pings that just fit were answered", n)
	}

	// Every packet is counted where it came from and where it went to.
	c, err := a.path.Tally()
	must(t, err)
	want := pipeline.Count{Packets: 10, Bytes: 5*(56+42) + 5*(mtu+14)}
	here, there := addrs("10.128.0.7")[0], prefixes("10.128.1.0/24")[0]
	for what, got := range map[string]pipeline.Count{
		"sent": c.From[here], "delivered": c.To[here], "into the tunnel": c.Into[there], "out of it": c.OutOf[there],
	} {
		if got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	if got, want := c.VNIDs[5], (pipeline.Count{Packets: 20, Bytes: 2 * want.Bytes}); got != want {
		t.Errorf("of the VNID: %+v, want %+v", got, want)
	}

	// Another VNID, and back: the counters of what stayed go on.
	b.in.Ports[0].VNID = 6
	b.apply()
	if n := a.ping("10.128.1.7", 56); n != 0 {
		t.Errorf("%d pings into another network were answered", n)
	}
	b.in.Ports[0].VNID = 0
	b.apply()
	if n := a.ping("10.128.1.7", 56); n != 0 {
		t.Errorf("%d pings were answered with a VNID that the range has not", n)
	}
	b.in.Ports[0].VNID = 5
	b.apply()
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Errorf("%d of 5 pings were answered when the VNIDs were equal again", n)
	}
	c, err = b.path.Tally()
	must(t, err)
	if who := addrs("10.128.1.7")[0]; c.To[who].Packets < 15 || c.From[who].Packets < 15 {
		t.Errorf("the other container was sent %+v and sent %+v", c.To[who], c.From[who])
	}
}

// The path outlives the agent; the next one finds it as it was, and its own programs
// take the place of the old ones.
func TestOutlivesTheAgent(t *testing.T) {
	a, _ := twoHosts(t)
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Fatalf("%d of 5 pings were answered", n)
	}
	must(t, a.path.Close())
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Errorf("%d of 5 pings were answered without an agent", n)
	}
	a.start()
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Errorf("%d of 5 pings were answered before the new agent knew anything", n)
	}
	a.apply()
	c, err := a.path.Tally()
	must(t, err)
	if who := addrs("10.128.0.7")[0]; c.From[who].Packets != 15 || c.To[who].Packets != 15 {
		t.Errorf("after a new agent the counters are %+v and %+v", c.From[who], c.To[who])
	}

	// An agent that ended half-way through: the next one begins with what is there.
	a.Do(func() {
		next := a.in
		next.Routes = nil
		must(t, a.path.Narrow(t.Context(), next))
	})
	must(t, a.path.Close())
	if n := a.ping("10.128.1.7", 56); n != 0 {
		t.Errorf("%d pings were carried that the flows to come do not", n)
	}
	a.start()
	a.apply()
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Errorf("%d of 5 pings were answered in the end", n)
	}
}

func TestStop(t *testing.T) {
	a, _ := twoHosts(t)
	if n := a.programs(); n != 2 {
		t.Fatalf("%d programs are attached", n)
	}
	a.Do(func() {
		must(t, a.path.Stop())
		must(t, a.path.Narrow(t.Context(), a.in))
		must(t, a.path.Widen(t.Context(), a.in))
	})
	if n := a.programs(); n != 0 {
		t.Errorf("%d programs are attached after Stop", n)
	}
	if n := a.ping("10.128.1.7", 56); n != 0 {
		t.Errorf("%d pings were carried after Stop", n)
	}
	a.Do(func() { must(t, a.path.Start(false)) })
	a.apply()
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Errorf("%d of 5 pings were answered after Start", n)
	}

	// A new agent with the path switched off removes the programs of the old one.
	must(t, a.path.Close())
	a.path = New(a.path.cfg)
	a.Do(func() { must(t, a.path.Stop()) })
	if n := a.programs(); n != 0 {
		t.Errorf("%d programs of a former agent are attached after Stop", n)
	}
}

// What somebody took away is lost until it is back, however often it is asked.
func TestLost(t *testing.T) {
	a, _ := twoHosts(t)
	lost := func() (names []string) {
		a.Do(func() { names = a.path.Lost() })
		return names
	}
	for range 2 {
		a.Do(func() { ovstest.Run(t, "tc", "qdisc", "del", "dev", "gha", "clsact") })
		for range 2 {
			if got := lost(); !slices.Equal(got, []string{"gha"}) {
				t.Errorf("lost is %q", got)
			}
		}
		a.apply()
		if got := lost(); got != nil {
			t.Errorf("after a pass %q is lost", got)
		}
		if n := a.programs(); n != 2 {
			t.Errorf("%d programs are attached", n)
		}
	}
}

// The sender of what the tunnel, or the container at the other end, cannot take is told
// so, and what it sends then gets through, in one piece or not.
func TestTooBig(t *testing.T) {
	const less = mtu - 100
	a, b := twoHosts(t)
	a.in.Subnets[0].Gateway = addrs("10.128.3.1")[0]
	a.apply()
	// What comes to b with a sum that is still to be made leaves it, as an answer, by a NIC that makes none.
	b.Do(func() { must(t, link.SetFeatures("eth0", map[string]bool{"tx-checksum-ip-generic": false})) })
	said := func(args ...string) (out string) {
		a.container.Do(func() {
			must(t, exec.Command("ip", "route", "flush", "cache").Run())
			text, _ := exec.Command("ping", append(args, "-c", "3", "-i", "0.05", "-W", "1", "10.128.1.7")...).CombinedOutput()
			out = string(text)
		})
		return out
	}
	for _, at := range []struct{ what, from string }{{"the tunnel", "10.128.3.1"}, {"the other container", "10.128.1.7"}} {
		if at.from == "10.128.3.1" {
			a.Do(func() { must(t, link.SetMTU("gvvxlan", less)) })
		} else {
			a.Do(func() { must(t, link.SetMTU("gvvxlan", mtu)) })
			b.Do(func() { must(t, link.SetMTU("gha", less)) })
		}
		if n := a.ping("10.128.1.7", less-28); n != 5 {
			t.Errorf("%s: %d of 5 pings that just fit were answered", at.what, n)
		}
		before, err := a.path.Tally()
		must(t, err)
		want := fmt.Sprintf("From %s icmp_seq=1 Frag needed and DF set (mtu = %d)", at.from, less)
		if out := said("-M", "do", "-s", strconv.Itoa(less-27)); !strings.Contains(out, want) {
			t.Errorf("%s: no %q in %s", at.what, want, out)
		}
		after, err := a.path.Tally()
		must(t, err)
		who := addrs("10.128.0.7")[0]
		if n := after.From[who].Packets - before.From[who].Packets; n != 1 {
			t.Errorf("%s: %d packets of the container were counted, 1 was answered", at.what, n)
		}
		// Without "don't fragment" the first one is lost, and the sender makes fragments then.
		if out := said("-M", "dont", "-s", strconv.Itoa(less-27)); strings.Count(out, "bytes from") != 2 {
			t.Errorf("%s: without DF: %s", at.what, out)
		}
		a.container.Do(func() { must(t, exec.Command("ip", "route", "flush", "cache").Run()) })
		a.transfer(b, "10.128.1.7:99", 1<<20)
	}
}

// transfer sends random bytes by TCP to a container of another host, which gets them as they were.
func (h *host) transfer(to *host, addr string, bytesToSend int) {
	h.t.Helper()
	transfer(h.t, h.container, to.container, addr, addr, bytesToSend)
}

// transfer sends random bytes by TCP, which arrive as they were.
func transfer(t *testing.T, from, to *linktest.NS, listen, dial string, bytesToSend int) {
	t.Helper()
	var l net.Listener
	to.Do(func() {
		var err error
		l, err = net.Listen("tcp", listen)
		must(t, err)
	})
	defer l.Close()
	data := make([]byte, bytesToSend)
	_, _ = rand.Read(data)
	got := make(chan []byte, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- nil
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(c)
		got <- all
	}()
	from.Do(func() {
		c, err := net.DialTimeout("tcp", dial, 5*time.Second)
		must(t, err)
		defer c.Close()
		must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		if n, err := c.Write(data); err != nil {
			t.Errorf("%d of %d bytes were sent: %v", n, len(data), err)
		}
	})
	select {
	case all := <-got:
		if !bytes.Equal(all, data) {
			t.Errorf("%d bytes arrived, not the %d that were sent", len(all), len(data))
		}
	case <-time.After(20 * time.Second):
		t.Errorf("%d bytes do not arrive", len(data))
	}
}

// A VLAN tag, which the kernel has taken off before the programs run, is the switch's.
func TestTagged(t *testing.T) {
	a, _ := twoHosts(t)
	var s *linktest.Socket
	a.container.Do(func() { s = linktest.Open(t, "gca") })
	from := addrs("10.128.0.7")[0]
	sent := func() uint64 {
		c, err := a.path.Tally()
		must(t, err)
		return c.From[from].Packets
	}
	frame := slices.Concat(pipeline.RouterMAC, macs["a"], []byte{8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0}, from.AsSlice(), addrs("10.128.1.7")[0].AsSlice())
	for _, tag := range [][]byte{{0x81, 0, 0, 0}, {0x81, 0, 0, 5}, {0x88, 0xa8, 0, 5}, {0x81, 0, 0, 5, 0x81, 0, 0, 6}} {
		s.Send(slices.Concat(frame[:12], tag, frame[12:]))
	}
	before := sent()
	s.Send(frame)
	ovstest.Eventually(t, 5*time.Second, func() error {
		if n := sent(); n != before+1 {
			return fmt.Errorf("%d packets were carried, want 1, that without a tag", n-before)
		}
		return nil
	})
	if before != 0 {
		t.Errorf("%d packets with a tag were carried", before)
	}
}

// The maps have IPv4 addresses as IPv6 ones (RFC 4291, 2.5.5.2). A packet of IPv6 that has such in its header is
// not one of IPv4: the switch drops it, and the programs leave it to that.
func TestMapped(t *testing.T) {
	a, _ := twoHosts(t)
	var s *linktest.Socket
	a.container.Do(func() { s = linktest.Open(t, "gca") })
	here, there, six := addrs("10.128.0.7")[0], addrs("10.128.1.7")[0], addrs("fd00:1::7")[0]
	sent := func() uint64 {
		c, err := a.path.Tally()
		must(t, err)
		return c.From[here].Packets + c.From[six].Packets
	}
	a.in.Ports[0].Addrs = append(a.in.Ports[0].Addrs, six)
	a.apply()
	for _, src := range []netip.Addr{here, six} {
		for _, dst := range []netip.Addr{there, addrs("fd00:2::1")[0]} {
			from, to := src.As16(), dst.As16()
			s.Send(slices.Concat(pipeline.RouterMAC, macs["a"], []byte{0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64}, from[:], to[:], []byte{0, 80, 0, 80, 0, 8, 0, 0}))
		}
	}
	before := sent()
	s.Send(slices.Concat(pipeline.RouterMAC, macs["a"], []byte{8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0}, here.AsSlice(), there.AsSlice()))
	ovstest.Eventually(t, 5*time.Second, func() error {
		if n := sent(); n != before+1 {
			return fmt.Errorf("%d packets were carried, want 1, that of IPv4", n-before)
		}
		return nil
	})
	if before != 0 {
		t.Errorf("%d packets of IPv6 were carried as if they were of IPv4", before)
	}
}

// What somebody lets a container receive, by a qdisc at the host's end of its veth, it receives no faster:
// bpf_redirect_peer would pass that by.
func TestShaped(t *testing.T) {
	h := newHost(t, "10.128.0.7")
	other := h.newContainer("b", "10.128.0.8")
	h.in.Ports = append(h.in.Ports, pipeline.Port{MAC: macs["b"], Addrs: addrs("10.128.0.8"), VNID: 5, Endpoint: "b", Plain: true})
	h.apply()
	if n := h.ping("10.128.0.8", 56); n != 5 {
		t.Fatalf("%d of 5 pings were answered", n)
	}
	run(t, h.NS, "tc qdisc add dev ghb root tbf rate 1gbit burst 100k latency 50ms")
	h.apply()
	if !silent(h.container, "10.128.0.8") || !silent(other, "10.128.0.7") {
		t.Error("pings were answered past somebody's qdisc")
	}
	run(t, h.NS, "tc qdisc del dev ghb root")
	h.apply()
	if n := h.ping("10.128.0.8", 56); n != 5 {
		t.Errorf("%d of 5 pings were answered without the qdisc", n)
	}
}

// Open vSwitch may make its tunnel device anew: what the old one would have carried
// goes on meanwhile.
func TestTunnelIsGone(t *testing.T) {
	a, _ := twoHosts(t)
	before, err := a.path.Tally()
	must(t, err)
	config := a.path.config
	config.Tunnel = 4242
	must(t, a.path.objs.GvConfig.Put(uint32(0), config))
	a.ping("10.128.1.7", 56)
	after, err := a.path.Tally()
	must(t, err)
	if who := netip.MustParseAddr("10.128.0.7"); before.From[who] != after.From[who] {
		t.Error("packets were sent to a device that is gone")
	}
}

// TestIndexRests: the maps go on naming a device that has gone while there was no agent. The kernel does not give
// its index to the next one that comes, as Open vSwitch's datapath does with the numbers of ports: what is for
// the container that has gone reaches nobody.
func TestIndexRests(t *testing.T) {
	a, b := twoHosts(t)
	if n := b.ping("10.128.0.7", 56); n != 5 {
		t.Fatalf("%d of 5 pings were answered", n)
	}
	must(t, a.path.Close())
	a.Do(func() {
		gone, err := netlink.LinkByName("gha")
		must(t, err)
		must(t, netlink.LinkDel(gone))
	})
	next := a.newContainer("b", "10.128.0.7") // of another network, with the same address
	received := func() (n uint64) {
		next.Do(func() {
			l, err := netlink.LinkByName("gcb")
			must(t, err)
			n = l.Attrs().Statistics.RxPackets
		})
		return n
	}
	before := received()
	if n := b.ping("10.128.0.7", 56); n != 0 {
		t.Errorf("%d pings were answered by a container that came later", n)
	}
	if n := received() - before; n != 0 {
		t.Errorf("a container that came later has received %d packets", n)
	}
}
