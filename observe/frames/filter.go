package frames

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/net/bpf"
)

// protocols are those that a filter knows by name.
var protocols = map[string][]uint8{"tcp": {protoTCP}, "udp": {protoUDP}, "sctp": {protoSCTP}, "icmp": {protoICMP, protoICMPv6}}

// Filter says which frames are asked for. Of what is empty, all are.
type Filter struct {
	Peers []netip.Addr // the other end
	Proto string       // tcp, udp, sctp, icmp, arp or a number
	Port  uint16       // of either end
}

// maxPeers bounds the program that the kernel is given.
const maxPeers = 64

// Check says what is wrong with a filter.
func (f Filter) Check() error {
	numbers, arp, err := f.numbers()
	switch {
	case err != nil:
		return err
	case len(f.Peers) > maxPeers:
		return fmt.Errorf("the other end has %d addresses, and a filter at most %d: name one of them", len(f.Peers), maxPeers)
	case f.Port != 0 && (arp || len(numbers) > 0 && !hasPorts(numbers[0])):
		return fmt.Errorf("%s has no ports: leave out --port, or say --proto tcp, udp or sctp", f.Proto)
	}
	return nil
}

func hasPorts(proto uint8) bool { return proto == protoTCP || proto == protoUDP || proto == protoSCTP }

// numbers are the protocols of IP that are asked for, and whether ARP is.
func (f Filter) numbers() (list []uint8, arp bool, err error) {
	if f.Proto == "arp" {
		return nil, true, nil
	}
	if list := protocols[f.Proto]; list != nil || f.Proto == "" {
		return list, f.Proto == "" && f.Port == 0, nil
	}
	n, err := strconv.ParseUint(f.Proto, 10, 8)
	if err != nil {
		return nil, false, fmt.Errorf("there is no protocol %s: say tcp, udp, sctp, icmp, arp or a number", f.Proto)
	}
	return []uint8{uint8(n)}, false, nil
}

// Passes reports whether a frame is asked for.
func (f Filter) Passes(b []byte) bool {
	frame := Read(b)
	numbers, arp, err := f.numbers()
	switch {
	case err != nil:
		return false
	case len(f.Peers) > 0 && !slices.Contains(f.Peers, frame.From) && !slices.Contains(f.Peers, frame.To):
		return false
	case f.Proto == "" && f.Port == 0:
		return true
	case frame.Type == typeARP:
		return arp
	case f.Proto == "arp", frame.Type != typeIPv4 && frame.Type != typeIPv6:
		return false
	case len(numbers) > 0 && !slices.Contains(numbers, frame.Proto):
		return false
	case f.Port != 0:
		return frame.Ports && (frame.FromPort == f.Port || frame.ToPort == f.Port)
	}
	return true
}

// Program is the filter as the kernel takes it; none if it lets all pass. What has extension headers of IPv6
// it knows by its addresses alone.
func (f Filter) Program() ([]bpf.RawInstruction, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	if len(f.Peers) == 0 && f.Proto == "" && f.Port == 0 {
		return nil, nil
	}
	return bpf.Assemble(compile(f.term()))
}

// term is the filter as tests of what stands where in a frame.
func (f Filter) term() term {
	numbers, arp, _ := f.numbers()
	var kinds or
	for _, ip := range []struct {
		kind                 uint32
		proto, from, to, len uint32 // where the protocol and the addresses are, and how long these are
	}{{typeIPv4, 23, 26, 30, 4}, {typeIPv6, 20, 22, 38, 16}} {
		t := and{at(12, 2, ip.kind)}
		if f.Proto == "arp" {
			continue
		}
		if len(f.Peers) > 0 {
			t = append(t, f.peersAt(ip.from, ip.to, ip.len))
		}
		if len(numbers) > 0 {
			t = append(t, oneOf(ip.proto, numbers))
		}
		if f.Port != 0 {
			t = append(t, oneOf(ip.proto, []uint8{protoTCP, protoUDP, protoSCTP}))
			if ip.kind == typeIPv4 {
				// Of fragments the first alone has ports.
				t = append(t, test{[]bpf.Instruction{bpf.LoadAbsolute{Off: 20, Size: 2}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0x1fff}}, 0})
				t = append(t, or{behindIPv4(0, f.Port), behindIPv4(2, f.Port)})
			} else {
				t = append(t, or{at(54, 2, uint32(f.Port)), at(56, 2, uint32(f.Port))})
			}
		}
		kinds = append(kinds, t)
	}
	if arp {
		t := and{at(12, 2, typeARP)}
		if len(f.Peers) > 0 {
			t = append(t, f.peersAt(28, 38, 4))
		}
		kinds = append(kinds, t)
	}
	return kinds
}

