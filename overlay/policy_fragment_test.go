package overlay

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// expired is the count of fragments that the userspace datapath let go of after they
// had waited in vain for their rest.
var expired = regexp.MustCompile(`frags expired: (\d+)`)

// TestPolicyFragmentsWithoutEnd: fragments whose rest never comes are at last let go of
// by the userspace datapath beside another packet, with that packet's registers. They
// reach nobody whom their own would not reach.
func TestPolicyFragmentsWithoutEnd(t *testing.T) {
	r := newRuled(t)
	if r.bridge.Datapath == ovs.Kernel {
		t.Skip("the kernel drops fragments that waited in vain, and has no such count")
	}
	serve(t, "b", 80)
	r.enforce(r.policy("b", 1, lets(1, 2, pipeline.PortRange{Proto: 17, From: 80, To: 80})...))
	out, seen := packetSocket(t, "a"), packetSocket(t, "b")

	const each = 20
	for id := range uint32(each) {
		for _, frame := range [][]byte{firstFragment(addr("10.128.0.7"), addr("10.128.0.8"), id, 81), firstFragment(addr("fd00:1::7"), addr("fd00:1::8"), id, 81)} {
			if _, err := unix.Write(out, frame); err != nil {
				t.Fatal(err)
			}
		}
	}
	c, err := call(t, "a", "udp", "10.128.0.8:80", long)
	if err != nil {
		t.Fatal(err)
	}
	arrived := 0
	ovstest.Eventually(t, 2*time.Minute, func() error {
		// Let through, and what waited in vain is let go of beside it.
		if err := comesBack(c, long); err != nil {
			t.Fatal(err)
		}
		arrived += fragmentsOf(seen)
		status, err := r.bridge.Appctl(t.Context(), "dpctl/ipf-get-status")
		if err != nil {
			t.Fatal(err)
		}
		gone := 0
		for _, m := range expired.FindAllSubmatch([]byte(status), -1) {
			n, err := strconv.Atoi(string(m[1]))
			if err != nil {
				t.Fatal(err)
			}
			gone += n
		}
		if gone < 2*each {
			return fmt.Errorf("%d of %d fragments were let go of:\n%s", gone, 2*each, status)
		}
		return nil
	})
	// What came with the last of them is there when the next answer is.
	if err := comesBack(c, long); err != nil {
		t.Fatal(err)
	}
	if arrived += fragmentsOf(seen); arrived > 0 {
		t.Errorf("%d fragments for a port that no rule lets through arrived", arrived)
	}
}

// packetSocket is a socket of all frames of a container's interface.
func packetSocket(t *testing.T, container string) (fd int) {
	t.Helper()
	err := inNetns(t, container, func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all)); err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: eth0.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// fragmentsOf counts the fragments among the frames that a socket has.
func fragmentsOf(fd int) (n int) {
	frame := make([]byte, 4096)
	for {
		size, err := unix.Read(fd, frame)
		if err != nil {
			return n
		}
		switch {
		case size > 34 && binary.BigEndian.Uint16(frame[12:]) == unix.ETH_P_IP && binary.BigEndian.Uint16(frame[20:])&0x3fff != 0:
			n++
		case size > 54 && binary.BigEndian.Uint16(frame[12:]) == unix.ETH_P_IPV6 && frame[20] == unix.IPPROTO_FRAGMENT:
			n++
		}
	}
}

// firstFragment is the frame of a datagram's first fragment, from a to b, of more bytes
// than the least that the datapath takes (1200 of IPv4, 1280 of IPv6).
func firstFragment(src, dst netip.Addr, id uint32, port uint16) []byte {
	const size = 1400
	frame := append(append([]byte{}, macOf('b')...), macOf('a')...)
	if src.Is4() {
		frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_IP)
		h := make([]byte, 20)
		h[0], h[8], h[9] = 0x45, 64, unix.IPPROTO_UDP
		binary.BigEndian.PutUint16(h[2:], 20+size)
		binary.BigEndian.PutUint16(h[4:], uint16(id))
		binary.BigEndian.PutUint16(h[6:], 0x2000) // more fragments
		copy(h[12:], src.AsSlice())
		copy(h[16:], dst.AsSlice())
		sum := uint32(0)
		for i := 0; i < len(h); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(h[i:]))
		}
		binary.BigEndian.PutUint16(h[10:], ^uint16(sum>>16+sum&0xffff))
		frame = append(frame, h...)
	} else {
		frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_IPV6)
		h := make([]byte, 48)
		h[0], h[6], h[7] = 0x60, unix.IPPROTO_FRAGMENT, 64
		binary.BigEndian.PutUint16(h[4:], 8+size)
		copy(h[8:], src.AsSlice())
		copy(h[24:], dst.AsSlice())
		h[40], h[43] = unix.IPPROTO_UDP, 1 // more fragments
		binary.BigEndian.PutUint32(h[44:], id)
		frame = append(frame, h...)
	}
	udp := make([]byte, size)
	binary.BigEndian.PutUint16(udp, 40000)
	binary.BigEndian.PutUint16(udp[2:], port)
	binary.BigEndian.PutUint16(udp[4:], 2*size)
	return append(frame, udp...)
}
