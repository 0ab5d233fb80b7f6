// Package frames says of an Ethernet frame which packet it is: for people, and for the kernel, which
// passes on those that are asked for. It is pure.
package frames

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
)

// Numbers of what is in an Ethernet frame, and in an IP packet.
const (
	ethernetHeader = 14

	typeIPv4 = 0x0800
	typeARP  = 0x0806
	typeIPv6 = 0x86dd

	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
	protoSCTP   = 132
)

// Frame is what the headers of a frame say, as far as it has them.
type Frame struct {
	Type     uint16 // of Ethernet
	From, To netip.Addr
	Proto    uint8
	// Ports are there of TCP, UDP and SCTP, of a packet that is no later fragment.
	Ports            bool
	FromPort, ToPort uint16
	// Flags are TCP's, or of ICMP the type.
	Flags uint8
	// Later is a fragment that is not the first one.
	Later bool
	// Headers is where the payload begins.
	Headers int
}

// Read reads the headers of a frame.
func Read(b []byte) (f Frame) {
	f.Headers = min(len(b), ethernetHeader)
	if len(b) < ethernetHeader {
		return f
	}
	f.Type = binary.BigEndian.Uint16(b[12:])
	switch f.Type {
	case typeARP:
		if len(b) >= 42 {
			f.From, f.To = addr(b[28:32]), addr(b[38:42])
			f.Headers = 42
		}
	case typeIPv4:
		f.ipv4(b)
	case typeIPv6:
		f.ipv6(b)
	}
	return f
}

func (f *Frame) ipv4(b []byte) {
	const header = 20
	ip := b[ethernetHeader:]
	if len(ip) < header {
		return
	}
	length := int(ip[0]&0xf) * 4
	f.From, f.To, f.Proto = addr(ip[12:16]), addr(ip[16:20]), ip[9]
	f.Headers = min(len(b), ethernetHeader+max(length, header))
	if f.Later = binary.BigEndian.Uint16(ip[6:])&0x1fff != 0; !f.Later && length >= header {
		f.transport(b)
	}
}

func (f *Frame) ipv6(b []byte) {
	const header, fragment = 40, 44
	ip := b[ethernetHeader:]
	if len(ip) < header {
		return
	}
	f.From, f.To, f.Proto = addr(ip[8:24]), addr(ip[24:40]), ip[6]
	f.Headers = ethernetHeader + header
	for extension(f.Proto) && len(b) >= f.Headers+8 {
		at := b[f.Headers:]
		length := 8
		if f.Proto == fragment {
			f.Later = binary.BigEndian.Uint16(at[2:])&^7 != 0
		} else {
			length += int(at[1]) * 8
		}
		f.Proto, f.Headers = at[0], min(len(b), f.Headers+length)
		if f.Later {
			return
		}
	}
	f.transport(b)
}

// extension reports whether a header of IPv6 has another one behind it.
func extension(proto uint8) bool { return proto == 0 || proto == 43 || proto == 44 || proto == 60 }

func (f *Frame) transport(b []byte) {
	at := b[f.Headers:]
	length := 0
	switch f.Proto {
	case protoTCP:
		if len(at) < 20 {
			return
		}
		f.Flags, length = at[13], max(20, int(at[12]>>4)*4)
	case protoUDP:
		length = 8
	case protoSCTP:
		length = 12
	case protoICMP, protoICMPv6:
		if length = 8; len(at) > 0 {
			f.Flags = at[0]
		}
	default:
		return
	}
	if f.Proto != protoICMP && f.Proto != protoICMPv6 && len(at) >= 4 {
		f.Ports, f.FromPort, f.ToPort = true, binary.BigEndian.Uint16(at), binary.BigEndian.Uint16(at[2:])
	}
	f.Headers = min(len(b), f.Headers+length)
}

func addr(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Describe is a frame in words, such as "app:40000 > db:5432  tcp S". called says what an address is
// called; "": nothing.
func (f Frame) Describe(called func(netip.Addr) string) string {
	end := func(a netip.Addr, port uint16) string {
		name := called(a)
		switch {
		case name == "" && f.Ports:
			return netip.AddrPortFrom(a, port).String()
		case name == "":
			return a.String()
		case f.Ports:
			return name + ":" + strconv.Itoa(int(port))
		}
		return name
	}
	if !f.From.IsValid() {
		return "type 0x" + strconv.FormatUint(uint64(f.Type), 16)
	}
	return end(f.From, f.FromPort) + " > " + end(f.To, f.ToPort) + "  " + f.what()
}

func (f Frame) what() string {
	switch {
	case f.Type == typeARP:
		return "arp"
	case f.Later:
		return Protocol(f.Proto) + " fragment"
	case f.Proto == protoTCP && f.Ports:
		return "tcp " + flags(f.Flags)
	case f.Proto == protoICMP, f.Proto == protoICMPv6:
		return Protocol(f.Proto) + " " + icmp(f.Proto, f.Flags)
	}
	return Protocol(f.Proto)
}

// Protocol is the name of a protocol, or its number.
func Protocol(n uint8) string {
	for name, numbers := range protocols {
		for _, p := range numbers {
			if p == n && name != "" {
				return name
			}
		}
	}
	return strconv.Itoa(int(n))
}

// flags are TCP's as tcpdump writes them.
func flags(f uint8) string {
	const names = "FSRP.UEW"
	var s strings.Builder
	for i := range names {
		if f>>i&1 == 1 {
			s.WriteByte(names[i])
		}
	}
	return s.String()
}

func icmp(proto, kind uint8) string {
	names := map[uint8]string{0: "echo reply", 3: "unreachable", 5: "redirect", 8: "echo request", 11: "time exceeded"}
	if proto == protoICMPv6 {
		names = map[uint8]string{1: "unreachable", 2: "too big", 3: "time exceeded", 128: "echo request", 129: "echo reply", 133: "router solicitation", 134: "router advertisement", 135: "neighbour solicitation", 136: "neighbour advertisement"}
	}
	if n := names[kind]; n != "" {
		return n
	}
	return "type " + strconv.Itoa(int(kind))
}
