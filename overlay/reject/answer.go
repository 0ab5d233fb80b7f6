package reject

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

const (
	ethernet = 14
	tcpBytes = 20
	quoted   = 64 // the most of a packet's payload that an ICMP error quotes; RFC 792 asks for 8

	icmp, tcp, icmpv6 = 1, 6, 58

	fin, syn, rst, ack = 1, 2, 4, 16
)

// packet is what an answer is made of.
type packet struct {
	src, dst netip.Addr
	proto    uint8
	ip       []byte // from the IP header on, as far as it was read
	header   int    // bytes of the IP header
	length   int    // bytes of the whole IP packet
}

// Answer is the frame that tells the sender of a frame that it is rejected, and who that is; nil, if nobody may be told so.
// It looks for itself at what the switch should have seen already: never a RST or an ICMP error is answered, nor a fragment,
// nor what is not from one and for one. The frame may be cut off behind the headers.
func Answer(frame []byte) (answer []byte, sender netip.Addr) {
	p, ok := read(frame)
	if !ok || !single(p.src) || !single(p.dst) {
		return nil, p.src
	}
	var body []byte
	switch p.proto {
	case tcp:
		if body = p.reset(); body == nil {
			return nil, p.src
		}
		p.checksum(tcp, body, 16)
	default:
		if (p.proto == icmp || p.proto == icmpv6) && (len(p.body()) == 0 || p.body()[0] != map[uint8]byte{icmp: 8, icmpv6: 128}[p.proto]) {
			return nil, p.src
		}
		body = p.prohibited()
	}
	return p.frame(body), p.src
}

// single reports whether an address is one interface's.
func single(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// read finds an IP packet that is no fragment. Of IPv6 what stands behind an extension header is not looked for: it might be
// an error (RFC 8200, 4.1, and what IANA has made one since).
func read(frame []byte) (p packet, ok bool) {
	if len(frame) < ethernet+20 {
		return p, false
	}
	p.ip = frame[ethernet:]
	switch be := binary.BigEndian; be.Uint16(frame[12:]) {
	case 0x0800:
		p.header, p.length, p.proto = int(p.ip[0]&15)*4, int(be.Uint16(p.ip[2:])), p.ip[9]
		p.src, p.dst = netip.AddrFrom4([4]byte(p.ip[12:])), netip.AddrFrom4([4]byte(p.ip[16:]))
		if p.ip[0]>>4 != 4 || p.header < 20 || be.Uint16(p.ip[6:])&0x3fff != 0 || p.proto == icmpv6 {
			return p, false
		}
	case 0x86dd:
		if len(p.ip) < 40 {
			return p, false
		}
		p.header, p.length, p.proto = 40, 40+int(be.Uint16(p.ip[4:])), p.ip[6]
		p.src, p.dst = netip.AddrFrom16([16]byte(p.ip[8:])), netip.AddrFrom16([16]byte(p.ip[24:]))
		if p.ip[0]>>4 != 6 || p.proto == icmp || slices.Contains([]uint8{0, 43, 44, 51, 59, 60, 135, 139, 140, 253, 254}, p.proto) {
			return p, false
		}
	default:
		return p, false
	}
	if p.length < p.header || len(p.ip) < p.header {
		return p, false
	}
	p.ip = p.ip[:min(len(p.ip), p.length)]
	return p, true
}

func (p packet) body() []byte { return p.ip[p.header:] }

// reset is a TCP header (RFC 9293, 3.10.7.1).
func (p packet) reset() []byte {
	h, be := p.body(), binary.BigEndian
	if len(h) < tcpBytes || h[13]&rst != 0 {
		return nil
	}
	data := p.length - p.header - int(h[12]>>4)*4
	if h[12]>>4 < 5 || data < 0 {
		return nil
	}
	out := append(append(make([]byte, 0, tcpBytes), h[2:4]...), h[:2]...)
	if h[13]&ack != 0 {
		out = append(append(out, h[8:12]...), 0, 0, 0, 0, 5<<4, rst)
	} else {
		next := be.Uint32(h[4:]) + uint32(data)
		for _, flag := range []byte{syn, fin} {
			if h[13]&flag != 0 {
				next++
			}
		}
		out = append(be.AppendUint32(append(out, 0, 0, 0, 0), next), 5<<4, rst|ack)
	}
	return append(out, 0, 0, 0, 0, 0, 0)
}

// prohibited is an ICMP error with what it is about (RFC 792; RFC 4443, 3.1).
func (p packet) prohibited() []byte {
	quote := p.ip[:min(len(p.ip), p.header+quoted)]
	if p.src.Is4() {
		out := append([]byte{3, 13, 0, 0, 0, 0, 0, 0}, quote...)
		binary.BigEndian.PutUint16(out[2:], ^fold(sum(0, out)))
		return out
	}
	out := append([]byte{1, 1, 0, 0, 0, 0, 0, 0}, quote...)
	p.checksum(icmpv6, out, 2)
	return out
}

// checksum writes the answer's checksum, which is over the addresses as well.
func (p packet) checksum(proto uint8, body []byte, at int) {
	s := sum(uint32(proto)+uint32(len(body)), p.src.AsSlice())
	binary.BigEndian.PutUint16(body[at:], ^fold(sum(sum(s, p.dst.AsSlice()), body)))
}

// frame puts the headers before the body of an answer.
func (p packet) frame(body []byte) []byte {
	be := binary.BigEndian
	out := append(make([]byte, 0, ethernet+40+len(body)), pipeline.RouterMAC...)
	out = append(out, pipeline.RejectMAC...)
	if p.src.Is6() {
		out = append(out, 0x86, 0xdd, 6<<4, 0, 0, 0)
		out = append(be.AppendUint16(out, uint16(len(body))), answering(p.proto, icmpv6), 64)
		out = append(append(out, p.dst.AsSlice()...), p.src.AsSlice()...)
		return append(out, body...)
	}
	out = append(out, 0x08, 0x00)
	header := be.AppendUint16([]byte{4<<4 | 5, 0}, uint16(20+len(body)))
	header = append(header, 0, 0, 0x40, 0, 64, answering(p.proto, icmp), 0, 0) // DF: RFC 6864, 4.1
	header = append(append(header, p.dst.AsSlice()...), p.src.AsSlice()...)
	be.PutUint16(header[10:], ^fold(sum(0, header)))
	return append(append(out, header...), body...)
}

// answering is the protocol that answers one, of a family whose ICMP is given.
func answering(proto, icmp uint8) uint8 {
	if proto == tcp {
		return tcp
	}
	return icmp
}

// sum adds up 16-bit words (RFC 1071); fold makes 16 bits of it.
func sum(s uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) > 0 {
		s += uint32(b[0]) << 8
	}
	return s
}

func fold(s uint32) uint16 {
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}
