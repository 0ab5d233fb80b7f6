package offload

import "bytes"

// VXLAN over IPv6, as hosts send it to each other inside: where its parts are.
const (
	vxlanLen, ethernetLen = 8, 14

	vxlanAt    = ip6Len + udpLen
	ethernetAt = vxlanAt + vxlanLen
	innerAt    = ethernetAt + ethernetLen

	etherType4, etherType6 = 0x0800, 0x86dd
)

// segment is a packet of TCP in VXLAN.
type segment struct {
	packet    []byte
	tcp, data int // where these begin
}

// parse finds it. What it does not know is not joined to anything, such as options of IP, other tunnels, UDP.
func parse(p []byte) (s segment, is bool) {
	if len(p) < innerAt+ip4Len+tcpLen || p[0]>>4 != 6 || p[ip6Next] != protocolUDP || int(be.Uint16(p[ip6Payload:])) != len(p)-ip6Len {
		return s, false
	}
	if int(be.Uint16(p[ip6Len+udpLength:])) != len(p)-ip6Len || be.Uint32(p[vxlanAt:]) != 1<<27 || p[vxlanAt+7] != 0 {
		return s, false
	}
	switch ip := p[innerAt:]; be.Uint16(p[ethernetAt+12:]) {
	case etherType4:
		s.tcp = innerAt + ip4Len
		is = ip[0] == 4<<4|5 && ip[ip4Protocol] == protocolTCP && int(be.Uint16(ip[ip4Total:])) == len(ip) && be.Uint16(ip[ip4Fragment:])&^(1<<14) == 0
	case etherType6:
		s.tcp = innerAt + ip6Len
		is = len(p) >= s.tcp+tcpLen && ip[0]>>4 == 6 && ip[ip6Next] == protocolTCP && int(be.Uint16(ip[ip6Payload:])) == len(ip)-ip6Len
	}
	if !is {
		return s, false
	}
	s.packet = p
	s.data = s.tcp + int(p[s.tcp+tcpOffset]>>4)*4
	return s, s.data >= s.tcp+tcpLen && s.data <= len(p)
}

func (s segment) v6() bool    { return s.tcp == innerAt+ip6Len }
func (s segment) flags() byte { return s.packet[s.tcp+tcpFlags] }
func (s segment) seq() uint32 { return be.Uint32(s.packet[s.tcp+tcpSeq:]) }
func (s segment) size() int   { return len(s.packet) - s.data }

// carries says that it may be one of several: it has data, and says nothing that concerns it alone.
func (s segment) carries() bool { return s.size() > 0 && s.flags()&^(psh|fin|ece) == ack }

// same says that both are of one connection, one way, in one network.
func (s segment) same(o segment) bool {
	a, b := s.packet, o.packet
	from := innerAt + ip4From
	if s.v6() {
		from = innerAt + ip6From
	}
	return s.tcp == o.tcp && bytes.Equal(a[from:s.tcp+4], b[from:s.tcp+4]) && bytes.Equal(a[vxlanAt:ethernetAt], b[vxlanAt:ethernetAt]) && bytes.Equal(a[ip6From:ip6Len], b[ip6From:ip6Len])
}

// alike says that n packets after s, with all headers of s but for what differs between packets of a super-packet, o
// would come.
func (s segment) alike(o segment, n int) bool {
	a, b := s.packet, o.packet
	if s.data != o.data || !bytes.Equal(a[:ip6Payload], b[:ip6Payload]) || !bytes.Equal(a[ip6Next:ip6Len+udpLength], b[ip6Next:ip6Len+udpLength]) || !bytes.Equal(a[vxlanAt:innerAt], b[vxlanAt:innerAt]) {
		return false
	}
	if (be.Uint16(a[ip6Len+udpCheck:]) == 0) != (be.Uint16(b[ip6Len+udpCheck:]) == 0) {
		return false
	}
	i, j := a[innerAt:s.tcp], b[innerAt:s.tcp]
	if s.v6() {
		if !bytes.Equal(i[:ip6Payload], j[:ip6Payload]) || !bytes.Equal(i[ip6Next:], j[ip6Next:]) {
			return false
		}
	} else {
		if !bytes.Equal(i[:ip4Total], j[:ip4Total]) || !bytes.Equal(i[ip4Fragment:ip4Check], j[ip4Fragment:ip4Check]) || !bytes.Equal(i[ip4From:], j[ip4From:]) {
			return false
		}
		// The ID of what may not be fragmented means nothing (RFC 6864).
		if whole := i[ip4Fragment]&0x40 != 0; !whole && be.Uint16(j[ip4ID:]) != be.Uint16(i[ip4ID:])+uint16(n) {
			return false
		}
	}
	t, u := a[s.tcp:s.data], b[s.tcp:s.data]
	return bytes.Equal(t[tcpAck:tcpFlags], u[tcpAck:tcpFlags]) && (t[tcpFlags]^u[tcpFlags])&^(psh|fin) == 0 &&
		bytes.Equal(t[tcpWindow:tcpCheck], u[tcpWindow:tcpCheck]) && bytes.Equal(t[tcpUrgent:], u[tcpUrgent:])
}

