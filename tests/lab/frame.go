package lab

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// framer sends frames that no well-behaved sender would, out of the namespace's one
// interface.
type framer struct {
	fd  int
	dev net.Interface
}

func newFramer() (*framer, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, dev := range all {
		if dev.Flags&net.FlagLoopback == 0 && len(dev.HardwareAddr) == 6 {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // 0: it receives nothing
			return &framer{fd, dev}, err
		}
	}
	return nil, errors.New("this network namespace has no Ethernet interface")
}

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// send sends a datagram of the witnesses' port from and to these addresses in a frame from
// and to those. What cannot be sent does not arrive.
func (f *framer) send(dst, src net.HardwareAddr, from, to netip.Addr, payload []byte) {
	_ = unix.Sendto(f.fd, datagramFrame(dst, src, from, to, payload), 0, &unix.SockaddrLinklayer{Ifindex: f.dev.Index})
}

// datagramFrame is an Ethernet frame with an IPv4 packet (RFC 791) with a UDP datagram (RFC
// 768) that has no checksum.
func datagramFrame(dst, src net.HardwareAddr, from, to netip.Addr, payload []byte) []byte {
	const ethernet, ip, udp = 14, 20, 8
	b := make([]byte, ethernet+ip+udp, ethernet+ip+udp+len(payload))
	copy(b, dst)
	copy(b[6:], src)
	binary.BigEndian.PutUint16(b[12:], unix.ETH_P_IP)
	p := b[ethernet:]
	p[0] = 0x45
	binary.BigEndian.PutUint16(p[2:], uint16(ip+udp+len(payload)))
	p[8], p[9] = 64, unix.IPPROTO_UDP
	copy(p[12:], from.AsSlice())
	copy(p[16:], to.AsSlice())
	sum := uint32(0)
	for i := 0; i < ip; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum+sum>>16))
	binary.BigEndian.PutUint16(p[ip:], witnessPort)
	binary.BigEndian.PutUint16(p[ip+2:], witnessPort)
	binary.BigEndian.PutUint16(p[ip+4:], uint16(udp+len(payload)))
	return append(b, payload...)
}
