package overlay

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestPolicyOfAllProtocols: what no rule lets through does not pass, whatever it says that it carries. Open vSwitch takes
// a connection of protocol 0 for none: no match of connections' addresses sees it.
func TestPolicyOfAllProtocols(t *testing.T) {
	r := newRuled(t)
	serve(t, "b", 80)
	udp80 := pipeline.PortRange{Proto: 17, From: 80, To: 80}
	for _, guarded := range []string{"a", "b"} {
		r.enforce(r.policy(guarded, 1, lets(1, 2, udp80)...))
		out, seen := packetSocket(t, "a"), packetSocket(t, "b")
		for proto := range 256 {
			for _, frame := range [][]byte{
				carrying(addr("10.128.0.7"), addr("10.128.0.8"), byte(proto), nil),
				carrying(addr("10.128.0.7"), addr("10.128.0.8"), byte(proto), []byte{1, 1, 1, 0}), // options: nothing, and their end
				carrying(addr("fd00:1::7"), addr("fd00:1::8"), byte(proto), nil),
			} {
				ovstest.Eventually(t, time.Minute, func() error { _, err := unix.Write(out, frame); return err })
			}
		}
		c, err := call(t, "a", "udp", "10.128.0.8:80", long)
		if err != nil {
			t.Fatal(err)
		}
		// What came before it has been seen to when this has; a switch that is busy may lose it.
		ovstest.Eventually(t, time.Minute, func() error { return comesBack(c, short) })
		if came := carried(seen); len(came) > 0 {
			t.Errorf("%s has rules, which let no such packet through, and there came %v", guarded, came)
		}
	}
}

// payload is what carrying has in its packets.
const payload = "past all rules, from a to b, in any protocol"

// carrying is a frame from a to b with an IP packet of a protocol.
func carrying(src, dst netip.Addr, proto byte, options []byte) []byte {
	frame := append(append([]byte{}, macOf('b')...), macOf('a')...)
	if src.Is4() {
		h := make([]byte, 20, 24)
		h = append(h, options...)
		h[0], h[8], h[9] = 0x40|byte(len(h)/4), 64, proto
		binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(payload)))
		copy(h[12:], src.AsSlice())
		copy(h[16:], dst.AsSlice())
		binary.BigEndian.PutUint16(h[10:], checksum(h))
		return append(append(binary.BigEndian.AppendUint16(frame, unix.ETH_P_IP), h...), payload...)
	}
	h := make([]byte, 40)
	h[0], h[6], h[7] = 0x60, proto, 64
	binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
	copy(h[8:], src.AsSlice())
	copy(h[24:], dst.AsSlice())
	return append(append(binary.BigEndian.AppendUint16(frame, unix.ETH_P_IPV6), h...), payload...)
}

// carried are the protocols of such packets among the frames that a socket has, each once.
func carried(fd int) (came []string) {
	frame := make([]byte, 4096)
	for {
		size, err := unix.Read(fd, frame)
		if err != nil {
			return slices.Compact(came)
		}
		switch f := frame[:size]; {
		case size < 34+len(payload) || string(f[size-len(payload):]) != payload:
		case binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_IP:
			came = append(came, fmt.Sprintf("IPv4 %d", f[23]))
		default:
			came = append(came, fmt.Sprintf("IPv6 %d", f[20]))
		}
	}
}
