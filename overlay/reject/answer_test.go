package reject

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

var (
	four = [2]netip.Addr{netip.MustParseAddr("10.128.0.7"), netip.MustParseAddr("10.128.2.9")}
	six  = [2]netip.Addr{netip.MustParseAddr("fd00:1::7"), netip.MustParseAddr("fd00:1::2:9")}
)

// frameOf is a frame from the first address to the second, as the switch sends it to be rejected.
func frameOf(between [2]netip.Addr, proto uint8, body []byte) []byte {
	be := binary.BigEndian
	out := append(slices.Clone(pipeline.RejectMAC), 2, 0x42, 0, 0, 0, 0x61)
	if between[0].Is6() {
		out = append(be.AppendUint16(append(out, 0x86, 0xdd, 0x60, 0, 0, 0), uint16(len(body))), proto, 64)
	} else {
		out = append(be.AppendUint16(append(out, 8, 0, 0x45, 0), uint16(20+len(body))), 0, 1, 0, 0, 64, proto, 0, 0)
	}
	out = append(append(out, between[0].AsSlice()...), between[1].AsSlice()...)
	return append(out, body...)
}

// segment is TCP from port 40000 to 80.
func segment(flags byte, seq, ack uint32, data string) []byte {
	be := binary.BigEndian
	h := be.AppendUint32(be.AppendUint32([]byte{40000 >> 8, 40000 & 255, 0, 80}, seq), ack)
	return append(append(h, 5<<4, flags, 255, 255, 0, 0, 0, 0), data...)
}

func datagram(n int) []byte {
	return append([]byte{0x9c, 0x40, 0, 53, 0, byte(8 + n), 0, 0}, make([]byte, n)...)
}

// whole checks what a kernel checks of an answer, and returns its protocol and what is behind the IP header.
func whole(t interface {
	Helper()
	Fatalf(string, ...any)
}, answer []byte, between [2]netip.Addr) (proto uint8, body []byte) {
	t.Helper()
	if !slices.Equal(answer[6:12], pipeline.RejectMAC) {
		t.Fatalf("an answer is from %x, want %s: the switch knows it by that", answer[6:12], pipeline.RejectMAC)
	}
	ip := answer[14:]
	var pseudo []byte
	if between[0].Is6() {
		proto, body, pseudo = ip[6], ip[40:], ip[8:40]
		if int(binary.BigEndian.Uint16(ip[4:])) != len(body) {
			t.Fatalf("length %d of %d", binary.BigEndian.Uint16(ip[4:]), len(body))
		}
	} else {
		proto, body, pseudo = ip[9], ip[20:], ip[12:20]
		if int(binary.BigEndian.Uint16(ip[2:])) != len(ip) || ones(ip[:20]) != 0xffff {
			t.Fatalf("length or checksum of the header: %x", ip[:20])
		}
	}
	if want := append(between[1].AsSlice(), between[0].AsSlice()...); !slices.Equal(pseudo, want) {
		t.Fatalf("it is between %x, want %x", pseudo, want)
	}
	over := body
	if proto != icmp {
		over = append(append(slices.Clone(pseudo), 0, proto, byte(len(body)>>8), byte(len(body))), body...)
	}
	if ones(over) != 0xffff {
		t.Fatalf("checksum of %x: %#x", body, ones(over))
	}
	return proto, body
}

