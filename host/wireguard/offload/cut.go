package offload

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var be = binary.BigEndian

// Where fields are in their headers, and how long these are at least.
const (
	ip4Len, ip6Len, udpLen, tcpLen = 20, 40, 8, 20

	ip4Total, ip4ID, ip4Fragment, ip4Protocol, ip4Check, ip4From = 2, 4, 6, 9, 10, 12

	ip6Payload, ip6Next, ip6From = 4, 6, 8

	udpLength, udpCheck = 4, 6

	tcpSeq, tcpAck, tcpOffset, tcpFlags, tcpWindow, tcpCheck, tcpUrgent = 4, 8, 12, 13, 14, 16, 18

	protocolTCP, protocolUDP = 6, 17
)

// TCP's flags.
const (
	fin = 1 << iota
	syn
	rst
	psh
	ack
	urg
	ece
	cwr
)

// cut is a packet of the kernel's that is being cut into those that go on the wire. It is pure.
type cut struct {
	packet             []byte
	udp, ip, tcp, data int  // where these begin; udp is 0 without a tunnel
	size               int  // of payload in each
	checked            bool // the UDP around has a checksum
	pseudo, outer      uint64
	n, at              int // how many are cut, and where the payload of the next one begins
}

var errNotTCP = errors.New("it is neither TCP nor TCP in a UDP tunnel")

// begin looks at all that is relied on later. A packet that has not what its header says is an error.
func begin(h header, packet []byte) (c cut, err error) {
	kind := h.gso &^ (ecn | tunnel4 | tunnel6)
	if kind != tcp4 && kind != tcp6 {
		return c, fmt.Errorf("%w: type %#x", errNotTCP, h.gso)
	}
	c = cut{packet: packet, udp: int(h.outer), ip: int(h.inner), tcp: int(h.csumStart), size: int(h.size), checked: h.flags&tunnelChecksum != 0}
	if h.flags&needsChecksum == 0 || h.csumOffset != tcpCheck || h.size == 0 {
		return c, fmt.Errorf("%w: flags %#x, checksum at %d, size %d", errNotTCP, h.flags, h.csumOffset, h.size)
	}
	tunnel := h.gso & (tunnel4 | tunnel6)
	if tunnel == 0 {
		c.udp, c.ip, c.checked = 0, 0, false
	} else if c.udp < ip4Len || c.ip < c.udp+udpLen || (c.tcp-c.udp)%2 != 0 {
		return c, fmt.Errorf("the tunnel's UDP is at %d, IP in it at %d, TCP at %d", c.udp, c.ip, c.tcp)
	}
	if c.ip > c.tcp || c.tcp+tcpLen > len(packet) {
		return c, errShort
	}
	if !ipFits(packet[c.ip:c.tcp], kind == tcp6, protocolTCP) {
		return c, errors.New("IP before TCP is not as said")
	}
	if tunnel != 0 && !ipFits(packet[:c.udp], tunnel == tunnel6, protocolUDP) {
		return c, errors.New("the tunnel's IP is not as said")
	}
	if c.data = c.tcp + int(packet[c.tcp+tcpOffset]>>4)*4; c.data < c.tcp+tcpLen || c.data >= len(packet) {
		return c, fmt.Errorf("the payload of TCP is at %d of %d bytes", c.data, len(packet))
	}
	if len(packet) > 0xffff+ip6Len {
		return c, fmt.Errorf("it has %d bytes", len(packet))
	}
	c.at = c.data
	c.pseudo = pseudo(packet[c.ip:], protocolTCP)
	if c.checked {
		c.outer = plus(pseudo(packet, protocolUDP), uint64(^fold(c.pseudo)))
	}
	return c, nil
}

// ipFits says that there is an IP header of that version which ends where the transport begins.
func ipFits(b []byte, v6 bool, protocol byte) bool {
	if v6 { // headers of extensions stay as they are
		return len(b) >= ip6Len && b[0]>>4 == 6 && (len(b) > ip6Len || b[ip6Next] == protocol)
	}
	return len(b) >= ip4Len && b[0]>>4 == 4 && int(b[0]&15)*4 == len(b) && b[ip4Protocol] == protocol
}

// pseudo is the sum of the addresses and the protocol, without the length.
func pseudo(ip []byte, protocol byte) uint64 {
	if ip[0]>>4 == 4 {
		return sum(ip[ip4From:ip4Len], uint64(protocol))
	}
	return sum(ip[ip6From:ip6Len], uint64(protocol))
}

// left says that there is another one.
func (c *cut) left() bool { return c.at < len(c.packet) }

// next writes the next one to b and returns its length; b is long enough for the headers and size more.
func (c *cut) next(b []byte) (n int, err error) {
	end := min(c.at+c.size, len(c.packet))
	n = c.data + end - c.at
	if len(b) < n {
		return 0, fmt.Errorf("a packet of %d bytes does not fit in %d", n, len(b))
	}
	b = b[:n]
	copy(b, c.packet[:c.data])
	copy(b[c.data:], c.packet[c.at:end])

	tcp := b[c.tcp:]
	be.PutUint32(tcp[tcpSeq:], be.Uint32(tcp[tcpSeq:])+uint32(c.at-c.data))
	if c.n > 0 {
		tcp[tcpFlags] &^= cwr
	}
	if end < len(c.packet) {
		tcp[tcpFlags] &^= fin | psh
	}
	lengthen(b[c.ip:], c.n)
	tcp[tcpCheck], tcp[tcpCheck+1] = 0, 0
	inner := plus(c.pseudo, uint64(len(tcp)))
	be.PutUint16(tcp[tcpCheck:], ^fold(sum(tcp, inner)))

	if c.udp > 0 {
		lengthen(b, c.n)
		udp := b[c.udp:]
		be.PutUint16(udp[udpLength:], uint16(len(udp)))
		udp[udpCheck], udp[udpCheck+1] = 0, 0
		if c.checked { // all from TCP on has the inverse sum of its pseudo header
			s := plus(c.outer, uint64(len(udp)))
			s = plus(s, uint64(^uint16(len(tcp))))
			be.PutUint16(udp[udpCheck:], udpChecksum(sum(b[c.udp:c.tcp], s)))
		}
	}
	c.at, c.n = end, c.n+1
	return n, nil
}

// lengthen gives an IP packet its length, and the n-th of several its ID.
func lengthen(ip []byte, n int) {
	if ip[0]>>4 == 6 {
		be.PutUint16(ip[ip6Payload:], uint16(len(ip)-ip6Len))
		return
	}
	be.PutUint16(ip[ip4Total:], uint16(len(ip)))
	be.PutUint16(ip[ip4ID:], be.Uint16(ip[ip4ID:])+uint16(n))
	check4(ip)
}

// check4 gives an IPv4 header its checksum.
func check4(ip []byte) {
	ip[ip4Check], ip[ip4Check+1] = 0, 0
	be.PutUint16(ip[ip4Check:], ^fold(sum(ip[:int(ip[0]&15)*4], 0)))
}

// fill puts the checksum in that the kernel has left to whoever sends on.
func fill(h header, packet []byte) error {
	if h.flags&needsChecksum == 0 {
		return nil
	}
	from, at := int(h.csumStart), int(h.csumStart)+int(h.csumOffset)
	if at+2 > len(packet) {
		return fmt.Errorf("its checksum is at %d of %d bytes", at, len(packet))
	}
	c := ^fold(sum(packet[from:], 0))
	if h.csumOffset == udpCheck && c == 0 {
		c = 0xffff
	}
	be.PutUint16(packet[at:], c)
	return nil
}
