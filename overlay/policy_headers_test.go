package overlay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestPolicyBehindHeaders: rules hold for what is behind extension headers of IPv6, in whatever order, in atomic and tiny
// fragments, and for SCTP by its port.
func TestPolicyBehindHeaders(t *testing.T) {
	r := newRuled(t)
	serve(t, "b", 80)
	udp80, sctp80 := pipeline.PortRange{Proto: 17, From: 80, To: 80}, pipeline.PortRange{Proto: 132, From: 80, To: 80}
	knows := r.bridge.Datapath == ovs.Kernel // the ports of SCTP
	six := [2]netip.Addr{addr("fd00:1::7"), addr("fd00:1::8")}
	be := binary.BigEndian
	port := uint16(1024)
	// behind is a datagram to a port, or SCTP's INIT, with headers before it.
	behind := func(proto byte, to uint16, headers ...[]byte) []byte {
		port++
		body := append(be.AppendUint16(be.AppendUint16(nil, port), to), 0, byte(8+len(payload)), 0, 0)
		body = append(body, payload...)
		if proto == 132 {
			body = append(be.AppendUint16(be.AppendUint16(nil, port), to), 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, byte(20+8+len(payload)), 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0x80, 8, 0, byte(4+len(payload)))
			body = append(body, payload...)
			binary.LittleEndian.PutUint32(body[8:], crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
		} else {
			pseudo := append(append(append([]byte{}, six[0].AsSlice()...), six[1].AsSlice()...), 0, 0, 0, byte(len(body)), 0, 0, 0, 17)
			be.PutUint16(body[6:], checksum(append(pseudo, body...)))
		}
		next := proto
		for i := len(headers) - 1; i >= 0; i-- {
			h := append([]byte{}, headers[i]...)
			h[1], next = next, h[0]
			h[0], h[1] = h[1], 0
			if next != 44 {
				h[1] = byte(len(h)/8 - 1)
			}
			if next == 51 {
				h[1] = byte(len(h)/4 - 2)
			}
			body = append(h, body...)
		}
		frame := append(append([]byte{}, macOf('b')...), macOf('a')...)
		frame = be.AppendUint16(frame, unix.ETH_P_IPV6)
		frame = append(frame, 0x60, 0, 0, 0)
		frame = be.AppendUint16(frame, uint16(len(body)))
		frame = append(frame, next, 64)
		return append(append(append(frame, six[0].AsSlice()...), six[1].AsSlice()...), body...)
	}
	hop, dest := []byte{0, 0, 1, 4, 0, 0, 0, 0}, []byte{60, 0, 1, 4, 0, 0, 0, 0}
	routing := []byte{43, 0, 0, 0, 0, 0, 0, 0}
	atomic := []byte{44, 0, 0, 0, 0, 0, 0, 9}
	auth := append([]byte{51, 0, 0, 0}, make([]byte, 20)...)
	mobility := []byte{135, 0, 0, 0, 0, 0, 0, 0}
	ways := map[string][][]byte{
		"nothing": {}, "hop-by-hop": {hop}, "destination options": {dest}, "routing": {routing}, "atomic": {atomic}, "authentication": {auth}, "mobility": {mobility},
		"many": {hop, dest, routing, dest}, "options behind a fragment": {atomic, dest}, "options before one": {dest, atomic}, "two fragments": {atomic, atomic}, "twelve options": {dest, dest, dest, dest, dest, dest, dest, dest, dest, dest, dest, dest},
	}
	arrived := map[string]bool{}
	for _, guarded := range []string{"a", "b"} {
		r.enforce(r.policy(guarded, 1, lets(1, 2, udp80, sctp80)...))
		out, seen := packetSocket(t, "a"), packetSocket(t, "b")
		for what, headers := range ways {
			for _, proto := range []byte{17, 132} {
				for _, to := range []uint16{81, 80} {
					frame := behind(proto, to, headers...)
					ovstest.Eventually(t, time.Minute, func() error { _, err := unix.Write(out, frame); return err })
					c, err := call(t, "a", "udp", "10.128.0.8:80", long)
					if err != nil {
						t.Fatal(err)
					}
					ovstest.Eventually(t, time.Minute, func() error { return comesBack(c, short) })
					_ = c.Close()
					var late time.Duration
					switch { // the kernel's datapath asks for it by an upcall: what is sent later may come before it
					case knows && to == 81:
						late = short
					case knows && len(headers) == 0:
						late = long
					}
					came := comes(seen, port, to)
					for end := time.Now().Add(late); !came && time.Now().Before(end); came = comes(seen, port, to) {
						time.Sleep(10 * time.Millisecond)
					}
					if came && to == 81 {
						t.Errorf("%s has rules: behind %s protocol %d passes to a port that they do not name", guarded, what, proto)
					}
					if to == 80 && came {
						arrived[fmt.Sprint(guarded, " ", what, " ", proto)] = true
					}
				}
			}
		}
	}
	for _, guarded := range []string{"a", "b"} {
		for _, proto := range []byte{17, 132} {
			if want := proto == 17 || knows; arrived[fmt.Sprint(guarded, " nothing ", proto)] != want {
				t.Errorf("%s has rules, which let protocol %d through: that it comes is %v", guarded, proto, !want)
			}
		}
	}
	// A port that is denied is, and where the switch knows no ports of SCTP all of it is.
	for _, action := range []pipeline.Action{pipeline.Drop, pipeline.Reject, pipeline.Pass} {
		p := r.policy("b", 2, lets(1, 2)...)
		p.Rules = append(p.Rules, pipeline.PolicyRule{ID: 9, Direction: pipeline.Ingress, Priority: pipeline.PriorityNetworkPolicy + 2, Action: action, Subjects: []uint32{2}, AnyPeer: true, Ports: []pipeline.PortRange{sctp80}, Label: "to b"})
		if action == pipeline.Pass { // to where nothing lets it through
			p.Rules = slices.DeleteFunc(p.Rules, func(r pipeline.PolicyRule) bool {
				return r.Priority == pipeline.PriorityNetworkPolicy && r.Direction == pipeline.Ingress
			})
			p.Rules = append(p.Rules, pipeline.PolicyRule{ID: 10, Direction: pipeline.Ingress, Priority: pipeline.PriorityNetworkPolicy + 1, Action: pipeline.Accept, Subjects: []uint32{2}, AnyPeer: true, AnyPort: true})
		}
		r.enforce(p)
		out, seen := packetSocket(t, "a"), packetSocket(t, "b")
		for _, to := range []uint16{80, 81} {
			frame := behind(132, to)
			ovstest.Eventually(t, time.Minute, func() error { _, err := unix.Write(out, frame); return err })
			c, err := call(t, "a", "udp", "10.128.0.8:80", long)
			if err != nil {
				t.Fatal(err)
			}
			ovstest.Eventually(t, time.Minute, func() error { return comesBack(c, short) })
			_ = c.Close()
			want := to == 81 && knows
			came := comes(seen, port, to)
			for end := time.Now().Add(long); knows && came != want && time.Now().Before(end); came = comes(seen, port, to) {
				time.Sleep(10 * time.Millisecond)
			}
			if came != want {
				t.Errorf("action %d of SCTP port 80: to port %d comes %t", action, to, came)
			}
		}
		if action == pipeline.Pass && !knows { // who denied it has the rule's name
			flows, _, err := ruleFlows(t.Context(), r.bridge)
			if err != nil {
				t.Fatal(err)
			}
			names := pipeline.NewNames(r.in)
			if !slices.ContainsFunc(flows, func(f pipeline.Flow) bool { return names.Describe(f.Cookie) == "rule to b (SCTP)" }) {
				t.Error("no flow says that it denies SCTP in a rule's place")
			}
			ovstest.Eventually(t, long, func() error {
				if rules, _ := r.counted(); rules[pipeline.InPlaceOf(9)].Denied.Packets == 0 {
					return fmt.Errorf("nothing is counted of what is denied: %v", rules)
				}
				return nil
			})
		}
	}
	t.Log("what rules let through arrives:", arrived)
}

// comes reports whether of the frames that a socket has one is from and to these ports, of whatever protocol.
func comes(fd int, from, to uint16) (came bool) {
	ports := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from), to)
	frame := make([]byte, 4096)
	for {
		size, err := unix.Read(fd, frame)
		if err != nil {
			return came
		}
		came = came || size > 54 && bytes.Contains(frame[54:size], ports)
	}
}
