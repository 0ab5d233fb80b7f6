package frames

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/grapevine-net/grapevine/encap"
)

// packet is a frame of IP with a body.
func packet(src, dst netip.Addr, proto uint8, body []byte) []byte {
	b := make([]byte, 12)
	if src.Is4() {
		b = append(b, 8, 0, 0x45, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(20+len(body)))
		b = append(b, 0, 0, 0, 0, 64, proto, 0, 0)
	} else {
		b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
		b = append(b, proto, 64)
	}
	return append(append(append(b, src.AsSlice()...), dst.AsSlice()...), body...)
}

// vxlan puts a frame into VXLAN.
func vxlan(src, dst netip.Addr, port uint16, inner []byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0x80, 1}, port)
	b = binary.BigEndian.AppendUint16(b, uint16(16+len(inner)))
	return packet(src, dst, protoUDP, append(append(b, 0, 0, 8, 0, 0, 0, 0, 0, 5, 0), inner...))
}

// gre puts a frame into GRE with a key, and with a checksum over IPv6.
func gre(src, dst netip.Addr, inner []byte) []byte {
	return packet(src, dst, encap.ProtocolGRE, append([]byte{0x20, 0, 0x65, 0x58, 0, 0, 0, 5}, inner...))
}

func tcp(from, to uint16, flags byte) []byte {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from), to)
	return append(b, 0, 0, 0, 1, 0, 0, 0, 0, 5<<4, flags, 0, 0, 0, 0, 0, 0)
}

// TestProbe: a probe is what it says, with a checksum that is right; it, and its answers, are known again, as they
// are and inside VXLAN, by us and by the kernel's filters; nothing else is.
func TestProbe(t *testing.T) {
	addr := netip.MustParseAddr
	for _, ends := range [][2]netip.Addr{{addr("10.0.0.1"), addr("10.0.0.2")}, {addr("fd00::1"), addr("fd00::2")}} {
		src, dst := ends[0], ends[1]
		icmp, echo, reply, gone := uint8(protoICMP), byte(8), byte(0), byte(3)
		if src.Is6() {
			icmp, echo, reply, gone = protoICMPv6, 128, 129, 1
		}
		for _, proto := range []uint8{protoTCP, protoUDP, icmp} {
			p := Probe{Src: src, Dst: dst, Proto: proto, From: 61001, To: 80}
			probe := packet(src, dst, proto, p.Body())
			if sum := p.checksum(p.Body()); sum != 0 && sum != 0xffff {
				t.Errorf("%+v: the checksum is off by %#x", p, sum)
			}
			f := Read(probe)
			if proto == icmp && f.Flags != echo || proto == protoTCP && f.Flags != tcpSYN || f.Ports && (f.FromPort != 61001 || f.ToPort != 80) {
				t.Errorf("%+v: %+v", p, f)
			}
			other := p
			other.From++
			echoes := func(kind byte, id uint16) []byte { return []byte{kind, 0, 0, 0, byte(id >> 8), byte(id), 0, 1} }
			unreachable := func(of []byte) []byte {
				return packet(addr(map[bool]string{true: "10.0.0.9", false: "fd00::9"}[src.Is4()]), src, icmp, append([]byte{gone, 3, 0, 0, 0, 0, 0, 0}, of[ethernetHeader:]...))
			}
			for _, c := range []struct {
				what   string
				frame  []byte
				of     uint8 // protocol
				mine   bool
				answer Answer
				passes bool // the filter
			}{
				{"itself", probe, proto, true, None, true},
				{"another", packet(src, dst, proto, other.Body()), proto, false, None, proto == icmp},
				{"SYN-ACK", packet(dst, src, protoTCP, tcp(80, 61001, tcpSYN|tcpACK)), protoTCP, true, Accepted, true},
				{"RST", packet(dst, src, protoTCP, tcp(80, 61001, tcpRST|tcpACK)), protoTCP, true, Refused, true},
				{"our kernel's RST", packet(src, dst, protoTCP, tcp(61001, 80, tcpRST)), protoTCP, false, None, true},
				{"ACK of something else", packet(dst, src, protoTCP, tcp(80, 61001, tcpACK)), protoTCP, false, None, true},
				{"SYN-ACK for another", packet(dst, src, protoTCP, tcp(80, 61002, tcpSYN|tcpACK)), protoTCP, false, None, false},
				{"datagram", packet(dst, src, protoUDP, []byte{0, 80, 0xee, 0x49, 0, 9, 0, 0, 1}), protoUDP, true, Replied, true},
				{"echo", packet(dst, src, icmp, echoes(reply, 61001)), icmp, true, Echoed, true},
				{"another's echo", packet(dst, src, icmp, echoes(reply, 61002)), icmp, false, None, true},
				{"unreachable", unreachable(probe), proto, true, Unreachable, true},
				{"unreachable, cut off", unreachable(probe)[:len(unreachable(probe))-len(p.Body())+8], proto, true, Unreachable, true},
				{"another is unreachable", unreachable(packet(src, dst, proto, other.Body())), proto, false, None, true},
				{"nothing", []byte{1, 2, 3}, proto, false, None, false},
			} {
				if c.of != proto {
					continue
				}
				mine, answer := p.Sight(c.frame)
				if mine != c.mine || mine && answer != c.answer {
					t.Errorf("%d, %s: %v %v", proto, c.what, mine, answer)
				}
				program, err := p.Program()
				if got := passes(t, program, c.frame); err != nil || got != c.passes {
					t.Errorf("%d, %s: the filter says %v, %v", proto, c.what, got, err)
				}
			}
			inside, err := p.Tunnelled(encap.VXLAN, 4789)
			if err != nil {
				t.Fatal(err)
			}
			for _, wire := range [][2]netip.Addr{{addr("192.0.2.1"), addr("192.0.2.2")}, {addr("2001:db8::1"), addr("2001:db8::2")}} {
				on := vxlan(wire[0], wire[1], 4789, probe)
				if mine, _ := p.Sight(Inner(on)); !mine || !passes(t, inside, on) {
					t.Errorf("%d: inside VXLAN it is not known", proto)
				}
				if passes(t, inside, vxlan(wire[0], wire[1], 4790, probe)) || passes(t, inside, vxlan(wire[0], wire[1], 4789, packet(src, dst, proto, other.Body()))) || passes(t, inside, probe) {
					t.Errorf("%d: the filter for VXLAN passes others", proto)
				}
				inGRE, err := p.Tunnelled(encap.GRE, 0)
				if err != nil {
					t.Fatal(err)
				}
				on = gre(wire[0], wire[1], probe)
				if mine, _ := p.Sight(Inner(on)); !mine || !passes(t, inGRE, on) || passes(t, inside, on) {
					t.Errorf("%d: inside GRE it is not known, or taken for VXLAN", proto)
				}
				if passes(t, inGRE, gre(wire[0], wire[1], packet(src, dst, proto, other.Body()))) || passes(t, inGRE, vxlan(wire[0], wire[1], 4789, probe)) || Inner(on[:40]) != nil {
					t.Errorf("%d: the filter for GRE passes others", proto)
				}
			}
		}
	}
}

func passes(t *testing.T, program []bpf.RawInstruction, frame []byte) bool {
	t.Helper()
	code, ok := bpf.Disassemble(program)
	if !ok {
		t.Fatal("not a program")
	}
	vm, err := bpf.NewVM(code)
	if err != nil {
		t.Fatal(err)
	}
	n, err := vm.Run(frame)
	return err == nil && n > 0
}
