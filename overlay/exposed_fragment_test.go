package overlay

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestExposedFragments: of a datagram in fragments, none of which has a port in Open vSwitch, all reach an exposed port
// from another host; so does its answer the host by which the client came, and what another host's exposed port answers
// the gateway of this one. To another port none does.
func TestExposedFragments(t *testing.T) {
	r := newRuled(t)
	tunnel := r.in.Ports[2].OFPort // that of c, who is the other host
	r.in.Ports, r.in.Tunnel, r.in.TunnelPort = r.in.Ports[:2], pipeline.HeaderBits, tunnel
	r.in.VTEPs = []pipeline.VTEP{{Addr: addr("192.0.2.2"), Index: 2}}
	r.in.Routes = []pipeline.Route{{Prefix: prefix("10.128.2.0/24"), VNID: 5, VTEP: addr("192.0.2.2")}}
	client, here, there := addr("198.51.100.1"), addr("10.128.0.7"), addr("10.128.2.9")
	r.in.Exposed = []pipeline.Exposed{{Addr: here, UDP: true, Port: 53, VNID: 5}, {Addr: there, UDP: true, Port: 53, VNID: 5}}
	r.enforce(pipeline.Policy{})
	a, c, gateway := packetSocket(t, "a"), packetSocket(t, "c"), gatewaySocket(t)

	// send sends a datagram in two fragments with these ports.
	id := uint32(0)
	send := func(by int, ethSrc, ethDst net.HardwareAddr, src, dst netip.Addr, from, to uint16) {
		t.Helper()
		id++
		first := firstFragment(src, dst, id, to)
		binary.BigEndian.PutUint16(first[34:], from)
		for _, f := range [][]byte{first, laterFragment(src, dst, id)} {
			copy(f, ethDst)
			copy(f[6:], ethSrc)
			if _, err := unix.Write(by, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	// arrive waits for the fragments of the datagram that was sent last, behind one of which none is to arrive.
	arrive := func(what string, at int) {
		t.Helper()
		got := 0
		ovstest.Eventually(t, time.Minute, func() error {
			if got += fragmentsOf(at); got < 2 {
				return fmt.Errorf("%s: %d of 2 fragments arrive", what, got)
			}
			return nil
		})
		if got != 2 {
			t.Errorf("%s: %d fragments arrive, want 2", what, got)
		}
	}
	src, dst := headerBits(0, 2)
	send(c, src, dst, client, here, 9, 54)
	send(c, src, dst, client, here, 9, 53)
	arrive("to an exposed port", a)
	fragmentsOf(c) // its own
	send(a, macOf('a'), pipeline.RouterMAC, here, client, 53, 9)
	arrive("its answer", c)
	fragmentsOf(gateway)
	send(gateway, gatewayMAC(t), pipeline.RouterMAC, client, here, 9, 5355)
	arrive("to another port, by this host's own gateway", a)

	src, dst = headerBits(5, 2)
	send(c, src, dst, addr("10.128.2.8"), client, 53, 9)
	send(c, src, dst, there, client, 53, 9)
	arrive("what another host's exposed port answers", gateway)
}

func gatewayMAC(t *testing.T) net.HardwareAddr {
	t.Helper()
	gv0, err := net.InterfaceByName("gv0")
	if err != nil {
		t.Fatal(err)
	}
	return gv0.HardwareAddr
}

// gatewaySocket is a socket of all frames that the switch gives the gateway.
func gatewaySocket(t *testing.T) int {
	t.Helper()
	gv0, err := net.InterfaceByName("gv0")
	if err != nil {
		t.Fatal(err)
	}
	all := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: gv0.Index}); err != nil {
		t.Fatal(err)
	}
	return fd
}
