package ovs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
)

// TestForgetMegaflows: what is forbidden does not go on by what the switch worked out before, where two of these are about one packet. Without
// ForgetMegaflows an Open vSwitch that confuses them goes on by it: that is shown first.
func TestForgetMegaflows(t *testing.T) {
	_, b := ovstest.Start(t)
	if b.Datapath != ovs.Userspace {
		// Also where CI is set: only who asks for the kernel's datapath (GRAPEVINE_OVSTEST_DATAPATH) comes by here. Every other run has the userspace one.
		t.Skip("it is the userspace datapath that confuses them")
	}
	version, err := b.Appctl(t.Context(), "version")
	if err != nil {
		t.Fatal(err)
	}
	for _, forget := range []bool{false, true} {
		stale := stalePackets(t, b, forget)
		t.Logf("forget %t: the megaflow of before %t, by %s", forget, stale, bytes.TrimSpace(version))
		if stale && forget {
			t.Error("what is forbidden goes on")
		}
		// Debian bookworm's has the fault: where this no longer shows it, it shows nothing.
		if !stale && !forget && strings.HasSuffix(strings.TrimSpace(string(version)), " 3.1.0") {
			t.Error("without it nothing is confused: the test shows little")
		}
	}
}

// stalePackets has two megaflows be about one packet, forbids both, and says whether either still lets packets through.
func stalePackets(t *testing.T, b *ovs.Bridge, forget bool) bool {
	t.Helper()
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	ovstest.Run(t, "ip", "link", "add", "from", "type", "veth", "peer", "name", "sender")
	ovstest.Run(t, "ip", "link", "add", "to", "type", "veth", "peer", "name", "receiver")
	defer func() {
		ovstest.Run(t, "ip", "link", "del", "from")
		ovstest.Run(t, "ip", "link", "del", "to")
		if err := b.Delete(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	for _, dev := range []string{"from", "sender", "to", "receiver"} {
		ovstest.Run(t, "ip", "link", "set", dev, "up")
		ovstest.Run(t, "sysctl", "-qw", "net.ipv6.conf."+dev+".disable_ipv6=1")
	}
	ovstest.Run(t, "ovs-vsctl", "--db=unix:"+b.DB, "add-port", b.Name, "from", "--", "set", "Interface", "from", "ofport_request=1",
		"--", "add-port", b.Name, "to", "--", "set", "Interface", "to", "ofport_request=2")
	send := sender(t, "sender")
	change := func(lines ...string) {
		t.Helper()
		if err := b.ApplyBundle(t.Context(), append([]string{"delete"}, lines...)); err != nil {
			t.Fatal(err)
		}
		if forget {
			if err := b.ForgetMegaflows(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ovstest.Settle(t, b)
	}
	megaflows := func() string {
		out, err := b.Appctl(t.Context(), "dpctl/dump-flows")
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	has := func(dst string) error {
		if flows := megaflows(); !strings.Contains(flows, "dst="+dst) {
			return fmt.Errorf("the switch has %s", flows)
		}
		return nil
	}
	// A megaflow of 10.1.2.0/24, which then is one that a wider rule made, and one of that rule's own, which is found first: there
	// were such wide ones before.
	wide := "add in_port=1,ip,nw_dst=10.9.0.0/16,actions=output:2"
	change(wide)
	send(net.IPv4(10, 9, 0, 2))
	ovstest.Eventually(t, time.Minute, func() error { return has("10.9.0.2/255.255.0.0") })
	change(wide, "add in_port=1,ip,nw_dst=10.1.2.0/24,actions=output:2")
	send(net.IPv4(10, 9, 0, 2))
	send(net.IPv4(10, 1, 2, 2))
	ovstest.Eventually(t, time.Minute, func() error { return has("10.1.2.2/255.255.255.0") })
	change(wide, "add in_port=1,ip,nw_dst=10.1.0.0/16,actions=output:2,in_port")
	send(net.IPv4(10, 1, 2, 2))
	send(net.IPv4(10, 1, 0, 2))
	ovstest.Eventually(t, time.Minute, func() error { return has("10.1.") })
	send(net.IPv4(10, 1, 2, 2))
	change(wide, "add in_port=1,ip,nw_dst=10.1.0.0/16,actions=drop")
	send(net.IPv4(10, 1, 2, 2))
	send(net.IPv4(10, 1, 0, 2))
	ovstest.Settle(t, b)
	t.Log(megaflows())
	stale := false
	for line := range strings.Lines(megaflows()) {
		if strings.Contains(line, "dst=10.1.") && !strings.Contains(line, "actions:drop") {
			stale = true
		}
	}
	return stale
}

// TestSettle: what is forbidden does not pass once Settle has returned, also where a container has made thousands of megaflows.
func TestSettle(t *testing.T) {
	_, b := ovstest.Start(t)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"from", "to"} {
		other := map[string]string{"from": "sender", "to": "receiver"}[name]
		ovstest.Run(t, "ip", "link", "add", name, "type", "veth", "peer", "name", other)
		t.Cleanup(func() { ovstest.Run(t, "ip", "link", "del", name) })
		ovstest.Run(t, "sysctl", "-qw", "net.ipv6.conf."+name+".disable_ipv6=1", "net.ipv6.conf."+other+".disable_ipv6=1")
		ovstest.Run(t, "ip", "link", "set", name, "up")
		ovstest.Run(t, "ip", "link", "set", other, "up")
	}
	ovstest.Run(t, "ovs-vsctl", "--db=unix:"+b.DB, "add-port", b.Name, "from", "--", "set", "Interface", "from", "ofport_request=1",
		"--", "add-port", b.Name, "to", "--", "set", "Interface", "to", "ofport_request=2")
	send, received := sender(t, "sender"), receiver(t, "receiver")
	asked := net.IPv4(10, 9, 0, 2)
	for _, settle := range []bool{false, true} {
		// Who reads the address has a megaflow for each.
		if err := b.ApplyBundle(t.Context(), []string{"delete", "add in_port=1,ip,actions=move:NXM_OF_IP_DST[]->NXM_NX_REG1[],output:2"}); err != nil {
			t.Fatal(err)
		}
		for i := range 8000 {
			send(net.IPv4(10, 8, byte(i>>8), byte(i)))
		}
		ovstest.Eventually(t, time.Minute, func() error {
			send(asked)
			if received(100*time.Millisecond)(asked) == 0 {
				return errors.New("nothing passes")
			}
			return nil
		})
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Microsecond):
					send(asked)
				}
			}
		}()
		if err := b.ApplyBundle(t.Context(), []string{"delete", "add in_port=1,ip,actions=drop"}); err != nil {
			t.Fatal(err)
		}
		if settle {
			if err := b.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		received(0) // what has passed before
		late := received(time.Second)(asked)
		close(stop)
		<-stopped
		t.Logf("settled %t: %d packets came late", settle, late)
		if settle && late > 0 {
			t.Errorf("%d packets of what is forbidden passed after the switch was said to forbid it", late)
		}
	}
}

// receiver returns a function that takes what comes to a device within a time, and says how much of it was for an address.
func receiver(t *testing.T, dev string) func(within time.Duration) func(net.IP) int {
	t.Helper()
	link, err := net.InterfaceByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(unix.ETH_P_IP)<<8&0xff00|int(unix.ETH_P_IP)>>8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Index, Protocol: unix.ETH_P_IP<<8&0xff00 | unix.ETH_P_IP>>8}); err != nil {
		t.Fatal(err)
	}
	return func(within time.Duration) func(net.IP) int {
		t.Helper()
		seen := map[string]int{}
		frame := make([]byte, 64)
		for end := time.Now().Add(within); ; {
			n, err := unix.Read(fd, frame)
			switch {
			case err == nil && n >= 34:
				seen[net.IP(frame[30:34]).String()]++
			case err != nil && !time.Now().Before(end):
				return func(to net.IP) int { return seen[to.String()] }
			case err != nil:
				time.Sleep(time.Millisecond)
			}
		}
	}
}

// sender returns a function that sends a packet of UDP to an address out of a device.
func sender(t *testing.T, dev string) func(to net.IP) {
	t.Helper()
	link, err := net.InterfaceByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	port := uint16(1000)
	return func(to net.IP) {
		t.Helper()
		port++
		frame := []byte{
			2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, // Ethernet
			0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 0, 0, 0, 0, // IPv4
			byte(port >> 8), byte(port), 0, 2, 0, 8, 0, 0, // UDP: the port differs, so that no packet is looked up by all of it
		}
		copy(frame[30:], to.To4())
		var sum uint32
		for i := 14; i < 34; i += 2 {
			sum += uint32(frame[i])<<8 | uint32(frame[i+1])
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		frame[24], frame[25] = byte(^sum>>8), byte(^sum)
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil {
			t.Fatal(fmt.Errorf("send a packet: %w", err))
		}
	}
}