// peersAt is true if one of two addresses is a peer's.
func (f Filter) peersAt(from, to, length uint32) term {
	var t or
	for _, p := range f.Peers {
		b := p.AsSlice()
		if uint32(len(b)) != length {
			continue
		}
		for _, off := range []uint32{from, to} {
			var words and
			for i := uint32(0); i < length; i += 4 {
				words = append(words, at(off+i, 4, binary.BigEndian.Uint32(b[i:])))
			}
			t = append(t, words)
		}
	}
	return t
}

func oneOf(off uint32, numbers []uint8) (t or) {
	for _, n := range numbers {
		t = append(t, at(off, 1, uint32(n)))
	}
	return t
}

// term is true or false of a frame. An empty or is false, an empty and true.
type term interface{}

type (
	or  []term
	and []term
	// test compares what instructions load with a number.
	test struct {
		load []bpf.Instruction
		want uint32
	}
)

func at(off uint32, size int, want uint32) test {
	return test{[]bpf.Instruction{bpf.LoadAbsolute{Off: off, Size: size}}, want}
}

// behindIPv4 compares a port with what stands behind the header of IPv4, which may have options.
func behindIPv4(off uint32, port uint16) test {
	return test{[]bpf.Instruction{bpf.LoadMemShift{Off: ethernetHeader}, bpf.LoadIndirect{Off: ethernetHeader + off, Size: 2}}, uint32(port)}
}

// compiler writes a program whose jumps lead to labels.
type compiler struct {
	code   []bpf.Instruction
	jumps  map[int]int // of which instructions to which label
	labels []int       // where they are
}

// compile is the program that passes what the term is true of.
func compile(t term) []bpf.Instruction {
	c := &compiler{jumps: map[int]int{}}
	yes, no := c.label(), c.label()
	c.term(t, yes, no)
	c.here(yes)
	c.code = append(c.code, bpf.RetConstant{Val: 1 << 18})
	c.here(no)
	c.code = append(c.code, bpf.RetConstant{Val: 0})
	for i, label := range c.jumps {
		c.code[i] = bpf.Jump{Skip: uint32(c.labels[label] - i - 1)}
	}
	return c.code
}

func (c *compiler) label() int {
	c.labels = append(c.labels, 0)
	return len(c.labels) - 1
}

func (c *compiler) here(label int) { c.labels[label] = len(c.code) }

func (c *compiler) jump(label int) {
	c.jumps[len(c.code)] = label
	c.code = append(c.code, bpf.Jump{})
}

// term goes on at one label or the other.
func (c *compiler) term(t term, yes, no int) {
	switch t := t.(type) {
	case test:
		c.code = append(append(c.code, t.load...), bpf.JumpIf{Cond: bpf.JumpEqual, Val: t.want, SkipFalse: 1})
		c.jump(yes)
		c.jump(no)
	case or:
		for _, x := range t {
			next := c.label()
			c.term(x, yes, next)
			c.here(next)
		}
		c.jump(no)
	case and:
		for _, x := range t {
			next := c.label()
			c.term(x, next, no)
			c.here(next)
		}
		c.jump(yes)
	}
}
