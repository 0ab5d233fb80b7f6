package overlay

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// wire is the far end of the tunnel's device: it sends and receives frames with
// header bits, as the tunnel's tc programs do.
type wire struct {
	t  *testing.T
	fd int
}

func openWire(t *testing.T, ifname string) wire {
	t.Helper()
	ifi, err := net.InterfaceByName(ifname)
	if err != nil {
		t.Fatal(err)
	}
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifi.Index}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}); err != nil {
		t.Fatal(err)
	}
	return wire{t, fd}
}

func (w wire) send(frame []byte) {
	w.t.Helper()
	if _, err := unix.Write(w.fd, frame); err != nil {
		w.t.Fatal(err)
	}
}

// receive returns the first ICMP frame from src to dst within the time, or nil. id
// is the echo's; 0: any.
func (w wire) receive(src, dst netip.Addr, id uint16, within time.Duration) []byte {
	w.t.Helper()
	buf := make([]byte, 2048)
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		n, from, err := unix.Recvfrom(w.fd, buf, 0)
		if err != nil {
			continue // the timeout
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		f := buf[:n]
		if n >= 42 && f[12] == 8 && f[13] == 0 && f[23] == 1 &&
			(id == 0 || binary.BigEndian.Uint16(f[38:]) == id) &&
			netip.AddrFrom4([4]byte(f[26:30])) == src && netip.AddrFrom4([4]byte(f[30:34])) == dst {
			return f
		}
	}
	return nil
}

// echo is an ICMP echo request (RFC 792) between the addresses.
func echo(ethSrc, ethDst net.HardwareAddr, src, dst netip.Addr, id uint16) []byte {
	f := append(append(append([]byte{}, ethDst...), ethSrc...), 8, 0)
	ip := []byte{0x45, 0, 0, 28, 0, 1, 0, 0, 64, 1, 0, 0}
	ip = append(append(ip, src.AsSlice()...), dst.AsSlice()...)
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	icmp := []byte{8, 0, 0, 0, byte(id >> 8), byte(id), 0, 1}
	binary.BigEndian.PutUint16(icmp[2:], checksum(icmp))
	return append(append(f, ip...), icmp...)
}

// checksum is RFC 1071's.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// headerBits is the source and destination MAC of a frame of the tunnel.
func headerBits(vnid, vtep uint32) (src, dst net.HardwareAddr) {
	v, i := binary.BigEndian.AppendUint32(nil, vnid), binary.BigEndian.AppendUint32(nil, vtep)
	return append(net.HardwareAddr{2, 0, 0}, v[1:]...), append(net.HardwareAddr{2, 1}, i...)
}
