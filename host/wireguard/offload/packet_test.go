package offload

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
)

// shape is how a packet of TCP is, in VXLAN or without.
type shape struct {
	outer   int // the version of IP around: 4, 6, 0 without a tunnel
	checked bool
	inner   int
	df      bool
	options int // bytes, of four
	flags   byte
	size    int // of payload in each
	payload int
	seq     uint32
	id      uint16
	port    uint16
	vni     uint32
}

func anyShape(r *rand.Rand) shape {
	s := shape{
		outer: []int{6, 6, 6, 4, 0}[r.IntN(5)], inner: []int{4, 6}[r.IntN(2)], checked: r.IntN(4) > 0, df: r.IntN(2) > 0, options: 4 * r.IntN(11),
		flags: ack | []byte{0, psh, fin, psh | fin, ece, cwr, cwr | psh}[r.IntN(7)], size: 1 + r.IntN(1400), seq: r.Uint32(), id: uint16(r.Uint32()),
		port: uint16(1 + r.IntN(60000)), vni: r.Uint32N(1 << 24),
	}
	if s.outer == 0 {
		s.checked = false
	}
	s.payload = s.size + 1 + r.IntN(min(30*s.size, 60000))
	return s
}

// ip is a header of IP, with a checksum for version 4.
func (s shape) ip(version int, protocol byte, length int, id uint16) []byte {
	if version == 6 {
		b := make([]byte, 40)
		b[0], b[1], b[6], b[7] = 0x60, 0x81, protocol, 64
		binary.BigEndian.PutUint16(b[4:], uint16(length))
		for i := range 32 {
			b[8+i] = byte(0xfd - 7*i)
		}
		return b
	}
	b := make([]byte, 20)
	b[0], b[1], b[8], b[9] = 0x45, 0x08, 63, protocol
	binary.BigEndian.PutUint16(b[2:], uint16(20+length))
	binary.BigEndian.PutUint16(b[4:], id)
	if s.df {
		b[6] = 0x40
	}
	copy(b[12:], []byte{10, 128, 0, 2, 10, 128, 3, 9})
	binary.BigEndian.PutUint16(b[10:], ^naive(b))
	return b
}

// naive is the sum of RFC 1071, word by word.
func naive(b []byte) uint16 {
	var s uint32
	for i, x := range b {
		if i%2 == 0 {
			s += uint32(x) << 8
		} else {
			s += uint32(x)
		}
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// naivePseudo is the pseudo header of RFC 9293 and RFC 8200.
func naivePseudo(ip []byte, protocol byte, length int) []byte {
	from := ip[12:20]
	if ip[0]>>4 == 6 {
		from = ip[8:40]
	}
	b := slices.Clone(from)
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	return append(b, 0, 0, 0, protocol)
}

// naiveCheck gives a packet, as it goes on the wire, whose transport is at that offset, its checksum there.
func naiveCheck(ip []byte, transport, at int, protocol byte) {
	b := ip[transport:]
	b[at], b[at+1] = 0, 0
	c := ^naive(append(naivePseudo(ip, protocol, len(b)), b...))
	if c == 0 && protocol == 17 {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(b[at:], c)
}

// naivePartial is what the kernel leaves there where the process is to compute it.
func naivePartial(ip []byte, transport, at int, protocol byte) {
	b := ip[transport:]
	binary.BigEndian.PutUint16(b[at:], naive(naivePseudo(ip, protocol, len(b))))
}

// build makes a packet of payload, the n-th of several, and where its parts are.
func (s shape) build(payload []byte, n, seq int, flags byte) (p []byte, udp, inner, tcp int) {
	t := make([]byte, 20+s.options)
	binary.BigEndian.PutUint16(t, s.port)
	binary.BigEndian.PutUint16(t[2:], 80)
	binary.BigEndian.PutUint32(t[4:], s.seq+uint32(seq))
	binary.BigEndian.PutUint32(t[8:], 0x01020304)
	t[12], t[13], t[14] = byte(5+s.options/4)<<4, flags, 0x11
	for i := range s.options {
		t[20+i] = 1
	}
	t = append(t, payload...)
	p = append(s.ip(s.inner, 6, len(t), s.id+uint16(n)), t...)
	tcp = len(p) - len(t)
	naiveCheck(p, tcp, 16, 6)
	if s.outer == 0 {
		return p, 0, 0, tcp
	}
	ether := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0}
	if s.inner == 6 {
		ether[12], ether[13] = 0x86, 0xdd
	}
	v := slices.Concat([]byte{8, 0, 0, 0, byte(s.vni >> 16), byte(s.vni >> 8), byte(s.vni), 0}, ether, p)
	u := append(binary.BigEndian.AppendUint16(nil, 0xc000|s.port), 0x12, 0xb5, 0, 0, 0, 0)
	binary.BigEndian.PutUint16(u[4:], uint16(8+len(v)))
	outer := s.ip(s.outer, 17, 8+len(v), 77+uint16(n))
	p = slices.Concat(outer, u, v)
	udp = len(outer)
	inner = udp + 8 + 8 + 14
	tcp += inner
	if s.checked {
		naiveCheck(p, udp, 6, 17)
	}
	return p, udp, inner, tcp
}

// whole is a packet as the kernel gives it to be cut.
func (s shape) whole(payload []byte) (h header, p []byte) {
	p, udp, inner, tcp := s.build(payload, 0, 0, s.flags)
	h = header{flags: needsChecksum, gso: tcp4, headers: uint16(tcp + 20), size: uint16(s.size), csumStart: uint16(tcp), csumOffset: 16, outer: uint16(udp), inner: uint16(inner)}
	if s.inner == 6 {
		h.gso = tcp6
	}
	if s.flags&cwr != 0 {
		h.gso |= ecn
	}
	switch s.outer {
	case 4:
		h.gso |= tunnel4
	case 6:
		h.gso |= tunnel6
	}
	naivePartial(p[inner:], tcp-inner, 16, 6)
	if s.checked {
		h.flags |= tunnelChecksum
		naivePartial(p, udp, 6, 17)
	}
	return h, p
}

// wire is what of that goes on the wire.
func (s shape) wire(payload []byte) (all [][]byte) {
	for at := 0; at < len(payload); at += s.size {
		end, flags := min(at+s.size, len(payload)), s.flags
		if at > 0 {
			flags &^= cwr
		}
		if end < len(payload) {
			flags &^= psh | fin
		}
		p, _, _, _ := s.build(payload[at:end], len(all), at, flags)
		all = append(all, p)
	}
	return all
}

func (s shape) random(r *rand.Rand) []byte {
	b := make([]byte, s.payload)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