// ones is the sum of RFC 1071, slowly.
func ones(b []byte) uint16 {
	var s uint64
	for i, v := range b {
		s += uint64(v) << (8 * (1 - i%2))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

func TestReset(t *testing.T) {
	for _, between := range [][2]netip.Addr{four, six} {
		for _, c := range []struct {
			name     string
			flags    byte
			data     string
			seq, ack uint32
			is       byte
		}{
			{"a call", syn, "", 0, 1001, rst | ack},
			{"a call that ends at once, with data", syn | fin, "abc", 0, 1005, rst | ack},
			{"in the middle", ack, "abc", 7000, 0, rst},
			{"the answer to a call", syn | ack, "", 7000, 0, rst},
			{"the end", fin | ack, "", 7000, 0, rst},
		} {
			answer, sender := Answer(frameOf(between, tcp, segment(c.flags, 1000, 7000, c.data)))
			if answer == nil || sender != between[0] {
				t.Errorf("%s: none, to %s", c.name, sender)
				continue
			}
			proto, h := whole(t, answer, between)
			be := binary.BigEndian
			got := []uint32{uint32(be.Uint16(h)), uint32(be.Uint16(h[2:])), be.Uint32(h[4:]), be.Uint32(h[8:]), uint32(h[13])}
			if want := []uint32{80, 40000, c.seq, c.ack, uint32(c.is)}; proto != tcp || len(h) != tcpBytes || !slices.Equal(got, want) {
				t.Errorf("%s: protocol %d, %v, want %v", c.name, proto, got, want)
			}
		}
	}
}

// TestProhibited: an error says whom it is about by the packet's own first bytes, also of one that was read in part.
func TestProhibited(t *testing.T) {
	for _, c := range []struct {
		between [2]netip.Addr
		proto   uint8
		body    []byte
		is      []byte
	}{
		{four, 17, datagram(4), []byte{3, 13}}, {six, 17, datagram(4), []byte{1, 1}}, {four, 17, datagram(200), []byte{3, 13}},
		{four, 132, datagram(20), []byte{3, 13}}, {six, 132, datagram(20), []byte{1, 1}}, {four, 47, datagram(0), []byte{3, 13}},
		{four, icmp, []byte{8, 0, 0, 0, 0, 1, 0, 1}, []byte{3, 13}}, {six, icmpv6, []byte{128, 0, 0, 0, 0, 1, 0, 1}, []byte{1, 1}},
	} {
		frame := frameOf(c.between, c.proto, c.body)
		answer, _ := Answer(frame[:min(len(frame), snap)])
		if answer == nil {
			t.Errorf("protocol %d of %s: no answer", c.proto, c.between[0])
			continue
		}
		proto, body := whole(t, answer, c.between)
		if proto != answering(c.proto, map[bool]uint8{true: icmp, false: icmpv6}[c.between[0].Is4()]) || !slices.Equal(body[:2], c.is) {
			t.Errorf("protocol %d of %s: %d, %v", c.proto, c.between[0], proto, body[:2])
		}
		quote := body[8:]
		if len(quote) > 40+quoted || !slices.Equal(quote, frame[14:14+len(quote)]) || len(quote) < min(len(frame)-14, 28) {
			t.Errorf("protocol %d of %s: it quotes %x", c.proto, c.between[0], quote)
		}
	}
}

func TestNobodyIsAnswered(t *testing.T) {
	call := segment(syn, 1, 0, "")
	change := func(frame []byte, at int, to ...byte) []byte {
		copy(frame[at:], to)
		return frame
	}
	to := func(a string) [2]netip.Addr { return [2]netip.Addr{four[0], netip.MustParseAddr(a)} }
	from := func(a string) [2]netip.Addr { return [2]netip.Addr{netip.MustParseAddr(a), four[1]} }
	for what, frame := range map[string][]byte{
		"a RST":                          frameOf(four, tcp, segment(rst, 1, 0, "")),
		"a RST that acknowledges":        frameOf(six, tcp, segment(rst|ack, 1, 1, "")),
		"unreachable":                    frameOf(four, icmp, append([]byte{3, 13, 0, 0, 0, 0, 0, 0}, call...)),
		"a redirect":                     frameOf(four, icmp, []byte{5, 0, 0, 0, 0, 0, 0, 0}),
		"an echo reply":                  frameOf(four, icmp, []byte{0, 0, 0, 0, 0, 0, 0, 0}),
		"ICMPv6 unreachable":             frameOf(six, icmpv6, append([]byte{1, 1, 0, 0, 0, 0, 0, 0}, call...)),
		"a neighbour solicitation":       frameOf(six, icmpv6, []byte{135, 0, 0, 0, 0, 0, 0, 0}),
		"ICMP over IPv6":                 frameOf(six, icmp, []byte{8, 0, 0, 0, 0, 0, 0, 0}),
		"ICMPv6 over IPv4":               frameOf(four, icmpv6, []byte{128, 0, 0, 0, 0, 0, 0, 0}),
		"the first fragment":             change(frameOf(four, tcp, call), 14+6, 0x20),
		"a later fragment":               change(frameOf(four, tcp, call), 14+6, 0, 1),
		"a fragment of IPv6":             frameOf(six, 44, call),
		"behind an extension header":     frameOf(six, 60, call),
		"to a group":                     frameOf(to("224.0.0.1"), 17, datagram(1)),
		"to all":                         frameOf(to("255.255.255.255"), 17, datagram(1)),
		"from a group":                   frameOf(from("224.0.0.1"), 17, datagram(1)),
		"from nobody":                    frameOf(from("0.0.0.0"), 17, datagram(1)),
		"from all":                       frameOf(from("255.255.255.255"), 17, datagram(1)),
		"from itself":                    frameOf(from("127.0.0.1"), tcp, call),
		"to a group of IPv6":             frameOf([2]netip.Addr{six[0], netip.MustParseAddr("ff02::1")}, 17, datagram(1)),
		"TCP that is cut off":            frameOf(four, tcp, call[:19]),
		"TCP with too short a header":    change(frameOf(four, tcp, call), 14+20+12, 4<<4),
		"TCP with too long a header":     change(frameOf(four, tcp, call), 14+20+12, 15<<4),
		"an IP header that is too short": change(frameOf(four, tcp, call), 14, 0x44),
		"a length less than the header":  change(frameOf(four, tcp, call), 14+2, 0, 19),
		"ARP":                            change(frameOf(four, tcp, call), 12, 8, 6),
	} {
		if answer, _ := Answer(frame); answer != nil {
			t.Errorf("%s is answered: %x", what, answer)
		}
	}
}

// TestAnswersEnd: whatever comes in, an answer is whole, goes to the sender alone, is no longer than what asks for it by more
// than headers, and is itself never answered.
func TestAnswersEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		between := rapid.SampledFrom([][2]netip.Addr{four, six}).Draw(t, "between")
		proto := rapid.SampledFrom([]uint8{1, 2, 6, 6, 6, 17, 44, 58, 132}).Draw(t, "protocol")
		frame := frameOf(between, proto, rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "body"))
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			frame[rapid.IntRange(12, len(frame)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "to")
		}
		frame = frame[:rapid.IntRange(0, len(frame)).Draw(t, "length")]
		answer, sender := Answer(frame)
		if answer == nil {
			return
		}
		p, _ := read(frame)
		if sender != p.src {
			t.Fatalf("to %s, want %s", sender, p.src)
		}
		whole(t, answer, [2]netip.Addr{p.src, p.dst})
		if len(answer) > len(frame)+48 {
			t.Fatalf("%d bytes answer %d", len(answer), len(frame))
		}
		if again, _ := Answer(append(slices.Clone(pipeline.RejectMAC), answer[6:]...)); again != nil {
			t.Fatalf("the answer %x is answered: %x", answer, again)
		}
	})
}

// TestBudget: a sender that floods has so many answers a second, and takes no other sender's.
func TestBudget(t *testing.T) {
	b, now := newBudget(), time.Unix(1, 0)
	count := func(n int, to netip.Addr, every time.Duration) (answers int) {
		for range n {
			if b.answers(to, now) {
				answers++
			}
			now = now.Add(every)
		}
		return answers
	}
	if n := count(10_000, four[0], 0); n != perSender {
		t.Errorf("%d answers at once, want %d", n, perSender)
	}
	if n := count(10_000, four[0], 100*time.Microsecond); n < perSender-1 || n > perSender+1 {
		t.Errorf("%d answers in a second, want %d", n, perSender)
	}
	others := 0
	for i := range 5000 {
		if b.answers(netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), now) {
			others++
		}
	}
	if others < perHost/2 || others > perHost {
		t.Errorf("%d answers to others at once, want at most %d", others, perHost)
	}
	read, lane := 0, bucket{}
	for range 100_000 {
		if lane.take(reads, now) {
			read++
		}
	}
	if read != reads {
		t.Errorf("%d are read at once, want %d", read, reads)
	}
}