// sound says that all its checksums are right: the kernel looks at none of a super-packet.
func (s segment) sound() bool {
	ip, tcp := s.packet[innerAt:], s.packet[s.tcp:]
	if !s.v6() && fold(sum(ip[:ip4Len], 0)) != 0xffff {
		return false
	}
	inner := plus(pseudo(ip, protocolTCP), uint64(len(tcp)))
	if fold(sum(tcp, inner)) != 0xffff {
		return false
	}
	udp := s.packet[ip6Len:]
	if be.Uint16(udp[udpCheck:]) == 0 {
		return true
	}
	// All from TCP on has the inverse sum of its pseudo header.
	outer := plus(pseudo(s.packet, protocolUDP), uint64(len(udp))+uint64(^fold(inner)))
	return fold(sum(udp[:s.tcp-ip6Len], outer)) == 0xffff
}

// group is packets of a batch, by where they are in it, which become one; or one that stays as it is.
type group struct {
	first segment
	size  int // of payload in each but the last
	whole int // bytes of payload
	sound bool
	of    []int
}

// maxWhole is the payload that a super-packet has at most: IPv6 and UDP count its bytes in 16 bits.
func (s segment) maxWhole() int { return 0xffff - padLen - (s.data - ip6Len) }

// take adds the next packet of the connection, unless it is none that would come of cutting.
func (g *group) take(s segment, at int) bool {
	n := s.size()
	if n > g.size || s.seq() != g.first.seq()+uint32(g.whole) || g.whole+n > g.first.maxWhole() || !g.first.alike(s, len(g.of)) {
		return false
	}
	if g.sound = g.sound || g.first.sound(); !g.sound || !s.sound() {
		return false
	}
	g.of = append(g.of, at)
	g.whole += n
	return true
}

// join says what becomes of a batch: what comes of one connection stays in its order.
type join struct {
	groups []group
	open   []int // of groups, those that may get more
}

// plan returns the groups, until the next call. packet returns the one at i of n.
func (j *join) plan(n int, packet func(i int) []byte) []group {
	j.groups, j.open = j.groups[:0], j.open[:0]
	for i := range n {
		s, is := parse(packet(i))
		if !is {
			j.add(group{}, i)
			continue
		}
		at, last := j.find(s), s.flags()&(psh|fin) != 0
		if at >= 0 {
			g := &j.groups[j.open[at]]
			if s.carries() && g.take(s, i) {
				if last || s.size() < g.size {
					j.open = append(j.open[:at], j.open[at+1:]...)
				}
				continue
			}
			j.open = append(j.open[:at], j.open[at+1:]...)
		}
		j.add(group{first: s, size: s.size(), whole: s.size()}, i)
		if s.carries() && !last {
			j.open = append(j.open, len(j.groups)-1)
		}
	}
	return j.groups
}

// find returns which of the open ones is of the connection, -1 if none is. What came last is most likely.
func (j *join) find(s segment) int {
	for at := len(j.open) - 1; at >= 0; at-- {
		if j.groups[j.open[at]].first.same(s) {
			return at
		}
	}
	return -1
}

func (j *join) add(g group, at int) {
	if k := len(j.groups); k < cap(j.groups) { // its memory
		g.of = j.groups[:k+1][k].of[:0]
	}
	g.of = append(g.of, at)
	j.groups = append(j.groups, g)
}

// padLen is the length of the headers of IPv6 that say nothing, before UDP in a super-packet: the kernel asks of each
// that UDP is where it would be behind an Ethernet header too, which a TUN device has not. It takes no more than seven
// bytes of padding in one.
const padLen = 16

const (
	protocolOptions = 60 // of the destination
	padN            = 1
)

// headersLen is how long super makes those of a group.
func (g *group) headersLen() int { return headerLen + g.first.data + padLen }

// super writes what stands before the payload of the packet that a group becomes, and the flags of TCP that only the last one
// has.
func (g *group) super(b []byte, last byte) {
	p := g.first.packet[:g.first.data]
	clear(b[:headerLen])
	ip := b[headerLen:]
	copy(ip, p[:ip6Len])
	ip[ip6Next] = protocolOptions
	for i, next := range []byte{protocolOptions, protocolUDP} {
		copy(ip[ip6Len+8*i:], []byte{next, 0, padN, 4, 0, 0, 0, 0})
	}
	udp := ip[ip6Len+padLen:]
	copy(udp, p[ip6Len:])
	inner, tcp := udp[innerAt-ip6Len:], udp[g.first.tcp-ip6Len:]

	h := header{flags: needsChecksum, gso: tunnel6, headers: uint16(g.first.data + padLen), size: uint16(g.size),
		csumStart: uint16(g.first.tcp + padLen), csumOffset: tcpCheck, outer: ip6Len + padLen, inner: innerAt + padLen}
	length := g.first.data - ip6Len + g.whole
	be.PutUint16(ip[ip6Payload:], uint16(padLen+length))
	be.PutUint16(udp[udpLength:], uint16(length))
	if be.Uint16(udp[udpCheck:]) != 0 {
		h.flags |= tunnelChecksum
		be.PutUint16(udp[udpCheck:], fold(plus(pseudo(ip, protocolUDP), uint64(length))))
	}
	if length -= innerAt - ip6Len; g.first.v6() {
		h.gso |= tcp6
		be.PutUint16(inner[ip6Payload:], uint16(length-ip6Len))
	} else {
		h.gso |= tcp4
		be.PutUint16(inner[ip4Total:], uint16(length))
		check4(inner)
	}
	tcp[tcpFlags] |= last & (psh | fin)
	length -= g.first.tcp - innerAt
	be.PutUint16(tcp[tcpCheck:], fold(plus(pseudo(inner, protocolTCP), uint64(length))))
	h.encode(b)
}
