package bypass

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Traffic is VXLAN over IPv4 between this host and others, both ways.
type Traffic struct {
	Device string // the NIC's name, by which it leaves and arrives
	Index  int
	Tunnel string // the VXLAN device's name
	// TunnelIndex is its index.
	TunnelIndex int
	Own         netip.Addr // this host's VTEP
	Port        uint16     // of VXLAN
	Peers       []netip.Addr
	LeastPort   uint16 // the sources' ports of what this host sends, without EndPort
	EndPort     uint16
	// Stacked: Device stands on others, such as a bond or a VLAN, where packets may have got a mark.
	Stacked bool
}

func (t Traffic) equal(u Traffic) bool {
	if len(t.Peers) != len(u.Peers) {
		return false
	}
	for i, p := range t.Peers {
		if p != u.Peers[i] {
			return false
		}
	}
	t.Peers, u.Peers = nil, nil
	return fmt.Sprint(t) == fmt.Sprint(u)
}

// packet is what is known of packets at a hook of netfilter.
type packet struct {
	hook              uint32
	in, out           string // the interfaces; "": there is none at this hook
	inIndex, outIndex uint32
	ip, udp           bits   // the headers, and behind that of UDP the one of VXLAN
	state             uint32 // of conntrack, as nft's ct state has it
	marked            bool   // they may have a mark
}

func (p packet) String() string {
	if p.in != "" {
		return "received VXLAN packets"
	}
	return "sent VXLAN packets"
}

// Bits of a connection's state (NF_CT_STATE_BIT of linux/netfilter/nf_conntrack_common.h). Well-formed UDP is never
// invalid: conntrack takes it for that only if it is cut, or its length or checksum is wrong, and programs at a NIC leave
// such packets alone. Untracked is what a rule has made so, which is a reason by itself.
const (
	stateInvalid     = 1 << 0
	stateEstablished = 1 << 1
	stateRelated     = 1 << 2
	stateNew         = 1 << 3
)

// received and sent are the packets of t from and to a peer, whose addresses' bits need not all be known.
func (t Traffic) received(peer bits, hook, state uint32) packet {
	p := packet{hook: hook, in: t.Device, inIndex: uint32(t.Index), state: state, marked: t.Stacked}
	p.ip = header(peer, point(t.Own.AsSlice()))
	p.ip.put(1, bits{[]byte{0}, []byte{0xff}}) // somebody's DSCP
	p.ip.put(6, bits{[]byte{0, 0}, []byte{0xc0, 0}})
	p.ip.put(8, bits{[]byte{0}, []byte{0xff}})
	p.udp = datagram(bits{[]byte{0, 0}, []byte{0xff, 0xff}}, t.Port)
	return p
}

func (t Traffic) sent(peer bits, hook, state uint32) packet {
	p := packet{hook: hook, out: t.Device, outIndex: uint32(t.Index), state: state}
	p.ip = header(point(t.Own.AsSlice()), peer)
	p.ip.put(1, bits{[]byte{0}, []byte{3}}) // ECN
	p.ip.put(6, point([]byte{0, 0}))
	p.ip.put(8, point([]byte{64}))
	p.udp = datagram(between(t.LeastPort, t.EndPort-1), t.Port)
	return p
}

// party is an address of the packet's connection: of one side or of the other.
func (p packet) party() bits {
	a, b := p.ip.part(12, 4), p.ip.part(16, 4)
	leastA, mostA := a.bounds()
	leastB, mostB := b.bounds()
	least, most := leastA, mostA
	if bytes.Compare(leastB, least) < 0 {
		least = leastB
	}
	if bytes.Compare(most, mostB) < 0 {
		most = mostB
	}
	return common(least, most)
}

// header is that of IPv4 without options, of UDP.
func header(src, dst bits) bits {
	h := unknown(20)
	h.put(0, point([]byte{0x45}))
	h.put(9, point([]byte{unix.IPPROTO_UDP}))
	h.put(12, src)
	h.put(16, dst)
	return h
}

// datagram is the header of UDP without a checksum, and that of VXLAN (RFC 7348, 5).
func datagram(from bits, to uint16) bits {
	h := unknown(16)
	h.put(0, from)
	h.put(2, point(binary.BigEndian.AppendUint16(nil, to)))
	h.put(6, point([]byte{0, 0}))
	h.put(8, point([]byte{8, 0, 0, 0}))
	h.put(15, point([]byte{0}))
	return h
}

// between are the bits that all numbers of a range have in common.
func between(least, most uint16) bits {
	a, b := binary.BigEndian.AppendUint16(nil, least), binary.BigEndian.AppendUint16(nil, most)
	return common(a, b)
}

// common are the bits that all between two values have in common, of which the first is not larger: those in front.
func common(a, b []byte) bits {
	out := bits{v: append([]byte(nil), a...), u: make([]byte, len(a))}
	differs := false
	for i := range a {
		for bit := byte(0x80); bit != 0; bit >>= 1 {
			differs = differs || a[i]&bit != b[i]&bit
			if differs {
				out.u[i] |= bit
				out.v[i] &^= bit
			}
		}
	}
	return out
}
