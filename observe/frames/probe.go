package frames

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"

	"github.com/grapevine-net/grapevine/encap"
)

// Probe is a packet that asks for an answer and begins nothing: TCP's SYN, ICMP's echo request, an empty datagram of
// UDP. From is its source port, or of ICMP its identifier.
type Probe struct {
	Src   netip.Addr `cbor:"1,keyasint"`
	Dst   netip.Addr `cbor:"2,keyasint"`
	Proto uint8      `cbor:"3,keyasint"`
	From  uint16     `cbor:"4,keyasint"`
	To    uint16     `cbor:"5,keyasint,omitempty"`
}

// Body is what stands behind the header of IP.
func (p Probe) Body() []byte {
	var b []byte
	sum := 0
	switch p.Proto {
	case protoTCP:
		b, sum = make([]byte, 20), 16
		binary.BigEndian.PutUint32(b[4:], uint32(p.From)<<16|uint32(p.To)) // a sequence number is as good as any
		b[12], b[13] = 5<<4, tcpSYN
		binary.BigEndian.PutUint16(b[14:], 64240)
	case protoUDP:
		b, sum = make([]byte, 8), 6
		binary.BigEndian.PutUint16(b[4:], 8)
	default:
		b, sum = []byte{8, 0, 0, 0, 0, 0, 0, 1}, 2
		if p.Src.Is6() {
			b[0] = 128
		}
		binary.BigEndian.PutUint16(b[4:], p.From)
	}
	if p.Proto == protoTCP || p.Proto == protoUDP {
		binary.BigEndian.PutUint16(b, p.From)
		binary.BigEndian.PutUint16(b[2:], p.To)
	}
	binary.BigEndian.PutUint16(b[sum:], p.checksum(b))
	return b
}

