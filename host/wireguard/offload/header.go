// Package offload is a TUN device that takes TCP in a UDP tunnel whole. From Linux 6.17 on the kernel gives VXLAN of up
// to 64 kB in one read, and the process cuts it into the packets that go on the wire. It also takes such a packet in one
// write, if the process has joined those that came. wireguard-go's own device does not know tunnels: each packet is a
// system call there.
package offload

import (
	"encoding/binary"
	"errors"
)

// headerLen is the length of what stands before each packet: struct virtio_net_hdr_v1_hash_tunnel of linux/virtio_net.h.
const headerLen = 24

// Flags and types of it.
const (
	needsChecksum  = 1 // from csumStart on, to be put at csumOffset from there; what is there is that of the pseudo header
	tunnelChecksum = 8 // the UDP around has a checksum, too

	noGSO   = 0
	tcp4    = 1
	tcp6    = 4
	tunnel4 = 0x20 // in UDP over IPv4
	tunnel6 = 0x40
	ecn     = 0x80 // the first of them alone has CWR
)

// header is what the kernel and the process say to each other of a packet. Offsets are from the packet's begin.
type header struct {
	flags, gso            uint8
	headers, size         uint16 // bytes before the payload, as a hint; bytes of payload in each packet
	csumStart, csumOffset uint16 // of the inner transport
	outer, inner          uint16 // of the outer transport and of the inner IP, in a tunnel
}

var errShort = errors.New("it is shorter than its header")

func (h *header) decode(b []byte) error {
	if len(b) < headerLen {
		return errShort
	}
	le := binary.LittleEndian
	*h = header{b[0], b[1], le.Uint16(b[2:]), le.Uint16(b[4:]), le.Uint16(b[6:]), le.Uint16(b[8:]), le.Uint16(b[20:]), le.Uint16(b[22:])}
	return nil
}

// encode writes it to b, whose rest is zero.
func (h *header) encode(b []byte) {
	le := binary.LittleEndian
	b[0], b[1] = h.flags, h.gso
	for i, v := range []uint16{h.headers, h.size, h.csumStart, h.csumOffset} {
		le.PutUint16(b[2+2*i:], v)
	}
	le.PutUint16(b[20:], h.outer)
	le.PutUint16(b[22:], h.inner)
}
