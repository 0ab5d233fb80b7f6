package overlay

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// frame4 and frame6 are frames of endpoint a to the router, with what comes after the fixed
// header: of IPv4 with its options before.
func frame4(dst string, proto byte, offset uint16, options, rest []byte) []byte {
	ip := []byte{0x40 | byte(5+len(options)/4), 0, 0, 0, 0, 7, 0, 0, 64, proto, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(options)+len(rest)))
	binary.BigEndian.PutUint16(ip[6:], offset)
	ip = append(append(ip, addr("10.128.0.7").AsSlice()...), addr(dst).AsSlice()...)
	ip = append(ip, options...)
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	return append(ethernet(0x0800), append(ip, rest...)...)
}

func frame6(dst string, next byte, rest []byte) []byte {
	ip := []byte{0x60, 0, 0, 0, 0, 0, next, 64}
	binary.BigEndian.PutUint16(ip[4:], uint16(len(rest)))
	ip = append(append(ip, addr("fd00:1::7").AsSlice()...), addr(dst).AsSlice()...)
	return append(ethernet(0x86dd), append(ip, rest...)...)
}

func ethernet(kind uint16) []byte {
	b := append(append([]byte{}, pipeline.RouterMAC...), 2, 0x42, 0, 0, 0, 'a')
	return binary.BigEndian.AppendUint16(b, kind)
}

// datagram is a UDP header to a port with 32 bytes of payload.
func datagram(port uint16) []byte {
	b := append([]byte{0, 1}, byte(port>>8), byte(port), 0, 40, 0, 0)
	return append(b, make([]byte, 32)...)
}