// checksum is RFC 1071's, with the header of IP as far as it belongs to it. Of ICMPv6 the kernel makes it.
func (p Probe) checksum(b []byte) uint16 {
	sum := uint32(0)
	add := func(b []byte) {
		for i := 0; i+1 < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	if add(b); p.Proto != protoICMP {
		add(p.Src.AsSlice())
		add(p.Dst.AsSlice())
		sum += uint32(p.Proto) + uint32(len(b))
	}
	for sum>>16 > 0 {
		sum = sum>>16 + sum&0xffff
	}
	if sum = ^sum & 0xffff; sum == 0 && p.Proto == protoUDP {
		sum = 0xffff
	}
	return uint16(sum)
}

const tcpSYN, tcpRST, tcpACK = 2, 4, 16

// Answer is what came back.
type Answer uint8

// The answers.
const (
	None        Answer = iota
	Accepted           // TCP: somebody listens
	Refused            // TCP: nobody does; or a firewall says so
	Echoed             // ICMP
	Replied            // UDP
	Unreachable        // somebody on the way says that it does not get there, or that nobody listens
)

// Sight says whether a frame is the probe itself, or an answer to it. Where it goes to may have been translated.
func (p Probe) Sight(b []byte) (mine bool, answer Answer) {
	f := Read(b)
	switch {
	case p.is(f, b):
		return true, None
	case f.To != p.Src:
		return false, None
	case f.Proto == p.Proto && p.Proto == protoTCP && f.Ports && f.ToPort == p.From:
		if f.Flags&tcpRST != 0 {
			return true, Refused
		}
		return f.Flags&(tcpSYN|tcpACK) == tcpSYN|tcpACK, Accepted
	case f.Proto == p.Proto && p.Proto == protoUDP && f.Ports && f.ToPort == p.From:
		return true, Replied
	case f.Proto == p.Proto && (f.Flags == 0 || f.Flags == 129) && echoID(f, b) == p.From:
		return true, Echoed
	case f.Proto == protoICMP && (f.Flags == 3 || f.Flags == 11), f.Proto == protoICMPv6 && f.Flags >= 1 && f.Flags <= 4:
		quoted := append(make([]byte, 12), byte(f.Type>>8), byte(f.Type))
		quoted = append(quoted, b[f.Headers:]...)
		return p.is(Read(quoted), quoted), Unreachable
	}
	return false, None
}

// is says whether a frame is the probe. Of one that is quoted the ports alone may be left.
func (p Probe) is(f Frame, b []byte) bool {
	if f.From != p.Src || f.Proto != p.Proto || f.Later {
		return false
	}
	switch p.Proto {
	case protoTCP, protoUDP:
		at := f.Headers
		if !f.Ports { // cut off
			return at+4 <= len(b) && binary.BigEndian.Uint16(b[at:]) == p.From
		}
		return f.FromPort == p.From && (p.Proto == protoUDP || f.Flags&(tcpSYN|tcpACK) == tcpSYN)
	}
	return (f.Flags == 8 || f.Flags == 128) && echoID(f, b) == p.From
}

func echoID(f Frame, b []byte) uint16 {
	if f.Headers < 4 || len(b) < f.Headers {
		return 0
	}
	return binary.BigEndian.Uint16(b[f.Headers-4:])
}

// Program passes the probe and its answers on to who looks at an interface that has them as they are.
func (p Probe) Program() ([]bpf.RawInstruction, error) {
	terms := or{Filter{Proto: "icmp"}.term()}
	if p.Proto == protoTCP || p.Proto == protoUDP {
		terms = append(terms, Filter{Proto: Protocol(p.Proto), Port: p.From}.term())
	}
	return bpf.Assemble(compile(terms))
}

// outside is how far the frame inside an encapsulation is behind the beginning of the outer one, and what is in that, of IPv4
// and IPv6.
func outside(k encap.Kind, port uint16) map[uint32]and {
	outer4, outer6 := uint32(ethernetHeader+k.Behind(false)), uint32(ethernetHeader+k.Behind(true))
	if !k.Ports() {
		return map[uint32]and{
			outer4: {at(12, 2, typeIPv4), at(23, 1, encap.ProtocolGRE), at(36, 2, typeBridged)},
			outer6: {at(12, 2, typeIPv6), at(20, 1, encap.ProtocolGRE), at(56, 2, typeBridged)},
		}
	}
	return map[uint32]and{
		outer4: {at(12, 2, typeIPv4), at(23, 1, protoUDP), at(36, 2, uint32(port))},
		outer6: {at(12, 2, typeIPv6), at(20, 1, protoUDP), at(56, 2, uint32(port))},
	}
}

// typeBridged is how GRE says that a frame is in it (RFC 1701).
const typeBridged = 0x6558

// Tunnelled is the same for who looks where both are inside an encapsulation, at a port if it has ports.
func (p Probe) Tunnelled(k encap.Kind, port uint16) ([]bpf.RawInstruction, error) {
	src := p.Src.AsSlice()
	words := func(off uint32) (t and) {
		for i := 0; i < len(src); i += 4 {
			t = append(t, at(off+uint32(i), 4, binary.BigEndian.Uint32(src[i:])))
		}
		return t
	}
	var either or
	for o, outer := range outside(k, port) {
		kind, proto, from, to, body := uint32(typeIPv4), o+23, o+26, o+30, o+34
		if p.Src.Is6() {
			kind, proto, from, to, body = typeIPv6, o+20, o+22, o+38, o+54
		}
		id := or{at(body, 2, uint32(p.From)), at(body+2, 2, uint32(p.From))}
		if p.Proto == protoICMP || p.Proto == protoICMPv6 {
			id = or{at(body+4, 2, uint32(p.From))}
		}
		either = append(either, append(outer, at(o+12, 2, kind), at(proto, 1, uint32(p.Proto)), id, or{words(from), words(to)}))
	}
	return bpf.Assemble(compile(either))
}

// Inner is the frame inside a packet of VXLAN, Geneve or GRE; nil: there is none.
func Inner(b []byte) []byte {
	f := Read(b)
	if f.Proto == encap.ProtocolGRE && !f.Later && len(b) >= f.Headers+4 {
		const sum, key, number = 0x80, 0x20, 0x10 // what there is more, of 4 bytes each (RFC 2890)
		at := f.Headers + 4
		for _, more := range []byte{sum, key, number} {
			if b[f.Headers]&more != 0 {
				at += 4
			}
		}
		if binary.BigEndian.Uint16(b[f.Headers+2:]) != typeBridged || len(b) < at {
			return nil
		}
		return b[at:]
	}
	if f.Proto != protoUDP || !f.Ports || len(b) < f.Headers+encap.VXLAN.Header {
		return nil
	}
	return b[f.Headers+encap.VXLAN.Header:]
}