// TestTraceHidden: no container brings VXLAN or gossip to a host, however it is wrapped, and
// what it may send goes its way.
func TestTraceHidden(t *testing.T) {
	const vtep4, vtep6, out4, out6 = "192.0.2.2", "2001:db8::3", "198.51.100.1", "2001:db8:9::1"
	forged, hidden, gossip := pipeline.DropForgedTunnel, pipeline.DropHidden, pipeline.DropGossip
	ext := func(next byte, rest []byte) []byte { return append([]byte{next, 0, 1, 4, 0, 0, 0, 0}, rest...) } // padding
	frag := func(next byte, offset uint16, more bool, rest []byte) []byte {
		field := offset
		if more {
			field |= 1
		}
		return append([]byte{next, 0, byte(field >> 8), byte(field), 0, 0, 0, 9}, rest...)
	}
	ah := append([]byte{17, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1}, make([]byte, 12)...)
	inner := frame4(vtep4, 17, 0, nil, datagram(4789))[14:]
	const more = 0x2000
	for name, mode := range map[string]pipeline.TunnelMode{"metadata": pipeline.Metadata, "header bits": pipeline.HeaderBits} {
		t.Run(name, func(t *testing.T) {
			b, port := sceneSwitch(t, mode)
			in := scene(mode, port)
			out := fmt.Sprintf("output:%d", port["gv0"])
			drop := func(s pipeline.Stage, r pipeline.Reason) string { return s.String() + ": drop: " + r.String() }
			for _, c := range []struct {
				name, want string
				frame      []byte
			}{
				{"VXLAN to a VTEP", drop(pipeline.Forwarding, forged), frame4(vtep4, 17, 0, nil, datagram(4789))},
				{"behind IP options", drop(pipeline.Forwarding, forged), frame4(vtep4, 17, 0, []byte{1, 1, 1, 1}, datagram(4789))},
				{"its first fragment", drop(pipeline.HostGuard, hidden), frame4(vtep4, 17, more, nil, datagram(4789))},
				{"a later one", drop(pipeline.HostGuard, hidden), frame4(vtep4, 17, 5, nil, make([]byte, 40))},
				{"one in the middle", drop(pipeline.HostGuard, hidden), frame4(vtep4, 17, more|5, nil, make([]byte, 40))},
				{"one of 8 bytes", drop(pipeline.HostGuard, hidden), frame4(vtep4, 17, more, nil, make([]byte, 8))},
				{"fragments of another protocol", drop(pipeline.HostGuard, hidden), frame4(vtep4, 4, more, nil, inner)},
				{"VXLAN to the gateway", drop(pipeline.HostGuard, forged), frame4("10.128.0.1", 17, 0, nil, datagram(4789))},
				{"VXLAN to this host's VTEP", drop(pipeline.Forwarding, forged), frame4("192.0.2.1", 17, 0, nil, datagram(4789))},
				{"VXLAN to the outside", drop(pipeline.Forwarding, forged), frame4(out4, 17, 0, nil, datagram(4789))},
				{"IP in IP", drop(pipeline.HostGuard, hidden), frame4(vtep4, 4, 0, nil, inner)},
				{"IPv6 in IP", drop(pipeline.HostGuard, hidden), frame4(vtep4, 41, 0, nil, frame6(vtep6, 17, datagram(4789))[14:])},
				{"GRE", drop(pipeline.HostGuard, hidden), frame4(vtep4, 47, 0, nil, append([]byte{0, 0, 8, 0}, inner...))},
				{"MPLS in IP", drop(pipeline.HostGuard, hidden), frame4(vtep4, 137, 0, nil, append([]byte{0, 0, 1, 64}, inner...))},
				{"gossip to a host, UDP", drop(pipeline.HostGuard, gossip), frame4(vtep4, 17, 0, nil, datagram(7947))},
				{"gossip to a host, TCP", drop(pipeline.HostGuard, gossip), frame4(vtep4, 6, 0, nil, append([]byte{0, 1, 0x1f, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2}, make([]byte, 6)...))},
				{"gossip to the gateway", drop(pipeline.HostGuard, gossip), frame4("10.128.0.1", 17, 0, nil, datagram(7947))},
				{"gossip to this host", drop(pipeline.HostGuard, gossip), frame4("192.0.2.1", 17, 0, nil, datagram(7947))},

				{"IPv6: VXLAN to a VTEP", drop(pipeline.Forwarding, forged), frame6(vtep6, 17, datagram(4789))},
				{"behind hop-by-hop options", drop(pipeline.Forwarding, forged), frame6(vtep6, 0, ext(17, datagram(4789)))},
				{"behind destination options", drop(pipeline.Forwarding, forged), frame6(vtep6, 60, ext(17, datagram(4789)))},
				{"behind both", drop(pipeline.Forwarding, forged), frame6(vtep6, 0, ext(60, ext(17, datagram(4789))))},
				{"behind a routing header", drop(pipeline.Forwarding, forged), frame6(vtep6, 43, append([]byte{17, 0, 253, 0, 0, 0, 0, 0}, datagram(4789)...))},
				{"behind an authentication header", drop(pipeline.Forwarding, forged), frame6(vtep6, 51, append(ah, datagram(4789)...))},
				{"IPv6: its first fragment", drop(pipeline.HostGuard, hidden), frame6(vtep6, 44, frag(17, 0, true, datagram(4789)))},
				{"IPv6: a later one", drop(pipeline.HostGuard, hidden), frame6(vtep6, 44, frag(17, 40, false, make([]byte, 40)))},
				{"IPv6: one behind options", drop(pipeline.HostGuard, hidden), frame6(vtep6, 0, ext(44, frag(17, 0, true, datagram(4789))))},
				{"IPv6: options in a fragment", drop(pipeline.HostGuard, hidden), frame6(vtep6, 44, frag(60, 0, true, ext(17, datagram(4789))))},
				{"IPv6: a fragment that is whole", drop(pipeline.Forwarding, forged), frame6(vtep6, 44, frag(17, 0, false, datagram(4789)))},
				{"IP in IPv6", drop(pipeline.HostGuard, hidden), frame6(vtep6, 4, inner)},
				{"IPv6 in IPv6", drop(pipeline.HostGuard, hidden), frame6(vtep6, 41, frame6(vtep6, 17, datagram(4789))[14:])},
				{"IPv6 in IPv6 behind options", drop(pipeline.HostGuard, hidden), frame6(vtep6, 60, ext(41, frame6(vtep6, 17, datagram(4789))[14:]))},
				{"GRE in IPv6", drop(pipeline.HostGuard, hidden), frame6(vtep6, 47, append([]byte{0, 0, 8, 0}, inner...))},
				{"IPv6: gossip to a host", drop(pipeline.HostGuard, gossip), frame6(vtep6, 17, datagram(7947))},

				{"a fragment of ICMP to a VTEP", out, frame4(vtep4, 1, more, nil, make([]byte, 40))},
				{"a fragment of TCP to a VTEP", out, frame4(vtep4, 6, 5, nil, make([]byte, 40))},
				{"UDP to a VTEP", out, frame4(vtep4, 17, 0, nil, datagram(53))},
				{"UDP to the gateway", out, frame4("10.128.0.1", 17, 0, nil, datagram(53))},
				{"a fragment to the gateway", out, frame4("10.128.0.1", 17, more, nil, datagram(53))},
				{"a fragment to the outside", out, frame4(out4, 17, more, nil, datagram(53))},
				{"a later one to the outside", out, frame4(out4, 17, 5, nil, make([]byte, 40))},
				{"a fragment to the outside, IPv6", out, frame6(out6, 44, frag(17, 0, true, datagram(53)))},
				{"IP in IP to the outside", out, frame4(out4, 4, 0, nil, inner)},
				{"GRE to the outside", out, frame4(out4, 47, 0, nil, append([]byte{0, 0, 8, 0}, inner...))},
				{"gossip to the outside", out, frame4(out4, 17, 0, nil, datagram(7947))},
				{"IPv6 UDP to a VTEP", out, frame6(vtep6, 60, ext(17, datagram(53)))},
				{"a fragment to a container elsewhere", fmt.Sprintf("output:%d", port["gvtun"]), frame4("10.128.2.9", 17, more, nil, datagram(53))},
				{"VXLAN of its own to a container elsewhere", fmt.Sprintf("output:%d", port["gvtun"]), frame4("10.128.2.9", 17, 0, nil, datagram(4789))},
			} {
				got, text := verdict(t, b, in, fmt.Sprintf("in_port=%d", port["gva"]), hex.EncodeToString(c.frame))
				if got != c.want {
					t.Errorf("%s: got %q, want %q\n%s", c.name, got, c.want, text)
				}
			}
			// What hosts send each other may be GRE, all of it, and UDP is then like any other.
			before, err := pipeline.Compile(in)
			if err != nil {
				t.Fatal(err)
			}
			in.VXLANPort, in.GRE = 0, true
			after, err := pipeline.Compile(in)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.ApplyBundle(t.Context(), pipeline.Diff(before, after).Lines()); err != nil {
				t.Fatal(err)
			}
			key := []byte{0x20, 0, 0x65, 0x58, 0, 0, 0, 5}
			for _, c := range []struct {
				name, want string
				frame      []byte
			}{
				{"GRE to a VTEP", drop(pipeline.Forwarding, forged), frame4(vtep4, 47, 0, nil, key)},
				{"behind IP options", drop(pipeline.Forwarding, forged), frame4(vtep4, 47, 0, []byte{1, 1, 1, 1}, key)},
				{"its first fragment", drop(pipeline.Forwarding, forged), frame4(vtep4, 47, more, nil, key)},
				{"a later one", drop(pipeline.Forwarding, forged), frame4(vtep4, 47, 5, nil, make([]byte, 40))},
				{"GRE to the gateway", drop(pipeline.HostGuard, forged), frame4("10.128.0.1", 47, 0, nil, key)},
				{"GRE to this host's VTEP", drop(pipeline.Forwarding, forged), frame4("192.0.2.1", 47, 0, nil, key)},
				{"GRE to the outside", drop(pipeline.Forwarding, forged), frame4(out4, 47, 0, nil, key)},
				{"IPv6: GRE to a VTEP", drop(pipeline.Forwarding, forged), frame6(vtep6, 47, key)},
				{"IPv6: behind options", drop(pipeline.Forwarding, forged), frame6(vtep6, 0, ext(60, ext(47, key)))},
				{"IPv6: its first fragment", drop(pipeline.Forwarding, forged), frame6(vtep6, 44, frag(47, 0, true, key))},
				{"IPv6: to the outside", drop(pipeline.Forwarding, forged), frame6(out6, 47, key)},
				{"GRE of its own to a container elsewhere", fmt.Sprintf("output:%d", port["gvtun"]), frame4("10.128.2.9", 47, 0, nil, key)},
				{"UDP to the outside", out, frame4(out4, 17, 0, nil, datagram(4789))},
			} {
				got, text := verdict(t, b, in, fmt.Sprintf("in_port=%d", port["gva"]), hex.EncodeToString(c.frame))
				if got != c.want {
					t.Errorf("with GRE: %s: got %q, want %q\n%s", c.name, got, c.want, text)
				}
			}
		})
	}
}
